"""The follower's log as values: facts that a decision is made from, and the change that a decision asks for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Protocol

from tierd.errors import LogError
from tierd.log import BatchHeader
from tierd.model import EpochEndOffset, Lineage
from tierd.replication.follower.rules.record_runs import LeaderBatches
from tierd.replication.model.messages import RecordBytes

NO_EPOCH: Final = -1


class LogChangedError(LogError):
    """The log end is not the one that a change was decided for; nothing was done."""

    retriable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerLogFacts:
    """A follower's log at one moment.

    Attributes:
        log_end_offset: offset of the next record.
        high_watermark: as the follower knows it.
        lineage: leader epochs of the records.
        is_compacted: the log cleaner removes records below the high watermark.
        max_append_bytes: size of one append that the log takes; a single batch may be larger.
    """

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    lineage: Lineage
    is_compacted: bool = False
    max_append_bytes: int = 1 << 30

    @property
    def is_empty(self) -> bool:
        """Return True if the log has no record."""
        return self.log_start_offset >= self.log_end_offset

    @property
    def last_epoch(self) -> int:
        """Return the leader epoch of the last record; -1 for an empty log, whose earlier records prove nothing."""
        return NO_EPOCH if self.is_empty else self.epoch_of(self.log_end_offset - 1)

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch that wrote ``offset``; -1 when the lineage does not show it."""
        epoch = self.lineage.epoch_for(offset)
        return NO_EPOCH if epoch is None else epoch

    def end_offset_for(self, epoch: int) -> EpochEndOffset:
        """Return the end of ``epoch`` in this log, as ``Lineage.end_offset_for``."""
        return self.lineage.end_offset_for(epoch, log_end_offset=self.log_end_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChange:
    """One change of a follower's log. The steps are done in the order of the fields; None leaves a step out.

    Attributes:
        expected_end: log end offset that the change was decided for; another one makes the change void.
        end_offset: log end offset after the change.
        truncate_to: new log end.
        restart_at: offset at which the log begins again, without any record.
        records: runs of whole batches. Each run is one append.
        headers: of all batches of a single run, with positions relative to it; None if the log has to parse them.
        high_watermark: the log clips it to its bounds.
        log_start_offset: never above the high watermark after the change.
    """

    expected_end: int
    end_offset: int
    truncate_to: int | None = None
    restart_at: int | None = None
    records: tuple[RecordBytes, ...] = ()
    headers: Sequence[BatchHeader] | None = None
    high_watermark: int | None = None
    log_start_offset: int | None = None

    @property
    def needs_disk(self) -> bool:
        """Return True if the change is more than another high watermark."""
        return bool(
            self.records
            or self.truncate_to is not None
            or self.restart_at is not None
            or self.log_start_offset is not None
        )

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the records."""
        return sum(map(len, self.records))


@dataclass(frozen=True, slots=True)
class LogMatch:
    """Result of a comparison of batches of the leader with the follower's log, at the offsets that both have.

    Attributes:
        next_offset: exclusive end of what was compared.
        agrees: some record of the leader's is the same in the log, below the first difference.
        differs_at: base offset of the log's batch with the first record that differs; None without a difference.
    """

    next_offset: int
    agrees: bool
    differs_at: int | None = None


class FollowerLog(Protocol):
    """Log of a followed partition, for its one follower. Reads of the properties do no I/O."""

    @property
    def facts(self) -> FollowerLogFacts:
        """Return the log as it is now."""

    @property
    def is_online(self) -> bool:
        """Return True until the disk of the log fails."""

    async def apply(self, change: LogChange) -> None:
        """Carry out a change that needs the disk.

        Raises:
            LogChangedError: the log end is not the expected one; nothing was done.
            LogError: the change was refused or the disk failed.
        """

    async def copy_aside(self, offset: int) -> Path | None:
        """Keep copies of the records from ``offset`` on in a directory that only a person removes; return it.

        None where there are no records.

        Raises:
            CorruptRecordError: a batch is damaged.
            LogError: they could not be copied.
        """

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark, clipped to the bounds of the log."""

    def start_before(self, offset: int, size_bytes: int) -> int:
        """Return an offset about ``size_bytes`` below ``offset``, lower than it; the log start where less is there."""

    async def compare(self, records: LeaderBatches) -> LogMatch:
        """Compare batches of the leader, one at least, with this log. A log cleaner may have removed records of either.

        Raises:
            BadRecordsError: a batch of the leader has a wrong checksum.
            LogError: the log cannot be read, or records of either side cannot be decoded.
        """

    async def cleaned_to(self) -> int:
        """Return the exclusive end of what the log cleaner may have changed; 0 when it has changed nothing.

        Raises:
            LogError: no answer in time.
        """
