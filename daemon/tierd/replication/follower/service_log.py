"""ServiceFollowerLog: a log of the LogService as a follower changes it (push-replication 2.10 and 2.11).

Records, high watermark and log start of a change are one call of the log's writer. The call checks the log end first: a
change whose caller was cancelled may still be carried out after the next change was decided.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from tierd.clock import Clock
from tierd.errors import CorruptRecordError, LogDirOfflineError, TierError, TierErrorCode, UnknownPartitionError
from tierd.log import (
    LogBusyError,
    LogService,
    LogTimeoutError,
    PartitionWriter,
    RecordBatch,
    UnifiedLog,
    compare_batches,
    iter_batches,
)
from tierd.model import TopicPartition
from tierd.replication.follower.rules.log_comparison import first_gap
from tierd.replication.follower.rules.log_facts import FollowerLogFacts, LogChange, LogChangedError, LogMatch
from tierd.replication.follower.rules.record_runs import LeaderBatches
from tierd.replication.model.push_error_code import PushErrorCode

_READ_BYTES: Final = 1 << 20


class ServiceFollowerLog:
    """Log of one followed partition in a log dir of tierd."""

    def __init__(
        self,
        service: LogService,
        partition: TopicPartition,
        *,
        clock: Clock,
        is_flushed_at_once: bool = False,
        has_known_policy: Callable[[], bool] = lambda: True,
    ) -> None:
        """Use the log of ``partition``.

        Args:
            service: has the log.
            partition: of the log.
            clock: for the appends.
            is_flushed_at_once: makes each append durable.
            has_known_policy: False while a log cleaner may change the leader's log, because its settings are not known.
        """
        self._service = service
        self._partition = partition
        self._clock = clock
        self._is_flushed_at_once = is_flushed_at_once
        self._has_known_policy = has_known_policy
        self._writer: PartitionWriter = service.writer(partition)

    @property
    def facts(self) -> FollowerLogFacts:
        """Return the log as it is now."""
        log = self._writer.log
        return FollowerLogFacts(
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            lineage=log.leader_epochs,
            is_compacted=log.config.is_compacted,
            max_append_bytes=log.config.segment_bytes,
        )

    @property
    def is_online(self) -> bool:
        """Return True until the disk of the log fails."""
        return self._service.is_online(self._partition)

    async def apply(self, change: LogChange) -> None:
        """Carry out a change that needs the disk.

        Raises:
            LogChangedError: the log end is not the expected one; nothing was done.
            TierError: as ``LogWriter.run``; the change may have been carried out in part.
        """
        if change.truncate_to is not None:
            await self._service.truncate_to(self._partition, change.truncate_to)
            return
        expected_end = change.expected_end
        if change.restart_at is not None:
            await self._service.truncate_fully_and_start_at(self._partition, change.restart_at)
            expected_end = change.restart_at
        await self._writer.run(partial(self._append, change=change, expected_end=expected_end))

    async def copy_aside(self, offset: int) -> Path | None:
        """Keep copies of the records from ``offset`` on in a directory that only a person removes; return it.

        None where there are no records.

        Raises:
            TierError: as ``LogService.copy_aside``.
        """
        return await self._service.copy_aside(self._partition, offset)

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark, clipped to the bounds of the log."""
        self._writer.log.update_high_watermark(offset)

    def start_before(self, offset: int, size_bytes: int) -> int:
        """Return an offset about ``size_bytes`` below ``offset``, lower than it; the log start where less is there.

        It is an estimate from the mean size of the records in the segment below ``offset``.
        """
        log = self._writer.log
        end = log.log_end_offset
        for segment in reversed(log.segments):
            if segment.base_offset < offset:
                offsets = (end - segment.base_offset) * size_bytes // max(segment.size_bytes, 1)
                return max(offset - max(offsets, 1), log.log_start_offset)
            end = segment.base_offset
        return log.log_start_offset

    async def compare(self, records: LeaderBatches) -> LogMatch:
        """Compare batches of the leader, one at least, with this log. A log cleaner may have removed records of either.

        Raises:
            BadRecordsError: a batch of the leader has a wrong checksum.
            LogError: the log cannot be read, or records of either side cannot be decoded.
        """
        may_be_cleaned = self._writer.log.config.is_compacted or not self._has_known_policy()
        return await self._writer.read(partial(_compare, theirs=records, may_be_cleaned=may_be_cleaned))

    async def cleaned_to(self) -> int:
        """Return the exclusive end of what the log cleaner may have changed; 0 when it has changed nothing.

        Raises:
            LogTimeoutError: no answer in time.
        """
        return await self._service.cleaner_offset(self._partition) or 0

    def _append(self, log: UnifiedLog, *, change: LogChange, expected_end: int) -> None:
        """Append in a thread of the writer."""
        if log.log_end_offset != expected_end:
            raise LogChangedError(f"{self._partition}: the log ends at {log.log_end_offset}, not at {expected_end}")
        now_ms = self._clock.now_ms()
        for run in change.records:
            log.append_as_follower(run, now_ms=now_ms, headers=change.headers)
        if change.high_watermark is not None:
            log.update_high_watermark(change.high_watermark)
        if change.log_start_offset is not None:
            start = min(change.log_start_offset, log.high_watermark)
            log.increment_log_start_offset(start, reason="the leader's log start offset")
        if change.records and self._is_flushed_at_once:
            log.flush(including_active=True, now_ms=now_ms)


