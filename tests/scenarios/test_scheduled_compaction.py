"""Scheduled compaction by a daemon of topics that a broker writes and compacts itself, while readers read them."""

import base64
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Daemon, Installation, Settings
from tests.scenarios.keyed_traffic import KeyedTraffic, Reading, SeenRecord, assert_consistent
from tests.scenarios.spark_reader import SparkReader
from tests.services.brief_java import SPARK_CONF
from tests.services.kafka_cluster import KafkaCluster
from tests.services.waiting import wait_until
from tierd.pipeline import RunHistory, RunReport

pytestmark = pytest.mark.service("kafka")

KEYS, VALUE_BYTES = 40, 300
SEGMENT_BYTES = 8_192
RECORD_BYTES = VALUE_BYTES + 20
RUN_DEADLINE_S = 240.0
GRACE = "30s"  # a reading takes a second or two
_PAUSE_S = 1.0  # between two rounds of a reader
REFUSALS = (
    *("is not in the tier", "is in neither tier"),
    *("the broker is replacing segments", "whose grace (expire.grace) is over"),
)
"""What readers are told of offsets that are only held yet, amidst the broker's own work, and when they are too slow."""
WHOLE, CUT = "whole", "cut"  # the broker keeps the first in its log, cleaned, and only the end of the second
_CLEANED = {
    "min.cleanable.dirty.ratio": "0.5",
    "segment.ms": "1000",
    "file.delete.delay.ms": "60000",  # default of Kafka; a shorter time may delete tombstones before a reader sees them
}
TOPICS = {
    WHOLE: _CLEANED | {"cleanup.policy": "compact"},
    CUT: _CLEANED
    | {
        "cleanup.policy": "compact,delete",
        "retention.ms": "10000",
        "min.cleanable.dirty.ratio": "0.99",  # records merged into the first segment keep all of it from retention
    },
}
BROKER = {
    "log.cleaner.backoff.ms": "3000",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
}
SETTINGS: Settings = {
    "topics": {
        "include": list(TOPICS),
        "defaults": {
            "cleanup_policy": "compact",
            "delete_retention": "2s",
            "min_cleanable_dirty_ratio": 0.05,
            "segment_bytes": "64KiB",
        },
    },
    "expire": {"interval": "500ms", "grace": GRACE},
    "pipeline": {
        "enabled": True,
        "schedule": "* * * * *",
        "driver_memory": "512MiB",
        "audit_bytes": 0,
        "nice": 0,
        "io_class": "none",
        "spark_conf": SPARK_CONF,
    },
}


@pytest.fixture
def broker(make_broker: MakeBroker) -> KafkaCluster:
    broker = make_broker("4.3.1", properties=BROKER)
    for name, configs in TOPICS.items():
        broker.create_topic(name, segment_bytes=SEGMENT_BYTES, configs=configs)
    return broker


@pytest.fixture
def tierd(make_installation: MakeInstallation, broker: KafkaCluster) -> Installation:
    return make_installation(broker.log_dirs_of(1), settings=SETTINGS)


def test_readers_see_the_whole_topic_at_any_time_of_its_scheduled_compaction(
    broker: KafkaCluster, tierd: Installation, tmp_path: Path
) -> None:
    readings: dict[str, list[Reading]] = {topic: [] for topic in TOPICS}
    with tierd.daemon() as daemon, SparkReader(tierd.config_file, tmp_path / "spark") as spark:
        with KeyedTraffic(broker, list(TOPICS), keys=KEYS, value_bytes=VALUE_BYTES) as traffic:
            readers = [
                reading_on(broker, "tierd cat", lambda topic: seen_by_cat(tierd, topic), readings),
                reading_on(broker, "Spark", spark.read, readings),
            ]
            with readers[0], readers[1]:
                daemon.wait_until(
                    lambda: was_cleaned(broker) and was_cut(broker),
                    what="the broker's own cleaning",
                    deadline_s=RUN_DEADLINE_S,
                )
                daemon.wait_until(
                    lambda: "schedule" in triggers(tierd), what="a run by the clock", deadline_s=RUN_DEADLINE_S
                )
                for runs in (2, 3):
                    run_now(daemon, tierd, at_least=runs)
        daemon.wait_copied({f"{topic}-0": broker.base_offsets(topic, 0)[-1] - 1 for topic in TOPICS})
        daemon.wait_until(lambda: is_done(tierd), what="a run that has nothing to do", deadline_s=RUN_DEADLINE_S)
        for topic in TOPICS:
            journal = traffic.journal(topic)
            for reading in readings[topic]:
                assert_consistent(reading, journal)
            assert {reading.what for reading in readings[topic]} == {"tierd cat", "Spark"}
            end = broker.end_offset(topic, 0)
            assert_consistent(Reading("Spark at the end", spark.read(topic), end), journal)
            assert_consistent(Reading("tierd cat at the end", seen_by_cat(tierd, topic), end), journal)
            assert sum(len(sent.value or b"") for sent in journal.values()) > 5 * KEYS * RECORD_BYTES, (
                "compaction continued"
            )
            assert readable_bytes(tierd, topic) < 2 * KEYS * RECORD_BYTES, "the size is bounded by the live keys"
        daemon.wait_until(
            lambda: all(stored_bytes(tierd, topic) < 2 * KEYS * RECORD_BYTES for topic in TOPICS),
            what="the end of the grace of replaced segments",
            deadline_s=60,
        )
    verified = tierd.tierd("verify", "--deep")
    assert verified.exit_code == 0, verified.output


