"""Checks after a restore from tier and standbys, and the records that the loss of the host cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from tests.scenarios.journal import Journal, PartitionJournal, assert_agrees, encoded_value
from tests.scenarios.oracle import Record
from tests.scenarios.push.loss_lab import PARTITIONS
from tests.scenarios.push.loss_traffic import COMPACTED, TRANSACTIONAL, LossTraffic, PartitionName
from tests.services.kafka_cluster import KafkaBroker


@dataclass(frozen=True, slots=True)
class Loss:
    """Cost of one loss.

    Attributes:
        lost_ms: from the first acknowledged record that did not come back to the end of the host; 0 if all came back.
        records: acknowledged records that did not come back.
        partition: of the first of them; empty without one.
    """

    lost_ms: float
    records: int
    partition: str = ""

    @classmethod
    def of(cls, traffic: LossTraffic, ends: Mapping[str, int], cut_s: float) -> "Loss":
        """Return the cost of a loss after which the partitions end at ``ends``."""
        lost = [
            (at_s, named(where))
            for where, known in traffic.acknowledged_at_s.items()
            for offset, at_s in known.items()
            if offset >= ends[named(where)] and at_s <= cut_s
        ]
        first_s, partition = min(lost, default=(cut_s, ""))
        return cls(1e3 * (cut_s - first_s), len(lost), partition)


def report(losses: Sequence[Loss]) -> str:
    """Return the percentiles of several losses, in one line."""
    found = sorted(loss.lost_ms for loss in losses)
    cuts = quantiles(found, n=100, method="inclusive") if len(found) > 1 else found * 99
    records = sum(loss.records for loss in losses)
    return (
        f"{len(found)} losses: p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms, max {found[-1]:.0f} ms; "
        f"{records} acknowledged records in all"
    )


@dataclass(frozen=True, slots=True)
class Restored:
    """Sources and result of a restore.

    Attributes:
        acknowledged: exclusive end of what a standby had at the loss, by partition.
        log_starts: offsets below which records may be deleted; without one, none may.
        ends: exclusive ends of the restored records, by the name of the directory.
    """

    acknowledged: Mapping[PartitionName, int]
    log_starts: Mapping[PartitionName, int]
    ends: Mapping[str, int]


def assert_restored(broker: KafkaBroker, journal: Journal, restored: Restored) -> None:
    """Fail unless the broker serves what the standbys had, and nothing that was aborted or undecided."""
    committed = broker.consume_all(PARTITIONS, committed=True)
    for where in PARTITIONS:
        known, end = journal.of(*where), restored.ends[named(where)]
        start = restored.log_starts.get(where, 0)
        had = restored.acknowledged[where]
        lost = [
            each
            for each in known.acknowledged
            if start <= each and end <= each and _is_decided(where, known, each, had)
        ]
        assert not lost, f"{where}: a standby had {sorted(lost)[:3]}, and the log ends at {end}"
        if where[0] == COMPACTED.name:
            _assert_latest(committed[where], known, end=end)
        else:
            assert_agrees(committed[where], known, start=start, end=end, what=named(where))
        assert broker.end_offset(*where, committed=True) == broker.end_offset(*where), f"{where}: a transaction is open"


def _is_decided(where: PartitionName, known: PartitionJournal, offset: int, had: int) -> bool:
    """Return True if a standby whose log ends at ``had`` has the record, and the marker behind its transaction."""
    end = offset + 1
    if where[0] == TRANSACTIONAL.name:
        while end in known.acknowledged:  # of the same transaction: a marker is between two
            end += 1
        end += 1
    return end <= had


def _assert_latest(found: Iterable[Record], known: PartitionJournal, *, end: int) -> None:
    """Fail unless each key has its latest acknowledged record, or a later one that was in doubt.

    A key whose latest record was lost may also have lost the one before: the broker's cleaner had removed that one when
    the standby copied the rest.
    """
    latest = {record["key"]: record for record in found}
    wanted: dict[bytes | None, int] = {}
    for offset in sorted(known.acknowledged):
        wanted[known.acknowledged[offset].key] = offset
    by_offset = {record["offset"]: record for record in latest.values()}
    for key, offset in wanted.items():
        if offset >= end:
            continue
        record = by_offset.get(offset)
        if record is None:
            doubted = [each for each in latest.values() if each["offset"] > offset and each["value"] in known.in_doubt]
            assert doubted, f"{COMPACTED.name}: the record of {key!r} at {offset} is gone"
        else:
            assert record["value"] == encoded_value(known.acknowledged[offset])


def named(where: PartitionName) -> str:
    """Return the name of a partition's directory."""
    return f"{where[0]}-{where[1]}"
