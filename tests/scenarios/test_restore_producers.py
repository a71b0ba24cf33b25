"""Real brokers: producers go on over a restore without a gap, and those of a lost cluster lose nothing in the next."""

import base64
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.scenarios.broker_complaints import complaints
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Installation
from tests.services.kafka_cluster import KafkaCluster, RecordProducer
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_records import ConsumedRecord, SentRecord, random_records
from tests.services.waiting import wait_until

pytestmark = pytest.mark.service("kafka")

SEGMENT_BYTES = 16_384
BURST = 40
IDEMPOTENT, TRANSACTIONAL, GROWN = "idempotent", "transactional", "grown"
LOST = ((IDEMPOTENT, 0), (TRANSACTIONAL, 0), (GROWN, 0), (GROWN, 1))
SHORT = ("short", 0)  # each of its producers sends one burst
KEPT = (*LOST, SHORT)
UNKNOWN_PRODUCERS = ("OutOfOrderSequence", "UnknownProducerId")


class Sessions:
    """Two producers that stay open while the broker is down, and what they have sent.

    Attributes:
        sent: values of the records outside of aborted transactions, in order, by topic and partition.
    """

    def __init__(self, idempotent: RecordProducer, transactional: RecordProducer, *, seed: int) -> None:
        self.sent: dict[tuple[str, int], list[bytes]] = {each: [] for each in LOST}
        self._idempotent = idempotent
        self._transactional = transactional
        self._random = Random(seed)
        self._aborts = False
        self._transactions = 0

    def send(self) -> None:
        """Send a burst to every partition; every other transaction aborts. All of it is acknowledged at the end."""
        for partition in ((IDEMPOTENT, 0), (GROWN, 0), (GROWN, 1)):
            records = self._records()
            self._idempotent.send(*partition, records)
            self.sent[partition] += [record.value or b"" for record in records]
        self._idempotent.flush()
        self._aborts = not self._aborts
        records = self._records()
        with self._transactional.transaction(commit=not self._aborts):
            self._transactional.send(TRANSACTIONAL, 0, records)
        self._transactions += 1
        if not self._aborts:
            self.sent[TRANSACTIONAL, 0] += [record.value or b"" for record in records]

    def wait_decided(self, broker: KafkaCluster, *, start: int = 0) -> None:
        """Wait until the marker of the last transaction is in the log, which began at ``start``."""
        end = start + self._transactions * (BURST + 1)
        wait_until(lambda: broker.end_offset(TRANSACTIONAL, 0) == end, what=f"a log end of {end}", deadline_s=30)

    def _records(self) -> list[SentRecord]:
        now_ms = int(time.time() * 1000)
        return [
            SentRecord(key=None, value=self._random.randbytes(300).hex().encode(), timestamp_ms=now_ms)
            for _ in range(BURST)
        ]


@contextmanager
def open_sessions(broker: KafkaCluster, *, seed: int) -> Iterator[Sessions]:
    with ExitStack() as stack:
        idempotent = stack.enter_context(broker.producer(idempotent=True))
        transactional = stack.enter_context(broker.producer(transactional_id="payments"))
        yield Sessions(idempotent, transactional, seed=seed)


def values_of(records: Sequence[ConsumedRecord]) -> list[bytes]:
    """Return the values of consumed records."""
    return [base64.b64decode(record["value"] or "") for record in records]


def restored(tierd: Installation, *arguments: str) -> dict[str, dict[str, Any]]:
    """Restore partitions and return the outcome of each."""
    ended = tierd.ask("restore", *arguments, "--yes", "--json")
    assert ended.exit_code == 0, ended.output
    return {outcome["partition"]: outcome for outcome in ended.json()["restored"]}


def rolled(broker: KafkaCluster) -> dict[str, int]:
    """Return the last offset of the newest rolled segment of every partition."""
    return {f"{topic}-{number}": broker.base_offsets(topic, number)[-1] - 1 for topic, number in KEPT}


def lose_rolled_segments(directory: Path) -> int:
    """Remove every file of a partition but the active segment, as a disk with bad sectors loses them."""
    *old, active = sorted(directory.glob("*.log"))
    for file in directory.iterdir():
        if file.stem.isdigit() and file.stem != active.stem:
            file.unlink()
    return len(old)


def send_idempotent(broker: KafkaCluster, *, seed: int) -> None:
    """Send a burst to the topic of short producers, with a producer of its own."""
    with broker.producer(idempotent=True) as producer:
        producer.send(*SHORT, random_records(Random(seed), BURST, now_ms=int(time.time() * 1000)))


