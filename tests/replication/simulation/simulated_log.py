"""SimulatedLog: one partition's log on the disk of a node; SimulatedLeaderLog: the same log while the node leads.

The log outlives the processes of its node. Every append is compared with the history: a log is always a path of it.
"""

from collections.abc import Callable

from tests.fakes.memory_follower_log import MemoryFollowerLog
from tests.replication.leader.push_story import HeldRange
from tests.replication.simulation.history import NO_BATCH, History, KnownBatch
from tierd.errors import OffsetOutOfRangeError
from tierd.model import Lineage, TopicIdPartition
from tierd.replication.follower.rules.log_facts import LogChange
from tierd.replication.leader.logs.leader_log import LeaderLogListener


class SimulatedLog(MemoryFollowerLog):
    """Log of a partition on one disk.

    Attributes:
        flushed_offset: exclusive end of what a loss of power leaves.
        checkpointed_watermark: high watermark that the next process of the node finds.
        appends: number of batches that were ever appended.
        is_begun_again: the follower has dropped every record, and its leader may not know of it.
    """

    def __init__(self, history: History, *, is_compacted: bool) -> None:
        super().__init__(is_compacted=is_compacted, max_append_bytes=900)
        self.history = history
        self.flushed_offset = 0
        self.checkpointed_watermark = 0
        self.appends = 0
        self.is_begun_again = False
        self.is_compacted = is_compacted
        self._appended = 0
        self._tombstones: dict[int, float] = {}

    @property
    def tip(self) -> int:
        """Return the uid of the last batch; ``NO_BATCH`` for a log without one."""
        return self.history.of(self.batches[-1].data).uid if self.batches else NO_BATCH

    def known(self) -> list[KnownBatch]:
        """Return the batches."""
        return [self.history.of(batch.data) for batch in self.batches]

    def latest_by_key(self, below: int) -> dict[int, int]:
        """Return the last batch of each key below an offset; keys that were deleted are left out."""
        latest = {batch.key: batch for batch in self.known() if batch.next_offset <= below}
        return {key: batch.uid for key, batch in latest.items() if not batch.is_tombstone}

    def change(self, change: LogChange) -> None:
        super().change(change)
        self.changes.clear()
        self._check_appended()
        self.is_begun_again |= change.restart_at is not None and not change.records
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)

    def set_high_watermark(self, offset: int) -> None:
        assert self.log_start_offset <= offset <= self.log_end_offset, (
            f"watermark {offset} outside of the log, {self.log_start_offset} to {self.log_end_offset}"
        )
        self.high_watermark = offset

    def append_new(self, *, count: int, epoch: int, key: int, is_tombstone: bool, size: int) -> KnownBatch:
        """Append a new batch, as a leader does."""
        batch = self.history.new_batch(
            parent=self.tip,
            base_offset=self.log_end_offset,
            count=count,
            epoch=epoch,
            key=key,
            is_tombstone=is_tombstone,
            size=size,
        )
        self._append(batch.data)
        self._check_appended()
        return batch

    def copy_of(self, other: "SimulatedLog", end_offset: int) -> None:
        """Become a copy of another log below an offset: the replication between brokers."""
        self.batches = [each for each in other.batches if each.last_offset < end_offset]
        self.lineage = other.lineage.truncated_from_end(end_offset)
        self.log_start_offset = other.log_start_offset
        self.log_end_offset = end_offset
        self.high_watermark = min(other.high_watermark, end_offset)
        self.cleaned_offset = min(other.cleaned_offset, end_offset)

    def batch_end_at_or_above(self, offset: int) -> int:
        """Return the first end of a batch that is not below ``offset``; the log end if there is none."""
        ends = (each.last_offset + 1 for each in self.batches if each.last_offset + 1 >= offset)
        return next(ends, self.log_end_offset)

    def lose_tail(self, offset: int) -> None:
        """Lose the batches that end above ``offset``, as a host that loses its power may."""
        ends = [each.last_offset + 1 for each in self.batches if each.last_offset + 1 <= offset]
        self._truncate(max(ends, default=self.log_start_offset))
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
        self.checkpointed_watermark = min(self.checkpointed_watermark, self.log_end_offset)

    def restart(self) -> None:
        """Become what the next process finds: the watermark is that of the checkpoint."""
        self.high_watermark = max(self.log_start_offset, min(self.checkpointed_watermark, self.log_end_offset))

    def clean(self, *, now_s: float, delete_retention_s: float) -> None:
        """Do a round of the cleaner: below the watermark, each key keeps its latest batch. What it read is flushed.

        A tombstone goes in a round that comes ``delete_retention_s`` after the first one that found it.
        """
        below = self.high_watermark
        latest = {batch.key: batch.uid for batch in self.known() if batch.next_offset <= below}
        kept = []
        for stored in self.batches:
            batch = self.history.of(stored.data)
            if batch.next_offset <= below and stored is not self.batches[-1]:
                found_s = self._tombstones.setdefault(batch.uid, now_s) if batch.is_tombstone else now_s
                if latest[batch.key] != batch.uid or now_s - found_s > delete_retention_s:
                    continue
            kept.append(stored)
        self.batches = kept
        self.cleaned_offset = max(self.cleaned_offset, below)
        self.flushed_offset = max(self.flushed_offset, below)
        self.history.cleaned_offset = max(self.history.cleaned_offset, below)

    def _append(self, run: bytes) -> None:
        before, end = len(self.batches), self.log_end_offset
        super()._append(run)
        self._appended += len(self.batches) - before
        if not self.is_compacted:
            for stored in self.batches[before:]:
                assert stored.base_offset == end, f"a batch at {stored.base_offset} leaves a hole behind {end}"
                end = stored.last_offset + 1

    def _check_appended(self) -> None:
        """Compare the batches of a change, and the one before them, with the history.

        That is done after the whole change: where the leader's log begins above a divergence, its log start comes with
        the records, and the follower's records of the other branch are gone then.
        """
        count, self._appended = self._appended, 0
        self.appends += count
        first = max(len(self.batches) - count, 0)
        tip = self.history.of(self.batches[first - 1].data).uid if first else NO_BATCH
        for stored in self.batches[first:]:
            batch = self.history.of(stored.data)
            assert self.lineage.epoch_for(batch.next_offset - 1) == batch.epoch, f"batch {batch.uid} has another epoch"
            self._check_place(batch, tip)
            tip = batch.uid

    def _check_place(self, batch: KnownBatch, tip: int) -> None:
        if NO_BATCH in (tip, batch.parent):
            return  # retention has removed what was before
        if self.is_compacted:
            assert self.history.is_on_path(tip, batch.parent), f"batch {batch.uid} does not come after {tip}"
        else:
            assert batch.parent == tip, f"batch {batch.uid} follows {tip}, and its leader had it behind {batch.parent}"