def good_runs(tierd: Installation) -> list[RunReport]:
    """Return the runs that replaced a segment. Copies of segments merged by the broker may interfere."""
    runs = RunHistory(tierd.state_dir).read()
    problems = [problem for run in runs for problem in run.problems]
    assert all("found by no reader any more" in problem for problem in problems), problems
    assert not [run for run in runs if run.outcome.is_problem and not run.problems], runs
    return [run for run in runs if run.tally.groups_replaced]


def triggers(tierd: Installation) -> set[str]:
    return {run.trigger for run in good_runs(tierd)}


def run_now(daemon: Daemon, tierd: Installation, *, at_least: int) -> None:
    """Request a run, unless a scheduled one was faster."""
    if len(good_runs(tierd)) >= at_least:
        return
    # The history has the outcome; another run may be active already.
    tierd.tierd("compact", "--once", deadline_s=RUN_DEADLINE_S)
    daemon.wait_until(
        lambda: len(good_runs(tierd)) >= at_least and daemon.status()["pipeline"]["running"] is None,
        what=f"run {at_least}",
        deadline_s=RUN_DEADLINE_S,
    )


def is_done(tierd: Installation) -> bool:
    """Request a run, if none is active; return True if no work was left."""
    ended = tierd.tierd("compact", "--once", "--json", deadline_s=RUN_DEADLINE_S)
    return ended.exit_code == 0 and ended.json()["outcome"] == "nothing_due"


def was_cleaned(broker: KafkaCluster) -> bool:
    """Return True if the cleaner has merged segments of a log: a distance of bases exceeds the room of a segment."""
    bases = broker.base_offsets(WHOLE, 0)
    return any(b - a > 2 * SEGMENT_BYTES / RECORD_BYTES for a, b in pairwise(bases))


def was_cut(broker: KafkaCluster) -> bool:
    return broker.base_offsets(CUT, 0)[0] > 0


def readable_bytes(tierd: Installation, topic: str) -> int:
    listed = tierd.segments(f"{topic}-0")
    return sum(segment["size_bytes"] for segment in listed if segment["state"] == "COPY_SEGMENT_FINISHED")


def stored_bytes(tierd: Installation, topic: str) -> int:
    size_bytes = 0
    for log in tierd.store_dir.rglob("*.log"):
        if f"{topic}-" in str(log.parent):
            with contextlib.suppress(FileNotFoundError):  # expiration continues meanwhile
                size_bytes += log.stat().st_size
    return size_bytes


def seen_by_cat(tierd: Installation, topic: str) -> list[SeenRecord]:
    records = tierd.cat(f"{topic}-0", "--committed")
    return [SeenRecord(r["offset"], _decoded(r["key"]), _decoded(r["value"])) for r in records]


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@contextmanager
def reading_on(
    broker: KafkaCluster, what: str, read: Callable[[str], list[SeenRecord]], into: dict[str, list[Reading]]
) -> Iterator[None]:
    """Read both topics in turns until the context ends; a failing reader fails the test."""
    end, failures = threading.Event(), []

    def go_on() -> None:
        try:
            while not end.wait(_PAUSE_S):
                for topic, readings in into.items():
                    try:
                        records = read(topic)
                    except AssertionError as refused:  # never a hole
                        if not any(refusal in str(refused) for refusal in REFUSALS):
                            raise
                    else:
                        readings.append(Reading(what, records, broker.end_offset(topic, 0)))
        except BaseException as error:  # noqa: BLE001 - raised by the thread that joins this one
            failures.append(error)

    thread = threading.Thread(target=go_on, name=what, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(60)
    wait_until(lambda: not thread.is_alive(), what=f"the end of {what}", deadline_s=60)
    if failures:
        raise failures[0]
