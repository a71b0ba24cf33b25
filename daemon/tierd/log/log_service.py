"""LogService: the logs of a LogManager in use. It owns their writers, their periodic duties, and their orderly stop.

::

    LogService ─┬─ LogWriter per log       on threads of its log dir
                ├─ a task per log dir      housekeeping, flush.ms, retention
                ├─ LogCleaner per log dir  compaction, in a task and a thread of its own
                └─ a task for checkpoints  high watermarks; recovery points and log starts

A disk that hangs blocks the threads and the task of its own log dir, and no others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import LogError, UnknownPartitionError
from tierd.log.cleaning.cleaning_control import Throttle
from tierd.log.cleaning.round_rewriter import StartRewriting
from tierd.log.dirs.copied_records import copy_records
from tierd.log.dirs.log_manager import LogManager
from tierd.log.files.directory import partition_fields
from tierd.log.log_cleaner import CleanerStatistics, LogCleaner
from tierd.log.log_errors import LogTimeoutError
from tierd.log.log_writer import LogWriter, WriterLimits
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.log_config import MAX_LONG, LogConfig
from tierd.model import TopicPartition
from tierd.tasks import result_of, retrieve

_LOG = structlog.get_logger(__name__)
_T = TypeVar("_T")

PartitionWriter = LogWriter[UnifiedLog]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Intervals, limits and thread counts of a log service; the intervals are a broker's (log-format 11).

    Attributes:
        tick_s: interval at which a log dir's task looks for due housekeeping and due flushes (``flush.ms``).
        retention_delay_s: time from the start until the first run of retention.
        cleaner_interval_s: pause of the cleaner after it found no log that is due.
        cleaner_bytes_per_s: limit on the bytes that all cleaners together read and write; None for no limit.
        limits: limits of each writer.
        threads_per_dir: number of writing threads of a log dir, and number of its reading threads.
        start_timeout_s: limit for loading and recovering all logs.
        stop_timeout_s: limit for closing all logs, once the writers are done.
    """

    tick_s: float = 1.0
    retention_delay_s: float = 30.0
    retention_interval_s: float = 300.0
    cleaner_interval_s: float = 15.0
    cleaner_bytes_per_s: int | None = None
    high_watermark_interval_s: float = 5.0
    checkpoint_interval_s: float = 60.0
    limits: WriterLimits = field(default_factory=WriterLimits)
    threads_per_dir: int = 4
    start_timeout_s: float = 3600.0
    stop_timeout_s: float = 120.0


