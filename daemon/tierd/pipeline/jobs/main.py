"""One run as a process: its arguments, its log, its Spark session, and its end when the leader goes."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog
from pyspark import SparkConf, SparkContext

from tierd.config import TierdConfig, load_config
from tierd.errors import ConfigError, LeaderChannelError, TierError
from tierd.model import uuid_to_text
from tierd.pipeline.access import TierAccess
from tierd.pipeline.committing import LeaderClient
from tierd.pipeline.jobs.exit_codes import JobExit
from tierd.pipeline.jobs.leader_watch import LeaderWatch
from tierd.pipeline.jobs.progress import RunProgress
from tierd.pipeline.jobs.run import Run
from tierd.pipeline.jobs.session import spark_settings
from tierd.telemetry import configure_logging

log = structlog.get_logger()


def main(arguments: Sequence[str]) -> JobExit:
    """Carry out what the leader on the socket has to be done; return how that ended."""
    parser = argparse.ArgumentParser(prog="python -m tierd.pipeline.jobs", description=__doc__)
    parser.add_argument("--leader", type=Path, required=True, metavar="SOCKET", help="where the daemon listens")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the daemon's configuration")
    options = parser.parse_args(arguments)
    configure_logging(format="json", level="info", stream=sys.stderr)
    try:
        config = load_config(options.config, os.environ)
        configure_logging(format="json", level=config.logging.level, stream=sys.stderr)
        _run(config, options.config, options.leader)
    except TierError as error:
        outcome = _exit_of(error)
        log.error("run_failed", exit=outcome.name, problem=str(error), remedy=error.remedy)  # noqa: TRY400 no bug
        return outcome
    return JobExit.DONE


def _exit_of(error: TierError) -> JobExit:
    match error:
        case ConfigError():
            return JobExit.USAGE
        case LeaderChannelError():
            return JobExit.LEADER_GONE
        case _:
            return JobExit.FAILED


def _run(config: TierdConfig, config_file: Path, socket: Path) -> None:
    leader = LeaderClient.connect(socket)
    progress, counts = RunProgress(), dict[str, int]()
    with LeaderWatch(leader, progress, on_gone=_exit_at_once):
        order = leader.order()
        log.info("run_begins", run_id=uuid_to_text(order.run_id), partitions=len(order.partitions))
        if any(work.groups for work in order.partitions):
            access = TierAccess.from_config(config, config_file)
            with spark_session(config) as spark:
                log.info("session_begins", master=spark.master, parallelism=spark.defaultParallelism)
                counts = dict(Run(spark, leader, access, order, progress).run())
                log.info("run_ends", run_id=uuid_to_text(order.run_id), **counts)
    leader.done(counts)


@contextmanager
def spark_session(config: TierdConfig) -> Iterator[SparkContext]:
    """The session of a run, with this very Python for its workers where they are on this host."""
    config.pipeline_dir.mkdir(parents=True, exist_ok=True)
    settings = spark_settings(config.pipeline, config.pipeline_dir)
    if settings["spark.master"].startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf()  # what spark-submit was given goes first
    for name, value in settings.items():
        conf.setIfMissing(name, value)
    spark = SparkContext(conf=conf)
    try:
        cores = spark.defaultParallelism
        spark.parallelize(range(cores), cores).count()  # the workers are part of the session: now they are there
        yield spark
    finally:
        spark.stop()


def _exit_at_once() -> None:
    """End the process, and with it Spark: what runs in it, and on its executors, ends when the driver does."""
    log.error("leader_gone", problem="the leader hung up; the run is over")
    sys.stderr.flush()
    os._exit(JobExit.LEADER_GONE)
