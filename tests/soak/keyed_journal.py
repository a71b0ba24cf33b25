"""Oracle of a compacted topic: the records that a reader must find at any stage of a compaction."""

import base64
import threading
from collections.abc import Sequence

from tests.scenarios.journal import Record
from tests.services.kafka_journalled import AbortedTransaction, Sent
from tests.services.kafka_records import SentRecord


class KeyedJournal:
    """Records of one compacted partition as their producer knows them. Every record carries a number of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged: dict[int, SentRecord] = {}
        self._in_doubt: dict[bytes, SentRecord] = {}
        self._aborted: list[AbortedTransaction] = []

    def note(self, sent: Sent) -> None:
        """Add the outcome of one burst."""
        with self._lock:
            self._acknowledged.update(sent.acknowledged)
            self._doubt(sent.failed)
            self._aborted += sent.aborted

    def doubt_abort_at(self, at_ms: int) -> None:
        """Take the transaction that was aborted at that moment for one of unknown outcome: it has no marker."""
        with self._lock:
            for transaction in self._aborted:
                if transaction.was_open_at(at_ms):
                    self._doubt(transaction.records)

    def assert_agrees(self, found: Sequence[Record], *, end: int, what: str) -> None:
        """Fail unless committed ``found`` is a reading that a log in the middle of its compaction may give.

        ``end`` is exclusive: the reading must have everything below it. Offsets ascend. Every record was acknowledged
        at its offset, or its outcome is unknown to its producer. Of every key the last record read is the latest one
        below ``end``. Two exceptions are right: a later record of the key took its place during the reading, or the
        latest one is a tombstone and the reading has no record of the key.
        """
        with self._lock:
            acknowledged, in_doubt = dict(self._acknowledged), dict(self._in_doubt)
        offsets = [int(record["offset"]) for record in found]
        assert offsets == sorted(set(offsets)), f"{what}: offsets do not ascend"
        for record in found:
            sent = acknowledged.get(record["offset"]) or in_doubt.get(_found_number(record))
            assert sent is not None, f"{what}: no producer committed the record at {record['offset']}"
            assert (sent.key, sent.value) == _key_value(record), f"{what}: the record at {record['offset']} differs"
        seen = {_key_value(record)[0]: int(record["offset"]) for record in found}
        doubted = {sent.key for sent in in_doubt.values()}
        superseded = {sent.key for offset, sent in acknowledged.items() if offset >= end} | doubted
        for key, offset in _latest(acknowledged, end).items():
            if seen.get(key, -1) >= offset or key in superseded:
                continue
            is_gone = acknowledged[offset].value is None and key not in seen
            assert is_gone, f"{what}: the latest record of {key!r} is at {offset}, the reading has {seen.get(key)}"

    def _doubt(self, records: Sequence[SentRecord]) -> None:
        self._in_doubt.update({_number(record): record for record in records})


def _latest(acknowledged: dict[int, SentRecord], end: int) -> dict[bytes | None, int]:
    return {acknowledged[offset].key: offset for offset in sorted(acknowledged) if offset < end}


def _number(record: SentRecord) -> bytes:
    (_, number), *_ = record.headers
    assert number is not None
    return number


def _found_number(record: Record) -> bytes:
    return base64.b64decode(record["headers"][0][1])


def _key_value(record: Record) -> tuple[bytes | None, bytes | None]:
    key, value = (None if record[name] is None else base64.b64decode(record[name]) for name in ("key", "value"))
    return key, value
