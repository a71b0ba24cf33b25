"""Records that a real consumer has read during a soak, kept after the broker deleted them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios.journal import Record
from tests.scenarios.oracle import assert_same_records
from tests.services.kafka_cluster import KafkaBroker

Partition = tuple[str, int]


@dataclass(slots=True)
class _Seen:
    """Committed records by offset, and the offset ranges [start, end) that the consumer read without a break."""

    records: dict[int, Record] = field(default_factory=dict)
    ranges: list[range] = field(default_factory=list)


class ConsumerOracle:
    """Committed records of each partition as a real consumer got them. Offsets are kept apart by incarnation."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._seen: dict[Partition, _Seen] = {}

    def observe(self, partitions: Sequence[Partition]) -> Mapping[Partition, Sequence[Record]]:
        """Read every partition from its start to its end, remember the records, and return them."""
        consumed: Mapping[Partition, Sequence[Record]] = self._broker.consume_all(partitions, committed=True)
        for partition, records in consumed.items():
            if records:
                seen = self._seen.setdefault(partition, _Seen())
                seen.records.update({record["offset"]: record for record in records})
                seen.ranges.append(range(records[0]["offset"], records[-1]["offset"] + 1))
        return consumed

    def forget(self, partition: Partition, *, from_offset: int = 0) -> None:
        """Forget the records at and above ``from_offset``: the log lost them."""
        seen = self._seen.pop(partition, _Seen())
        self._seen[partition] = _Seen(
            {offset: record for offset, record in seen.records.items() if offset < from_offset},
            [range(each.start, min(each.stop, from_offset)) for each in seen.ranges if each.start < from_offset],
        )

    def assert_agrees(self, found: Sequence[Record], partition: Partition, *, start: int, end: int, what: str) -> None:
        """Fail unless ``found`` equals the records of the consumer from ``start`` to before ``end``."""
        seen = self._seen.get(partition, _Seen())
        wanted: list[dict[str, Any]] = [
            dict(seen.records[offset]) for offset in sorted(seen.records) if start <= offset < end
        ]
        covered = [
            record
            for record in found
            if start <= record["offset"] < end and any(record["offset"] in each for each in seen.ranges)
        ]
        assert_same_records(covered, wanted, what=f"{what} against the consumer")