def _compare(log: UnifiedLog, *, theirs: LeaderBatches, may_be_cleaned: bool) -> LogMatch:
    """Compare in a thread of the readers."""
    theirs.check_sums()
    start, end = max(theirs.first_offset, log.log_start_offset), min(theirs.next_offset, log.log_end_offset)
    walked = iter_batches(theirs.data, name="records of the leader", check_crc=False)
    copied = [batch for batch in walked if batch.base_offset < end]
    own = tuple(_batches(log, start, end))
    found = compare_batches(copied, own)
    gaps_from = start
    if may_be_cleaned:  # a cleaner makes gaps anywhere; behind the last record, which it keeps, it does not
        gaps_from = end if end < log.log_end_offset else own[-1].last_offset + 1 if own else start
    gap = first_gap(_spans(copied), _spans(own), start=gaps_from, end=end)
    at = min((each for each in (found.differs_at, gap) if each is not None), default=None)
    if at is None:
        return LogMatch(end, agrees=found.records > 0)
    below = compare_batches([batch for batch in copied if batch.last_offset < at], own)
    differs_at = next((batch.base_offset for batch in own if batch.base_offset <= at <= batch.last_offset), at)
    return LogMatch(end, agrees=below.records > 0, differs_at=differs_at)


def _spans(batches: Iterable[RecordBatch]) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.last_offset + 1) for batch in batches]


def _batches(log: UnifiedLog, start: int, end: int) -> Iterator[RecordBatch]:
    """Yield the batches with an offset in ``[start, end)``."""
    at = start
    while at < end:
        data = log.read(at, max_bytes=_READ_BYTES, isolation=None).records
        before = at
        for batch in iter_batches(data, name=str(log.directory)):
            if batch.base_offset >= end:
                return
            yield batch
            at = batch.last_offset + 1
        if at == before:
            return


def answer_code(error: TierError) -> PushErrorCode:
    """Return the answer to a leader whose entry could not be carried out because of ``error``."""
    match error:
        case LogDirOfflineError():
            return PushErrorCode.KAFKA_STORAGE_ERROR
        case LogBusyError():
            return PushErrorCode.FOLLOWER_BUSY
        case LogTimeoutError():
            return PushErrorCode.REQUEST_TIMED_OUT
        case CorruptRecordError():
            return PushErrorCode.CORRUPT_MESSAGE
        case UnknownPartitionError():
            return PushErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        case LogChangedError():
            return PushErrorCode.APPEND_OFFSET_MISMATCH
    if error.code is TierErrorCode.UNEXPECTED_APPEND_OFFSET:
        return PushErrorCode.APPEND_OFFSET_MISMATCH
    return PushErrorCode.INVALID_RECORD
