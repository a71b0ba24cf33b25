"""One run as a process: its arguments, its log, its Spark session, and its end when the leader goes."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import structlog
from pyspark import SparkContext

from tierd.config import TierdConfig, is_on_this_host, load_config, protection_faults
from tierd.errors import ConfigError, PipelineError, TierError
from tierd.files import make_private_directory, require_unchangeable
from tierd.model import uuid_to_text
from tierd.pipeline.access import TierAccess
from tierd.pipeline.committing import LeaderClient
from tierd.pipeline.jobs.exit_codes import JobExit
from tierd.pipeline.jobs.job_progress import JobProgress
from tierd.pipeline.jobs.job_run import JobRun
from tierd.pipeline.jobs.leader_watch import LeaderWatch
from tierd.pipeline.jobs.spark_session_settings import (
    PRIVATE_UMASK,
    WORKER_UMASK,
    process_umask,
    spark_environment,
    spark_settings,
    write_properties,
)
from tierd.pipeline.pipeline_errors import LeaderChannelError
from tierd.telemetry import configure_logging

log = structlog.get_logger()

_GATEWAY_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"


def main(arguments: Sequence[str]) -> JobExit:
    """Carry out the order of the leader on the socket; return the exit code."""
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
    progress, counts = JobProgress(), dict[str, int]()
    with LeaderWatch(leader, progress, on_gone=_exit_at_once):
        order = leader.order()
        log.info("run_begins", run_id=uuid_to_text(order.run_id), partitions=len(order.partitions))
        if any(work.groups for work in order.partitions):
            access = TierAccess.from_config(config, config_file).for_tasks()
            with spark_session(config) as spark:
                log.info("session_begins", master=spark.master, parallelism=spark.defaultParallelism)
                run = JobRun(spark, leader, access, order, progress)
                counts = dict(run.run())
                run_id = uuid_to_text(order.run_id)
                log.info("run_ends", run_id=run_id, fetched_bytes=run.fetched_bytes, **counts)
    leader.done(counts)


@contextmanager
def spark_session(config: TierdConfig) -> Iterator[SparkContext]:
    """Open the session of a run; workers on this host use this process's Python.

    Raises:
        PipelineError: the session is open to others than its own processes; nothing secret has been in it.
    """
    with ExitStack() as stack:
        if _GATEWAY_PORT not in os.environ:  # spark-submit did not begin us
            stack.enter_context(_own_java(config))
        if is_on_this_host(config.pipeline.master):
            os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        spark = SparkContext()
        stack.callback(spark.stop)
        require_protection(spark)
        cores = spark.defaultParallelism
        spark.parallelize(range(cores), cores).count()  # starts the workers, which belong to the session
        yield spark


@contextmanager
def _own_java(config: TierdConfig) -> Iterator[None]:
    """Have pyspark start Java as tierd starts spark-submit: settings in a file, every file for the owner alone."""
    master = config.pipeline.master
    os.environ.setdefault(WORKER_UMASK, f"{process_umask():o}")
    os.environ |= spark_environment(master)
    _make_safe(config.pipeline_dir)
    previous = os.umask(PRIVATE_UMASK)
    try:
        with TemporaryDirectory(prefix="session-", dir=config.pipeline_dir, ignore_cleanup_errors=True) as scratch:
            properties = Path(scratch) / "spark.properties"
            write_properties(properties, spark_settings(config.pipeline, Path(scratch)))
            os.environ[_SUBMIT_ARGUMENTS] = shlex.join(["--properties-file", str(properties), "pyspark-shell"])
            yield
    finally:
        os.umask(previous)


def _make_safe(directory: Path) -> None:
    try:
        make_private_directory(directory)
        require_unchangeable(directory)
    except OSError as error:
        raise PipelineError(
            f"{directory} cannot be used: {error}", remedy="check pipeline.local_dir: its owner, its mode and its disk"
        ) from error


def require_protection(spark: SparkContext) -> None:
    """Check the settings in force, which may come from elsewhere than the configuration.

    Raises:
        PipelineError: the settings leave the session open to other processes.
    """
    faults = protection_faults(str(spark.master), dict(spark.getConf().getAll()))
    if faults:
        problems = "; ".join(f"{name} {problem}" for name, problem in faults)
        raise PipelineError(f"the Spark session is not protected: {problems}", remedy="correct pipeline.spark_conf")


def _exit_at_once() -> None:
    """End the process, and with it Spark, whose tasks and executors end with the driver."""
    log.error("leader_gone", problem="the leader hung up; the run is over")
    sys.stderr.flush()
    os._exit(JobExit.LEADER_GONE)
