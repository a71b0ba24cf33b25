"""A real Kafka Streams application on directories that tierd restored. The expected result is what the application
itself wrote, and what it restores from its changelogs alone.
"""

import asyncio
import base64
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.restore.streams.states import Content, read_store, restore
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster, fetched_or_skip
from tests.services.kafka_records import SentRecord
from tests.services.kafka_streams import RestoredRange, StreamsApplication, require_kafka_streams
from tierd.log import Record
from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType

pytestmark = pytest.mark.service("kafka")

VERSIONS = ("3.9.2", "4.3.1")
MINUTE_MS = 60_000
WORDS = 17
LATEST_VALUES = b"\xff" * 8


def stores_of(application_id: str) -> dict[str, StreamsStore]:
    """Return the stores of the application, as ``StreamsHarness.java`` declares them."""
    ten_minutes = {"retention_ms": 10 * MINUTE_MS, "segment_interval_ms": 5 * MINUTE_MS}
    facts: dict[str, tuple[StreamsStoreType, dict[str, int]]] = {
        "counts": (StreamsStoreType.TIMESTAMPED_KEY_VALUE, {}),
        "plain": (StreamsStoreType.KEY_VALUE, {}),
        "windows": (StreamsStoreType.TIMESTAMPED_WINDOW, ten_minutes),
        "marks": (StreamsStoreType.WINDOW, ten_minutes),
        "sessions": (StreamsStoreType.SESSION, ten_minutes),
        "versions": (
            StreamsStoreType.VERSIONED,
            {"retention_ms": 5 * MINUTE_MS, "segment_interval_ms": 2 * MINUTE_MS},
        ),
    }
    return {
        name: StreamsStore(
            name=name, changelog=f"{application_id}-{name}-changelog", subtopology=0, type=kind, **retention
        )
        for name, (kind, retention) in facts.items()
    }


def input_records(first: int, count: int, *, start_ms: int) -> list[SentRecord]:
    """Return words in order of time but for some late ones, six seconds apart; some of them delete."""
    return [
        SentRecord(
            key=b"word-%d" % (number * number % WORDS),
            value=b"-" if number % 9 == 0 else b"value-%d" % number,
            timestamp_ms=start_ms + number * 6_000 - (45_000 if number % 5 == 0 else 0),
        )
        for number in range(first, first + count)
    ]


def consumed(kafka: KafkaCluster, topic: str) -> list[Record]:
    """Return the committed records of a changelog, as a consumer gets them."""

    def decoded(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    return [
        Record(row["offset"], row["timestamp"], row["timestampType"], decoded(row["key"]), decoded(row["value"]), (), 0)
        for row in kafka.consume_all([(topic, 0)], committed=True)[topic, 0]
    ]


def contents(state_dir: Path, application_id: str) -> dict[str, Content]:
    """Return the raw contents of every store of a stopped application."""
    task = state_dir / application_id / "0_0"
    return {name: read_store(task / store.directory) for name, store in stores_of(application_id).items()}


def without_history(content: dict[str, Content]) -> dict[str, Content]:
    """Leave the older versions of the versioned store out.

    When Streams restores, versions that expire within a batch of records are never written, so that they depend on
    how the records are cut into batches.
    """
    versions = {
        name: {key: value for key, value in rows.items() if key.startswith(LATEST_VALUES)}
        for name, rows in content["versions"].items()
    }
    return content | {"versions": versions}


def without_numbers(content: dict[str, Content]) -> dict[str, object]:
    """Leave out the sequence numbers of a window store with duplicates.

    Streams counts twice: for the store, and for the changelog. A delete is counted for the changelog only.
    """
    marks = {name: sorted((key[:-4], value) for key, value in rows.items()) for name, rows in content["marks"].items()}
    return {**content, "marks": marks}


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(request: pytest.FixtureRequest, shared_kafka: MakeCluster) -> KafkaCluster:
    fetched_or_skip(lambda: require_kafka_streams(request.param), "Kafka Streams")
    return shared_kafka(nodes=1, version=request.param)


@pytest.fixture(scope="module")
def application(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamsApplication]:
    log = tmp_path_factory.mktemp("streams") / "streams.log"
    with StreamsApplication(kafka.bootstrap, version=kafka.version, log=log) as running:
        yield running


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])
def test_application_on_restored_stores_restores_only_the_tail(
    kafka: KafkaCluster, application: StreamsApplication, tmp_path: Path, exactly_once: bool
) -> None:
    application_id = "exactly" if exactly_once else "atleast"
    stores = stores_of(application_id)
    topic = f"words-{application_id}"
    kafka.create_topic(topic)
    start_ms = time.time_ns() // 1_000_000 - 40 * MINUTE_MS
    own, restored, empty = (tmp_path / name for name in ("own", "restored", "empty"))

    def send(first: int, count: int) -> None:
        with kafka.producer() as producer:
            producer.send(topic, 0, input_records(first, count, start_ms=start_ms))

    def run(state_dir: Path) -> dict[str, RestoredRange]:
        return application.run(application_id, topic, state_dir, exactly_once=exactly_once)

    send(0, 240)
    run(own)
    restored_to = {}
    for name, store in stores.items():
        changelog = consumed(kafka, store.changelog)
        restored_to[name] = changelog[-1].offset
        asyncio.run(restore(store, changelog, restored, application_id=application_id))
    assert without_numbers(contents(restored, application_id)) == without_numbers(contents(own, application_id))

    send(240, 30)
    run(own)
    tail = run(restored)
    whole = run(empty)

    assert set(tail) == set(stores)
    for name, store in stores.items():
        later = [r for r in consumed(kafka, store.changelog) if r.offset > restored_to[name]]
        assert later
        assert (tail[name].start_offset, tail[name].record_count) == (restored_to[name] + 1, len(later))
        assert whole[name].start_offset == 0
    assert without_history(contents(restored, application_id)) == without_history(contents(empty, application_id))


def test_store_without_records_costs_a_task_of_streams_4_3_its_restored_stores(
    kafka: KafkaCluster, application: StreamsApplication, tmp_path: Path
) -> None:
    idle = StreamsStore(name="idle", changelog="idle-idle-changelog", subtopology=0, type=StreamsStoreType.KEY_VALUE)
    stores = stores_of("idle") | {"idle": idle}
    kafka.create_topic("words-idle")
    with kafka.producer() as producer:
        producer.send("words-idle", 0, input_records(0, 30, start_ms=time.time_ns() // 1_000_000 - 10 * MINUTE_MS))
    application.run("idle", "words-idle", tmp_path / "own", exactly_once=True)
    for store in stores.values():
        changelog = consumed(kafka, store.changelog)
        asyncio.run(restore(store, changelog, tmp_path / "restored", application_id="idle"))

    again = application.run("idle", "words-idle", tmp_path / "restored", exactly_once=True)

    counted = {name: restored.record_count for name, restored in again.items()}
    if kafka.version.startswith("3."):
        assert counted == dict.fromkeys(stores, 0)
    else:
        assert counted == {name: len(consumed(kafka, store.changelog)) for name, store in stores.items()}