class SimulatedLeaderLog:
    """``LeaderLog`` of a log that this process leads, in one leader epoch or several."""

    def __init__(
        self,
        partition: TopicIdPartition,
        log: SimulatedLog,
        *,
        leader_epoch: int,
        on_watermark: Callable[[], None],
        on_corruption: Callable[[], None],
    ) -> None:
        self.partition = partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.has_open_files = True
        self.is_corrupt_once = False
        self.ranges: list[HeldRange] = []
        self.on_corruption = on_corruption
        self._on_watermark = on_watermark
        self._listener: LeaderLogListener | None = None

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def lineage(self) -> Lineage:
        return self.log.lineage

    def listen(self, listener: LeaderLogListener | None) -> None:
        self._listener = listener

    def append(self, *, count: int, key: int, is_tombstone: bool, size: int) -> KnownBatch:
        """Append a new batch."""
        start = self.log_end_offset
        batch = self.log.append_new(count=count, epoch=self.leader_epoch, key=key, is_tombstone=is_tombstone, size=size)
        if self._listener is not None:
            self._listener.on_append(start, batch.data, self.log_end_offset)
        return batch

    def raise_high_watermark(self, offset: int) -> None:
        """Set a higher watermark."""
        assert self.high_watermark < offset <= self.log_end_offset, f"watermark {offset} of the leader"
        self.log.high_watermark = offset
        self._on_watermark()
        if self._listener is not None:
            self._listener.on_high_watermark(offset)

    def raise_log_start(self, offset: int) -> None:
        """Delete the records below ``offset``; the batch that holds it stays."""
        self.log._raise_start(offset)
        if self._listener is not None:
            self._listener.on_log_start_offset(offset)

    def truncate(self, offset: int, *, leader_epoch: int) -> None:
        """Become shorter: the broker was told so by another leader, and leads again in another epoch.

        Tail mode sees the end of the last batch, also where the cleaner has removed what was between it and ``offset``.
        """
        self.leader_epoch = leader_epoch
        self.log.lose_tail(offset)
        if self._listener is not None:
            self._listener.on_truncated(self.log_end_offset)

    def lose_and_grow(self, offset: int, appends: Callable[[], None]) -> None:
        """Lose the records from ``offset`` on and grow by ``appends``, before the daemon beside the broker looks."""
        self.log.lose_tail(offset)
        appends()
        if self._listener is not None:
            self._listener.on_truncated(self.log_end_offset)

    def file_records(self, from_offset: int, to_offset: int) -> HeldRange | None:
        if from_offset < to_offset and not self.has_open_files:
            return None
        if any(each.base_offset < from_offset <= each.last_offset for each in self.log.batches):
            return None
        found = [each.data for each in self.log.batches if from_offset <= each.base_offset < to_offset]
        held = CorruptibleRange(self, from_offset, to_offset, b"".join(found))
        self.ranges.append(held)
        return held

    async def read(self, offset: int, max_bytes: int) -> bytes:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(f"{offset} is not in the log", remedy="none")
        taken = b""
        for each in self.log.batches:
            if each.last_offset < offset:
                continue
            if taken and len(taken) + len(each.data) > max_bytes:
                break
            taken += each.data
        return taken


class CorruptibleRange(HeldRange):
    """File range of which one read may give a flipped bit (F20)."""

    def __init__(self, log: SimulatedLeaderLog, first_offset: int, next_offset: int, data: bytes) -> None:
        super().__init__(first_offset, next_offset, data)
        self._log = log

    async def read(self, position: int, max_bytes: int) -> bytes:
        data = await super().read(position, max_bytes)
        if self._log.is_corrupt_once and data:
            self._log.is_corrupt_once = False
            self._log.on_corruption()
            return data[:-1] + bytes([data[-1] ^ 1])
        return data