def fill_with_short_producers(broker: KafkaCluster) -> None:
    """Write with producers whose ids a new cluster issues again; commit and abort transactions."""
    for seed in range(3):
        send_idempotent(broker, seed=seed)
    with broker.producer(transactional_id="refunds") as producer:
        for seed in range(6):
            with producer.transaction(commit=seed % 2 == 0):
                producer.send(*SHORT, random_records(Random(seed), BURST, now_ms=int(time.time() * 1000)))
    for seed in count(9):
        send_idempotent(broker, seed=seed)
        if len(broker.base_offsets(*SHORT)) >= 4:
            break


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_producers_go_on_over_a_restore_and_lose_nothing_in_a_new_cluster(
    version: str, kafka_cluster: MakeCluster, make_installation: MakeInstallation
) -> None:
    old = kafka_cluster(nodes=1, version=version)
    (log_dir,) = old.log_dirs_of(1)
    for topic, partitions in ((IDEMPOTENT, 1), (TRANSACTIONAL, 1), (GROWN, 2), (SHORT[0], 1)):
        old.create_topic(topic, partitions=partitions, segment_bytes=SEGMENT_BYTES)
    tierd = make_installation([log_dir])
    names = [f"{topic}-{number}" for topic, number in LOST]
    fill_with_short_producers(old)
    with open_sessions(old, seed=15) as sessions:
        while min(len(old.base_offsets(*each)) for each in LOST) < 4:
            sessions.send()
        old.add_partitions(GROWN, 4)
        wait_until(lambda: old.partition_dir(GROWN, 3) is not None, what="the new partitions", deadline_s=30)
        with tierd.daemon() as daemon:
            daemon.wait_copied(rolled(old))
        sessions.wait_decided(old)
        ends = {each: old.end_offset(*each) for each in LOST}
        everything = old.consume_all(LOST)
        old.stop(1)
        assert all(lose_rolled_segments(log_dir / name) >= 3 for name in names)

        outcomes = restored(
            tierd, "partition", *names, "--into", str(log_dir), "--mode", "last-copy", "--retention", "-1"
        )

        assert {name: outcome["log_end_offset"] for name, outcome in outcomes.items()} == {
            f"{topic}-{number}": end for (topic, number), end in ends.items()
        }
        old.start(1)
        assert old.consume_all(LOST) == everything
        for _ in range(3):
            sessions.send()  # the same producers, ids, epochs and sequences
        sessions.wait_decided(old)
    after, committed = old.consume_all(LOST), old.consume_all(LOST, committed=True)
    for each, end in ends.items():
        offsets = [record["offset"] for record in after[each]]
        assert offsets[: len(everything[each])] == [record["offset"] for record in everything[each]]
        assert end in offsets, f"{each}: the first record after the restore is not at the next offset"
        assert values_of(committed[each]) == sessions.sent[each], each
    assert complaints(log_dir.parent / "node1" / "server.log", *UNKNOWN_PRODUCERS) == []
    with tierd.daemon() as daemon:
        daemon.wait_copied(rolled(old))
    come_back_in_a_new_cluster(old, tierd, kafka_cluster, version)


def come_back_in_a_new_cluster(
    old: KafkaCluster, tierd: Installation, kafka_cluster: MakeCluster, version: str
) -> None:
    """Lose the cluster, import its topics into a new one, and let its producers write there.

    The new cluster issues producer ids from the beginning again, so that they are those of the data.
    """
    tier_ends = {each: tierd.frontier(f"{each[0]}-{each[1]}") + 1 for each in KEPT}
    committed = old.consume_all(KEPT, committed=True)
    old.stop(1)
    new = kafka_cluster(nodes=1, version=version)
    (log_dir,) = new.log_dirs_of(1)
    # Two partitions of the grown topic have nothing in the tier.
    for topic, partitions in ((IDEMPOTENT, 1), (TRANSACTIONAL, 1), (GROWN, 4), (SHORT[0], 1)):
        new.create_topic(topic, partitions=partitions, segment_bytes=SEGMENT_BYTES)
    new.stop(1)
    names = [f"{topic}-{number}" for topic, number in KEPT]

    outcomes = restored(tierd, "partition", *names, "--into", str(log_dir), "--mode", "import", "--retention", "-1")

    if version == "3.9.2":  # the broker reads the short producers from the batches then, as after a crash
        for path in (log_dir / "short-0").glob("*.snapshot"):
            path.unlink()
    new.start(1)
    ends = {each: outcomes[f"{each[0]}-{each[1]}"]["end_offset"] for each in KEPT}
    assert all(ends[each] == tier_ends[each] or outcomes[f"{each[0]}-{each[1]}"]["dropped"] for each in KEPT)
    kept = {each: [record for record in committed[each] if record["offset"] < ends[each]] for each in KEPT}
    imported = new.consume_all(KEPT)
    for each, records in kept.items():
        assert len(records) >= BURST
        assert [without_epoch(record) for record in imported[each]] == [without_epoch(record) for record in records]
    with open_sessions(new, seed=16) as sessions:
        for _ in range(4):
            sessions.send()
        sessions.wait_decided(new, start=outcomes[f"{TRANSACTIONAL}-0"]["log_end_offset"])
    after = new.consume_all(LOST, committed=True)
    for each in LOST:
        assert values_of(after[each]) == values_of(kept[each]) + sessions.sent[each], each
    short_producers_come_back(new, end_offset=outcomes["short-0"]["log_end_offset"], kept=len(kept[SHORT]))
    with new.producer(idempotent=True) as producer:
        producer.send(GROWN, 3, random_records(Random(1), BURST, now_ms=int(time.time() * 1000)))
    assert new.end_offset(GROWN, 3) == BURST
    assert complaints(log_dir.parent / "node1" / "server.log", *UNKNOWN_PRODUCERS) == []


def short_producers_come_back(new: KafkaCluster, *, end_offset: int, kept: int) -> None:
    """Send with producers whose ids are those of the data, and count what the broker takes."""
    assert new.end_offset(*SHORT) == end_offset
    for seed in range(4):
        send_idempotent(new, seed=seed)
        assert new.end_offset(*SHORT) == end_offset + (seed + 1) * BURST
    with new.producer(transactional_id="refunds") as producer, producer.transaction(commit=True):
        producer.send(*SHORT, random_records(Random(1), BURST, now_ms=int(time.time() * 1000)))
    after = new.consume_all([SHORT], committed=True)[SHORT]
    assert len(after) == kept + 5 * BURST


def without_epoch(record: ConsumedRecord) -> ConsumedRecord:
    return {**record, "leaderEpoch": 0}
