"""KeyComparison: the latest record per key in a copy and in the tier, after a log cleaner has been at work in either.

A record that the copy lacks is explained if a later record of either log has its key, or if its transaction was aborted
or is not decided yet. So is a tombstone, which a cleaner removes after ``delete.retention.ms``, unless the copy still
has an older value of the key: the key would come back. Memory holds only the keys that are not explained yet.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from tierd.log import ControlRecordType, RecordBatch

MAX_KEYS = 1_000_000


class _Lacking(NamedTuple):
    """Record that the copy lacks; ``producer_id`` is that of a transaction that is not decided, else -1."""

    offset: int
    producer_id: int


class KeyComparison:
    """Keys whose latest record the copy may lack. The records come in ascending order, group by group.

    Attributes:
        is_too_large: more keys waited for an explanation than fit in memory, and the comparison ended.
    """

    def __init__(self, *, max_keys: int = MAX_KEYS) -> None:
        """Begin without a record; ``max_keys`` bounds the keys in memory."""
        self.is_too_large = False
        self._values: dict[bytes, _Lacking] = {}
        self._tombstones: dict[bytes, _Lacking] = {}
        self._max_keys = max_keys

    @property
    def is_waiting(self) -> bool:
        """Return True if a later record may still explain something."""
        return bool(self._values or self._tombstones)

    @property
    def has_deleted(self) -> bool:
        """Return True if the copy lacks the deletion of a key."""
        return any(each.producer_id < 0 for each in self._tombstones.values())

    @property
    def unexplained(self) -> list[int]:
        """Return the offsets of the records that the copy lacks without an explanation, ascending."""
        return sorted(_decided(self._values))

    def lacks(self, key: bytes, offset: int, *, is_tombstone: bool, producer_id: int = -1) -> None:
        """Take in a record of the tier that the copy lacks; ``producer_id`` is -1 outside a transaction."""
        if self.is_too_large:
            return
        waiting = self._tombstones if is_tombstone else self._values
        waiting[_digest(key)] = _Lacking(offset, producer_id)
        if len(self._values) + len(self._tombstones) > self._max_keys:
            self.is_too_large = True
            self._values.clear()
            self._tombstones.clear()

    def follow(self, batch: RecordBatch) -> None:
        """Take in any batch of either log, after the calls of ``lacks`` for the records of its group.

        Raises:
            InvalidRecordError: its records cannot be decoded.
        """
        if batch.is_control:
            self._decide(batch)
            return
        for record in batch.records():
            if record.key is None:
                continue
            key = _digest(record.key)
            for waiting in (self._values, self._tombstones):
                if key in waiting and waiting[key].offset < record.offset:
                    del waiting[key]

    def revived(self, copied: Iterable[RecordBatch]) -> int | None:
        """Return the first offset of a record of the copy that brings a deleted key back; None without one.

        Args:
            copied: all batches of the copy, after all records of both logs came.

        Raises:
            InvalidRecordError: records cannot be decoded.
        """
        found: dict[bytes, _Lacking] = {}
        for batch in copied:
            if batch.is_control:
                if batch.control_type() is ControlRecordType.ABORT:
                    found = {key: each for key, each in found.items() if each.producer_id != batch.producer_id}
                continue
            producer_id = batch.producer_id if batch.is_transactional else -1
            for record in batch.records():
                if record.key is None or not self._is_deleted_after(key := _digest(record.key), record.offset):
                    continue
                if record.value is None:
                    found.pop(key, None)
                else:
                    found[key] = _Lacking(record.offset, producer_id)
        return min((each.offset for each in found.values()), default=None)

    def _is_deleted_after(self, key: bytes, offset: int) -> bool:
        deleted = self._tombstones.get(key)
        return deleted is not None and deleted.producer_id < 0 and offset < deleted.offset

    def _decide(self, marker: RecordBatch) -> None:
        """End the transaction of a producer: what was aborted needs no explanation."""
        kind = marker.control_type()
        for waiting in (self._values, self._tombstones):
            ended = [
                (key, each)
                for key, each in waiting.items()
                if each.producer_id == marker.producer_id >= 0 and each.offset < marker.base_offset
            ]
            for key, each in ended:
                if kind is ControlRecordType.ABORT:
                    del waiting[key]
                else:
                    waiting[key] = each._replace(producer_id=-1)


def _decided(waiting: dict[bytes, _Lacking]) -> Iterator[int]:
    return (each.offset for each in waiting.values() if each.producer_id < 0)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()
