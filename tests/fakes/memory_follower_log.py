"""MemoryFollowerLog: a follower's log in memory, with the rules of the log room that a follower relies on."""

from dataclasses import dataclass
from pathlib import Path

from tierd.errors import CorruptRecordError, LogDirOfflineError
from tierd.kernels import crc32c
from tierd.model import Lineage
from tierd.replication.follower.rules.log_facts import FollowerLogFacts, LogChange, LogChangedError, LogMatch
from tierd.replication.follower.rules.record_runs import LeaderBatches, read_batches


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One batch: its offsets, both inclusive, its leader epoch and its bytes."""

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes


class MemoryFollowerLog:
    """A log that changes at once. ``change`` is for code without an event loop, ``apply`` for shells."""

    def __init__(self, *, is_compacted: bool = False, max_append_bytes: int = 1 << 20) -> None:
        self.batches: list[StoredBatch] = []
        self.lineage = Lineage()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.cleaned_offset = 0
        self.is_online = True
        self.changes: list[LogChange] = []
        self.aside: list[tuple[StoredBatch, ...]] = []
        self._is_compacted = is_compacted
        self._max_append_bytes = max_append_bytes

    @property
    def facts(self) -> FollowerLogFacts:
        return FollowerLogFacts(
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=self.high_watermark,
            lineage=self.lineage,
            is_compacted=self._is_compacted,
            max_append_bytes=self._max_append_bytes,
        )

    @property
    def content(self) -> bytes:
        """Return the bytes of all batches."""
        return b"".join(batch.data for batch in self.batches)

    async def apply(self, change: LogChange) -> None:
        self.change(change)

    async def copy_aside(self, offset: int) -> Path | None:
        kept = tuple(each for each in self.batches if each.last_offset >= offset)
        if not kept:
            return None
        self.aside.append(kept)
        return Path("aside")

    async def cleaned_to(self) -> int:
        return self.cleaned_offset

    def start_before(self, offset: int, size_bytes: int) -> int:
        start = self.log_start_offset
        for each in reversed(self.batches):
            if each.base_offset < offset:
                start, size_bytes = each.base_offset, size_bytes - len(each.data)
                if size_bytes <= 0:
                    break
        return max(start, self.log_start_offset)

    async def compare(self, records: LeaderBatches) -> LogMatch:
        return self.match(records)

    def match(self, records: LeaderBatches) -> LogMatch:
        """Compare batches of the leader as ``compare`` does; a cleaner removes whole batches here."""
        records.check_sums()
        end = min(records.next_offset, self.log_end_offset)
        own = {each.base_offset: each for each in self.batches}
        own_end = self.batches[-1].last_offset + 1 if self.batches else self.log_start_offset
        agrees = False
        for header in records.headers:
            mine = own.get(header.base_offset)
            if mine is not None and mine.data == records.data[header.position : header.end_position]:
                agrees = True
                continue
            crossed = (
                each.base_offset
                for each in self.batches
                if each.base_offset <= header.last_offset and each.last_offset >= header.base_offset
            )
            differs_at = next(crossed, None)
            is_gap = not self._is_compacted or header.last_offset >= max(own_end, self.log_start_offset)
            if differs_at is None and is_gap and header.base_offset < self.log_end_offset:
                differs_at = max(header.base_offset, self.log_start_offset)
            if differs_at is not None:
                return LogMatch(end, agrees=agrees, differs_at=differs_at)
        return LogMatch(end, agrees=agrees)

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))

    def change(self, change: LogChange) -> None:
        """Carry out a change as ``ServiceFollowerLog.apply`` does."""
        if not self.is_online:
            raise LogDirOfflineError("the log dir is offline")
        self.changes.append(change)
        if change.truncate_to is not None:
            self._truncate(change.truncate_to)
            return
        expected_end = change.expected_end
        if change.restart_at is not None:
            self._restart(change.restart_at)
            expected_end = change.restart_at
        if self.log_end_offset != expected_end:
            raise LogChangedError("the log has another end")
        for run in change.records:
            self._append(bytes(run))
        if change.high_watermark is not None:
            self.set_high_watermark(change.high_watermark)
        if change.log_start_offset is not None:
            assert change.log_start_offset <= self.high_watermark, "a log start above the high watermark is illegal"
            self._raise_start(change.log_start_offset)
        if change.records:
            assert self.log_end_offset == change.end_offset

    def _append(self, run: bytes) -> None:
        found = read_batches([run])
        for header in found.headers:
            data = run[header.position : header.end_position]
            if crc32c(data[header.crc_start :]) != header.crc:
                raise CorruptRecordError("log", header.position, "wrong checksum")
        for header in found.headers:
            assert header.base_offset >= self.log_end_offset, "an append below the log end"
            data = run[header.position : header.end_position]
            epoch = header.partition_leader_epoch
            self.batches.append(StoredBatch(header.base_offset, header.last_offset, epoch, data))
            self.lineage = self.lineage.assign(epoch=epoch, start_offset=header.base_offset)
            self.log_end_offset = header.last_offset + 1

    def _truncate(self, offset: int) -> None:
        if offset >= self.log_end_offset:
            self.lineage = self.lineage.truncated_from_end(self.log_end_offset)
            return
        if offset < self.log_start_offset:
            self._restart(offset)
            return
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.lineage = self.lineage.truncated_from_end(offset)
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)

    def _restart(self, offset: int) -> None:
        self.batches, self.lineage = [], Lineage()
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset

    def _raise_start(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.last_offset >= offset]
        self.log_start_offset = max(self.log_start_offset, offset)
        self.lineage = self.lineage.truncated_from_start(offset)
