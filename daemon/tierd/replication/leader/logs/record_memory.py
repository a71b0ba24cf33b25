"""Memory of push replication: records that the queues of several replicas share, and the budget that they count in.

The records of an append are charged once when the first queue takes them, and returned when the last one releases them.
A request that is on its way holds them too, until its answer or the end of its connection: the transport may still read
them. Each pusher is charged for what its queues and requests hold, once per append as well.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from tierd.errors import CorruptRecordError
from tierd.kernels import crc32c

_START: Final = Struct(">qiib6xi")  # base offset, length, leader epoch, magic, last offset delta
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_LENGTH_END: Final = 12  # what the length does not count
_HEADER_BYTES: Final = 61
_CRC_START: Final = 21


class MemoryRecords(NamedTuple):
    """Batches of one append, as they are in the leader's log. The bytes never change: no view of a reused buffer."""

    data: bytes
    next_offset: int
    """Log end offset of the leader after the append."""


class BatchBounds(NamedTuple):
    """Place of one batch in the bytes of an append."""

    position: int
    end_position: int
    base_offset: int
    next_offset: int
    leader_epoch: int


def batch_bounds(data: bytes, position: int = 0) -> Iterator[BatchBounds]:
    """Yield the bounds of the batches from the one at byte ``position`` on.

    Raises:
        CorruptRecordError: a batch is not of magic 2, or is incomplete.
    """
    while position < len(data):
        batch = batch_at(data, position)
        yield batch
        position = batch.end_position


def batch_at(data: bytes, position: int) -> BatchBounds:
    """Return the bounds of the batch at byte ``position``.

    Raises:
        CorruptRecordError: it is not of magic 2, or is incomplete.
    """
    size = len(data)
    if size - position < _HEADER_BYTES:
        raise CorruptRecordError("records to push", position, f"{size - position} bytes are no batch")
    base_offset, length, epoch, magic, delta = _START.unpack_from(data, position)
    end = position + _LENGTH_END + length
    if magic != 2 or length < _HEADER_BYTES - _LENGTH_END or end > size:
        raise CorruptRecordError("records to push", position, f"no whole batch: magic {magic}, length {length}")
    return BatchBounds(position, end, base_offset, base_offset + delta + 1, epoch)


def has_intact_checksums(data: bytes) -> bool:
    """Return True if each batch has the CRC-32C that its header names."""
    view = memoryview(data)
    for batch in batch_bounds(data):
        (crc,) = _CRC.unpack_from(data, batch.position + _CRC_AT)
        if crc32c(view[batch.position + _CRC_START : batch.end_position]) != crc:
            return False
    return True


class PushMemoryBudget:
    """Bytes that push replication holds, in total and per pusher.

    Attributes:
        used_bytes: invariant: 0 <= used_bytes <= cap_bytes.
        peak_bytes: largest ``used_bytes`` so far.
        soft_limit_hits: how often the use rose above the soft mark.
        faulty_releases: releases of records that were not held: bugs.
    """

    SOFT_FRACTION: Final = 0.75

    def __init__(self, cap_bytes: int, pusher_cap_bytes: int, *, is_strict: bool = False) -> None:
        """Begin empty. With ``is_strict``, a faulty release raises ``AssertionError``."""
        self.cap_bytes = cap_bytes
        self.pusher_cap_bytes = pusher_cap_bytes
        self.used_bytes = 0
        self.peak_bytes = 0
        self.soft_limit_hits = 0
        self.faulty_releases = 0
        self._is_strict = is_strict
        self._by_pusher: dict[int, int] = {}

    def pusher_bytes(self, pusher: int) -> int:
        """Return the bytes that the queues and requests of ``pusher`` hold."""
        return self._by_pusher.get(pusher, 0)

    def fits(self, size_bytes: int, pushers: Iterable[int]) -> bool:
        """Return True if an append of this size fits the total, and fits each of ``pushers``."""
        if self.used_bytes + size_bytes > self.cap_bytes:
            return False
        return all(self.fits_pusher(size_bytes, pusher) for pusher in pushers)

    def fits_pusher(self, size_bytes: int, pusher: int) -> bool:
        """Return True if an append of this size fits what ``pusher`` may hold."""
        return self.pusher_bytes(pusher) + size_bytes <= self.pusher_cap_bytes

    @property
    def is_above_soft_mark(self) -> bool:
        """Return True if no new session should begin."""
        return self.used_bytes > self.SOFT_FRACTION * self.cap_bytes

    def charge(self, size_bytes: int, pusher: int, *, is_first: bool) -> None:
        """Count bytes for ``pusher``, and for the total if they are held for the first time."""
        self._by_pusher[pusher] = self.pusher_bytes(pusher) + size_bytes
        if is_first:
            was_above = self.is_above_soft_mark
            self.used_bytes += size_bytes
            self.peak_bytes = max(self.peak_bytes, self.used_bytes)
            self.soft_limit_hits += self.is_above_soft_mark and not was_above

    def refund(self, size_bytes: int, pusher: int, *, is_last: bool) -> None:
        """Give back what ``charge`` counted."""
        self._by_pusher[pusher] = self.pusher_bytes(pusher) - size_bytes
        if is_last:
            self.used_bytes -= size_bytes

    def report_faulty_release(self) -> None:
        """Count the release of records that were not held.

        Raises:
            AssertionError: the budget is strict.
        """
        self.faulty_releases += 1
        if self._is_strict:
            raise AssertionError("records are released that were not held")


class RecordsRef:
    """Bytes of one append or chunk, with a count of holders for each pusher."""

    __slots__ = ("_budget", "_holders", "data", "size_bytes")

    def __init__(self, budget: PushMemoryBudget, data: bytes, size_bytes: int | None = None) -> None:
        """Describe the bytes; nothing is charged before the first ``retain``. ``size_bytes`` reserves without bytes."""
        self.data = data
        self.size_bytes = len(data) if size_bytes is None else size_bytes
        self._budget = budget
        self._holders: dict[int, int] = {}

    def retain(self, pusher: int) -> None:
        """Add a holder of ``pusher``."""
        count = self._holders.get(pusher, 0)
        if not count:
            self._budget.charge(self.size_bytes, pusher, is_first=not self._holders)
        self._holders[pusher] = count + 1

    def release(self, pusher: int) -> None:
        """Remove a holder of ``pusher``."""
        count = self._holders.get(pusher, 0)
        if not count:
            self._budget.report_faulty_release()
        elif count > 1:
            self._holders[pusher] = count - 1
        else:
            del self._holders[pusher]
            self._budget.refund(self.size_bytes, pusher, is_last=not self._holders)
