"""Records as their producers know them, the oracle of stories with faults: acknowledged, aborted, or in doubt."""

import base64
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.services.kafka_journalled import AbortedTransaction
from tests.services.kafka_records import SentRecord

Record = Mapping[str, Any]


@dataclass(slots=True)
class PartitionJournal:
    """Records of one incarnation of one partition; values are unique and identify the records."""

    acknowledged: dict[int, SentRecord] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    in_doubt: set[str] = field(default_factory=set)


class Journal:
    """Journal that producers fill from their threads, and the story reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: defaultdict[tuple[str, int], PartitionJournal] = defaultdict(PartitionJournal)

    def acknowledge(self, topic: str, partition: int, records: Mapping[int, SentRecord]) -> None:
        """Note records that the cluster holds for good, each at its offset."""
        with self._lock:
            self._partitions[topic, partition].acknowledged.update(records)

    def abort(self, topic: str, partition: int, transactions: Sequence[AbortedTransaction]) -> None:
        """Note transactions that no reader of committed records may see."""
        with self._lock:
            self._partitions[topic, partition].aborted.extend(transactions)

    def doubt_abort_at(self, topic: str, partition: int, at_ms: int) -> None:
        """Take the transaction that was aborted at that moment for one of unknown outcome: it has no marker."""
        for transaction in self.of(topic, partition).aborted:
            if transaction.was_open_at(at_ms):
                self.doubt(topic, partition, transaction.records)

    def doubt(self, topic: str, partition: int, records: Sequence[SentRecord]) -> None:
        """Note records of unknown outcome: each may exist once."""
        with self._lock:
            self._partitions[topic, partition].in_doubt.update(map(encoded_value, records))

    def forget(self, topic: str) -> None:
        """Forget a deleted topic; a topic created under its name is another one."""
        with self._lock:
            for key in [key for key in self._partitions if key[0] == topic]:
                del self._partitions[key]

    def lose(self, topic: str, partition: int, *, from_offset: int) -> None:
        """Forget the acknowledged records at and above ``from_offset``: the only replica lost them."""
        with self._lock:
            known = self._partitions[topic, partition]
            known.acknowledged = {offset: sent for offset, sent in known.acknowledged.items() if offset < from_offset}

    def of(self, topic: str, partition: int) -> PartitionJournal:
        """Return a copy of the present journal of a partition; producers continue meanwhile."""
        with self._lock:
            known = self._partitions[topic, partition]
            return PartitionJournal(dict(known.acknowledged), list(known.aborted), set(known.in_doubt))


def encoded_value(record: SentRecord) -> str:
    """Return the value as ``tierd cat --json`` prints it."""
    assert record.value is not None, "a journalled record has a value"
    return base64.b64encode(record.value).decode()


def assert_agrees(records: Sequence[Record], journal: PartitionJournal, *, start: int, end: int, what: str) -> None:
    """Fail unless committed ``records`` from ``start`` to before ``end`` agree with the journal.

    Every acknowledged record exists, unchanged and at its offset; other records were in doubt; no record exists twice.
    """
    offsets = [record["offset"] for record in records]
    assert offsets == sorted(set(offsets)), f"{what}: offsets are not ascending"
    found = {record["offset"]: record for record in records if start <= record["offset"] < end}
    wanted = {offset: sent for offset, sent in journal.acknowledged.items() if start <= offset < end}
    missing = sorted(set(wanted) - set(found))
    assert not missing, f"{what}: {len(missing)} acknowledged records are missing, first {missing[:5]}"
    values = [record["value"] for record in found.values()]
    assert len(values) == len(set(values)), f"{what}: a record exists twice"
    for offset, record in found.items():
        if offset in wanted:
            assert _as_sent(record) == _as_sent(wanted[offset]), f"{what}: the record at {offset} differs"
        else:
            assert record["value"] in journal.in_doubt, f"{what}: the record at {offset} was not sent, or was aborted"


def _as_sent(record: Record | SentRecord) -> tuple[object, ...]:
    if isinstance(record, SentRecord):
        key = None if record.key is None else base64.b64encode(record.key).decode()
        headers = [[n, None if v is None else base64.b64encode(v).decode()] for n, v in record.headers]
        return key, encoded_value(record), record.timestamp_ms, headers
    return record["key"], record["value"], record["timestamp"], [list(pair) for pair in record["headers"]]