class LogService:
    """Service that starts its manager when it is entered and shuts the manager down when it is left.

    After the exit every log dir that has not failed was stopped cleanly, even if a cancellation came during the start
    or the stop.
    """

    def __init__(
        self, manager: LogManager, *, clock: Clock, rewriting: StartRewriting, settings: ServiceSettings | None = None
    ) -> None:
        """Prepare; ``rewriting`` has the rules of the log cleaner."""
        self._manager = manager
        self._rewriting = rewriting
        self._clock = clock
        self._settings = settings or ServiceSettings()
        self._throttle = Throttle(self._settings.cleaner_bytes_per_s)
        self._lifecycle = ThreadPoolExecutor(1, thread_name_prefix="log-manager")
        self._threads: dict[Path, tuple[ThreadPoolExecutor, ThreadPoolExecutor]] = {}
        self._writers: dict[TopicPartition, PartitionWriter] = {}
        self._changing = asyncio.Lock()  # which logs there are; a writer is never of a log that was deleted
        self._tasks = asyncio.TaskGroup()
        self._tending: list[asyncio.Task[None]] = []
        self._cleaners: dict[Path, LogCleaner] = {}

    async def __aenter__(self) -> Self:
        """Load every log, and begin to tend them.

        Raises:
            LogError: an error of ``LogManager.start``.
            LogTimeoutError: it took too long.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                await loop.run_in_executor(self._lifecycle, self._manager.start)
            for log in self._manager.logs():
                self._add_writer(log)
            await self._tasks.__aenter__()
        except BaseException as error:
            self._lifecycle.submit(self._manager.shutdown)  # when the start has ended, however it does
            self._release_threads()
            if isinstance(error, TimeoutError):
                raise LogTimeoutError("the logs were not loaded in time", remedy="look at the disks") from error
            raise
        for log_dir in self._manager.live_dirs:
            self._cleaners[log_dir] = cleaner = self._cleaner_for(log_dir)
            self._tending.append(self._tasks.create_task(self._maintain(log_dir, cleaner), name=f"tend {log_dir}"))
            self._tending.append(self._tasks.create_task(self._clean(log_dir, cleaner), name=f"clean {log_dir}"))
        self._tending.append(self._tasks.create_task(self._checkpoint(), name="checkpoint logs"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the periodic duties, finish the waiting calls, and close every log.

        Raises:
            LogTimeoutError: a disk hangs. Nothing more is written to any log; the next start recovers.
        """
        for task in self._tending:
            task.cancel()
        stopping = asyncio.create_task(self._stop())
        try:
            await self._tasks.__aexit__(kind, error, trace)
        finally:
            await result_of(stopping)  # its waits have deadlines

    def writer(self, partition: TopicPartition) -> PartitionWriter:
        """Return the writer of a partition's log. The service itself changes the log through this writer too.

        Raises:
            UnknownPartitionError: there is no such log.
        """
        found = self._writers.get(partition)
        if found is None:
            raise UnknownPartitionError(f"{partition} has no log", remedy="create it first")
        return found

    def log(self, partition: TopicPartition) -> UnifiedLog:
        """Return the log, for the calls that are safe in any thread and read no disk.

        Raises:
            UnknownPartitionError: there is no such log.
        """
        return self.writer(partition).log

    def logs(self) -> list[UnifiedLog]:
        """Return the log of every partition in a log dir that is online."""
        offline = self._manager.offline_dirs
        return [writer.log for writer in self._writers.values() if writer.log.directory.parent not in offline]

    async def get_or_create(
        self,
        partition: TopicPartition,
        *,
        topic_id: UUID | None = None,
        is_new: bool = True,
        preferred_dir: Path | None = None,
    ) -> PartitionWriter:
        """Return the writer of a partition's log; make a missing log, as ``LogManager.get_or_create`` does.

        Raises:
            LogError: an error of ``LogManager.get_or_create``.
            LogTimeoutError: no answer in time.
        """
        async with self._changing:
            log = await self._within_deadline(
                lambda: self._manager.get_or_create(
                    partition, topic_id=topic_id, is_new=is_new, preferred_dir=preferred_dir
                )
            )
            return self._writers.get(partition) or self._add_writer(log)

    async def delete(self, partition: TopicPartition) -> None:
        """Delete a log. The calls that wait for its writer are done before; the directory is removed later.

        Raises:
            UnknownPartitionError: there is no such log.
            LogError: an error of ``LogManager.delete``.
            LogTimeoutError: no answer in time.
        """
        async with self._taken_out(partition):
            await self._within_deadline(lambda: self._manager.delete(partition))

    async def set_aside(self, partition: TopicPartition) -> Path:
        """Keep the files of a log under another name, which only a person removes; return the new directory.

        The calls that wait for its writer are done before. A new log of the partition may be made afterwards.

        Raises:
            UnknownPartitionError: there is no such log.
            LogError: an error of ``LogManager.set_aside``.
            LogTimeoutError: no answer in time.
        """
        async with self._taken_out(partition):
            return await self._within_deadline(lambda: self._manager.set_aside(partition))

    async def copy_aside(self, partition: TopicPartition, offset: int) -> Path | None:
        """Keep durable copies of the records from ``offset`` on in a directory that only a person removes; return it.

        None where there are no records.

        The log stays as it is, and the caller keeps others from appending to it or cutting it meanwhile. The copies are
        those of whole batches, and a log of their own. What was copied stays there after a failure.

        Raises:
            CorruptRecordError: a batch is damaged.
            LogError: an error of ``LogManager.begin_aside``, or of a read or an append.
            LogTimeoutError: no answer in time.
        """
        writer = self.writer(partition)
        aside = await self._within_deadline(lambda: self._manager.begin_aside(partition, offset))
        if aside is None:
            return None
        while await writer.read(lambda log: copy_records(log, aside, now_ms=self._clock.now_ms())):
            pass  # about 1 MiB each, so that the deadline is not that of all
        return aside.directory

    async def truncate_to(self, partition: TopicPartition, offset: int) -> None:
        """Cut a log; then, durably, its recovery point. Raises as ``LogWriter.run``."""
        await self._end_cleaning(partition)
        await self.writer(partition).run(lambda _: self._manager.truncate_to({partition: offset}))

    async def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """Drop every record of a log and begin again at ``offset``. Raises as ``LogWriter.run``."""
        await self._end_cleaning(partition)
        await self.writer(partition).run(lambda _: self._manager.truncate_fully_and_start_at(partition, offset))

    def is_online(self, partition: TopicPartition) -> bool:
        """Return True if the partition has a log, and no disk call on its log dir has failed."""
        found = self._writers.get(partition)
        offline = self._manager.offline_dirs  # mostly none: this is asked at each append
        return found is not None and (not offline or found.log.directory.parent not in offline)

    async def cleaner_offset(self, partition: TopicPartition) -> int | None:
        """Return the exclusive end of the cleaned part of a log; None if it was never cleaned.

        Raises:
            LogTimeoutError: no answer in time.
        """
        return await self._within_deadline(lambda: self._manager.cleaner_offset(partition))

    async def reconfigure(self, config_for: Callable[[str], LogConfig]) -> None:
        """Give every log the settings that its topic has now; a log whose disk does not answer keeps those it has."""
        for partition, writer in list(self._writers.items()):
            config = config_for(partition.topic)
            if config == writer.log.config:
                continue
            try:
                if not config.is_compacted:
                    await self._end_cleaning(partition)
                await writer.run(partial(UnifiedLog.update_config, config=config))
            except LogError as error:
                remedy = "look at the disk, then reload the configuration again"
                fields = partition_fields(writer.log.directory)
                _LOG.warning("settings_not_applied", **fields, problem=str(error), remedy=remedy)

    def cleaner_statistics(self) -> CleanerStatistics:
        """Return the counters of all cleaners since the start, added up."""
        total = CleanerStatistics()
        for each in (cleaner.statistics for cleaner in self._cleaners.values()):
            total.rounds += each.rounds
            total.aborted += each.aborted
            total.failed += each.failed
            total.bytes_read += each.bytes_read
            total.bytes_written += each.bytes_written
            total.max_dirty_ratio = max(total.max_dirty_ratio, each.max_dirty_ratio)
        return total

    def uncleanable(self) -> dict[TopicPartition, str]:
        """Return the logs whose cleaning failed, each with the error; they stay uncleaned until the next start."""
        return {of: why for cleaner in self._cleaners.values() for of, why in cleaner.uncleanable.items()}

    # Duties

    async def _maintain(self, log_dir: Path, cleaner: LogCleaner) -> None:
        """Do the regular work on one log dir when it is due, for as long as the log dir is online."""
        settings, clock = self._settings, self._clock
        retention_due_s = clock.monotonic_s() + settings.retention_delay_s
        flushed_s: dict[TopicPartition, float] = {}
        retains: set[TopicPartition] = set()  # retention is due, and no round of the cleaner is to be disturbed
        while log_dir not in self._manager.offline_dirs:
            await clock.sleep(settings.tick_s)
            now_s, now_ms = clock.monotonic_s(), clock.now_ms()
            if now_s >= retention_due_s:
                retention_due_s = now_s + settings.retention_interval_s
                retains = set(self._writers)
            for partition in flushed_s.keys() - self._writers.keys():
                del flushed_s[partition]  # deleted since
            for partition, writer in list(self._writers.items()):
                log = writer.log
                if log.directory.parent != log_dir:
                    continue
                if log.is_housekeeping_due(now_ms):
                    await self._run_duty(writer, lambda log: log.housekeep(clock.now_ms()))
                if partition in retains and partition != cleaner.cleaned_now:
                    retains.discard(partition)
                    await self._run_duty(writer, lambda log: log.delete_old_segments(clock.now_ms()))
                if log.config.flush_ms < MAX_LONG:
                    since_s = flushed_s.setdefault(partition, now_s)
                    if (now_s - since_s) * 1000 >= log.config.flush_ms:
                        flushed_s[partition] = now_s
                        if log.recovery_point < log.log_end_offset:
                            await self._run_duty(writer, lambda log: log.flush(now_ms=clock.now_ms()))

    async def _clean(self, log_dir: Path, cleaner: LogCleaner) -> None:
        """Clean what is due on one log dir, for as long as it is online."""
        while log_dir not in self._manager.offline_dirs:
            if not await cleaner.clean_dirtiest():
                await self._clock.sleep(self._settings.cleaner_interval_s)

    @asynccontextmanager
    async def _taken_out(self, partition: TopicPartition) -> AsyncIterator[None]:
        """Let the writer and the cleaner of a log finish, and forget them; a new log may be made after the block."""
        await self.writer(partition).close()
        await self._end_cleaning(partition)
        async with self._changing:
            self._writers.pop(partition, None)
            for cleaner in self._cleaners.values():
                cleaner.forget(partition)
            yield

    async def _end_cleaning(self, partition: TopicPartition) -> None:
        for cleaner in self._cleaners.values():
            await cleaner.end_round(partition, within_s=self._settings.limits.deadline_s)

    async def _run_duty(self, writer: PartitionWriter, duty: Callable[[UnifiedLog], object]) -> None:
        try:
            await writer.run(duty)
        except LogError as error:  # a failing disk takes its log dir offline and ends the task; the rest is tried again
            _LOG.warning("log_duty_failed", **partition_fields(writer.log.directory), error=str(error))

    async def _checkpoint(self) -> None:
        """Write the checkpoints of all log dirs until cancelled; a log dir whose write fails goes offline."""
        settings, clock, manager = self._settings, self._clock, self._manager
        checkpoints_due_s = clock.monotonic_s() + settings.checkpoint_interval_s
        while True:
            await clock.sleep(settings.high_watermark_interval_s)
            duties: list[Callable[[], object]] = [manager.checkpoint_high_watermarks]
            if clock.monotonic_s() >= checkpoints_due_s:
                checkpoints_due_s = clock.monotonic_s() + settings.checkpoint_interval_s
                # Log starts first: below them nothing is flushed any more, whatever the recovery point says.
                duties += [
                    manager.checkpoint_log_start_offsets,
                    manager.checkpoint_recovery_points,
                    manager.remove_due_directories,
                ]
            for duty in duties:
                try:
                    await self._within_deadline(duty)
                except LogError as error:
                    _LOG.warning("log_dirs_duty_failed", error=str(error))

    # Internal

    def _add_writer(self, log: UnifiedLog) -> PartitionWriter:
        log_dir = log.directory.parent
        if log_dir not in self._threads:
            count = self._settings.threads_per_dir
            self._threads[log_dir] = (
                ThreadPoolExecutor(count, thread_name_prefix=f"log-write {log_dir}"),
                ThreadPoolExecutor(count, thread_name_prefix=f"log-read {log_dir}"),
            )
        writers, readers = self._threads[log_dir]
        self._writers[log.topic_partition] = writer = LogWriter(
            log,
            name=str(log.topic_partition),
            writers=writers,
            readers=readers,
            clock=self._clock,
            limits=self._settings.limits,
        )
        return writer

    def _cleaner_for(self, log_dir: Path) -> LogCleaner:
        return LogCleaner(
            log_dir, self._manager, self._writers, self._rewriting, clock=self._clock, throttle=self._throttle
        )

    async def _within_deadline(self, call: Callable[[], _T]) -> _T:
        """Return the answer of the manager; the call is made also if its caller is cancelled, or waits for too long.

        Otherwise a log could be without a writer and still be there.
        """
        calling = asyncio.get_running_loop().run_in_executor(self._lifecycle, call)
        calling.add_done_callback(retrieve)  # its caller may be gone
        try:
            async with asyncio.timeout(self._settings.limits.deadline_s):
                return await asyncio.shield(calling)
        except TimeoutError as error:
            raise LogTimeoutError("the log manager did not answer in time", remedy="look at the disks") from error

    async def _stop(self) -> None:
        try:
            for cleaner in self._cleaners.values():
                await cleaner.end_round(within_s=self._settings.limits.deadline_s)
            closed = await asyncio.gather(
                *(writer.close() for writer in self._writers.values()), return_exceptions=True
            )
            if hung := next((error for error in closed if isinstance(error, BaseException)), None):
                raise hung
            async with asyncio.timeout(self._settings.stop_timeout_s):
                await asyncio.get_running_loop().run_in_executor(self._lifecycle, self._manager.shutdown)
        except TimeoutError as error:
            raise LogTimeoutError("the logs were not closed in time", remedy="look at the disks") from error
        finally:
            self._release_threads()

    def _release_threads(self) -> None:
        for pool in (self._lifecycle, *(pool for pools in self._threads.values() for pool in pools)):
            pool.shutdown(wait=False)
        for cleaner in self._cleaners.values():
            cleaner.close()
