"""LogCleaner: cleans the compacted logs of one log dir, the dirtiest first, one at a time (log-format 9).

::

    every 15 s (``log_cleaner.backoff_ms``), and at once after a round:
      measure every compacted log (its writer) ─► the dirtiest that is due ─► CleaningRound
      rounds in a thread of their own; their first step and each replacement by the log's writer
      all groups replaced ─► cleaner-offset-checkpoint

A log whose round fails stays uncleaned until the next start, and ``uncleanable`` has its error; its retention goes on.
A log whose output finds no room on the disk waits five minutes, and other logs are cleaned meanwhile.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import structlog

from tierd.clock import Clock
from tierd.errors import LogDirOfflineError, TierError
from tierd.log.cleaning.cleanable_log import SegmentGroup
from tierd.log.cleaning.cleaning_control import CleaningControl, Throttle
from tierd.log.cleaning.cleaning_round import CleaningRound, MeasuredLog, measure_log
from tierd.log.cleaning.round_rewriter import StartRewriting
from tierd.log.dirs.log_manager import LogManager
from tierd.log.log_errors import (
    CleaningAbortedError,
    CleaningNoSpaceError,
    LogBusyError,
    LogClosedError,
    LogTimeoutError,
)
from tierd.log.log_writer import LogWriter
from tierd.log.partition.unified_log import UnifiedLog
from tierd.model import TopicPartition
from tierd.tasks import wait_all

_LOG = structlog.get_logger(__name__)
_T = TypeVar("_T")
_PASSING = (CleaningAbortedError, LogBusyError, LogClosedError, LogTimeoutError)
_NO_SPACE_PAUSE_S: Final = 300.0


@dataclass(slots=True, kw_only=True)
class CleanerStatistics:
    """Counters of the cleaner of one log dir, or the sum of several, since the start.

    Attributes:
        rounds: rounds that ended with a checkpoint.
        aborted: rounds that ended early, and begin again.
        failed: rounds that ended with an error; such a log is not cleaned again before the next start.
        bytes_read: bytes of the segments that were rewritten.
        bytes_written: bytes of the segments that rounds wrote.
        max_dirty_ratio: largest dirty ratio of a log at the last measurement.
    """

    rounds: int = 0
    aborted: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    max_dirty_ratio: float = 0.0


class LogCleaner:
    """The cleaner of one log dir; for one event loop.

    Attributes:
        statistics: since the start.
        uncleanable: the logs that are not cleaned before the next start, with the error.
    """

    def __init__(
        self,
        log_dir: Path,
        manager: LogManager,
        writers: Mapping[TopicPartition, LogWriter[UnifiedLog]],
        start: StartRewriting,
        *,
        clock: Clock,
        throttle: Throttle,
    ) -> None:
        """Prepare.

        Args:
            log_dir: whose logs are cleaned.
            manager: keeps the checkpoint.
            writers: of all logs; looked at again for every round.
            start: makes the rewriter of a round.
            clock: for delete horizons, ages and the rate.
            throttle: of all rounds, also of other log dirs.
        """
        self.statistics = CleanerStatistics()
        self.uncleanable: dict[TopicPartition, str] = {}
        self._log_dir = log_dir
        self._manager = manager
        self._writers = writers
        self._start = start
        self._clock = clock
        self._throttle = throttle
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"log-clean {log_dir}")
        self._paused_until_s: dict[TopicPartition, float] = {}
        self._running: tuple[TopicPartition, CleaningControl] | None = None
        self._has_ended = asyncio.Event()
        self._has_ended.set()

    @property
    def cleaned_now(self) -> TopicPartition | None:
        """Return the log that a round is under way for; None without one."""
        return None if self._running is None else self._running[0]

    async def clean_dirtiest(self) -> bool:
        """Clean the dirtiest log that is due; return if a round came to its end, so that another may be due."""
        candidates = [(writer, measured) for writer in self._candidates() if (measured := await self._measure(writer))]
        ratios = [measured.cleanable.dirty_ratio for _, measured in candidates]
        self.statistics.max_dirty_ratio = max(ratios, default=0.0)
        due = [each for each in candidates if self._is_due(*each)]
        if not due:
            return False
        writer, _ = max(due, key=lambda each: each[1].cleanable.dirty_ratio)
        return await self._clean(writer)

    async def end_round(self, partition: TopicPartition | None = None, *, within_s: float) -> None:
        """End the round over ``partition``, or any, early; return when no thread works on it any more.

        Raises:
            LogTimeoutError: it did not end in time.
        """
        if self._running is None or partition not in (None, self._running[0]):
            return
        self._running[1].abort()
        try:
            async with asyncio.timeout(within_s):
                await self._has_ended.wait()
        except TimeoutError as error:
            raise LogTimeoutError(
                f"{partition}: the cleaner did not let go in time", remedy="look at the disk"
            ) from error

    def forget(self, partition: TopicPartition) -> None:
        """Note that a log was deleted; a new log of the same partition is cleaned again."""
        self.uncleanable.pop(partition, None)
        self._paused_until_s.pop(partition, None)

    def close(self) -> None:
        """Let the thread go."""
        if self._running is not None:
            self._running[1].abort()
        self._thread.shutdown(wait=False)

    def _candidates(self) -> list[LogWriter[UnifiedLog]]:
        return [
            writer
            for partition, writer in self._writers.items()
            if writer.log.directory.parent == self._log_dir
            and writer.log.config.is_compacted
            and partition not in self.uncleanable
        ]

    def _is_due(self, writer: LogWriter[UnifiedLog], measured: MeasuredLog) -> bool:
        paused_until_s = self._paused_until_s.get(writer.log.topic_partition, 0.0)
        return self._clock.monotonic_s() >= paused_until_s and measured.cleanable.is_due(writer.log.config)

    async def _measure(self, writer: LogWriter[UnifiedLog]) -> MeasuredLog | None:
        """Measure a log; None when that is not possible now. A checkpoint that lies outside of it is written anew."""
        partition, now_ms = writer.log.topic_partition, self._clock.now_ms()
        known = self._manager.cleaner_offset(partition)
        try:
            measured = await writer.run(
                lambda log: log.apply(lambda state: measure_log(state, checkpointed_offset=known, now_ms=now_ms))
            )
            if measured.cleanable.is_checkpoint_wrong:
                await self._store_cleaner_offset(partition, measured.cleanable.first_dirty_offset)
        except LogDirOfflineError:
            return None
        except _PASSING as error:
            _LOG.warning("log_not_measured", **self._where(partition), error=str(error))
            return None
        except TierError as error:
            self._mark_uncleanable(partition, error)
            return None
        return measured

    async def _clean(self, writer: LogWriter[UnifiedLog]) -> bool:
        partition = writer.log.topic_partition
        control = CleaningControl(str(partition), clock=self._clock, throttle=self._throttle)
        self._running = partition, control
        self._has_ended.clear()
        try:
            await self._run_round(writer, control)
        except LogDirOfflineError as error:
            _LOG.warning("log_not_cleaned", **self._where(partition), error=str(error))
            return False
        except CleaningNoSpaceError as error:
            self.statistics.aborted += 1
            self._paused_until_s[partition] = self._clock.monotonic_s() + _NO_SPACE_PAUSE_S
            _LOG.warning("log_cleaning_without_space", **self._where(partition), error=str(error), remedy=error.remedy)
            return False
        except _PASSING as error:
            self.statistics.aborted += 1
            _LOG.info("log_cleaning_aborted", **self._where(partition), error=str(error))
            return False
        except Exception as error:  # noqa: BLE001  one log that cannot be cleaned must not keep the others from it
            self._mark_uncleanable(partition, error)
            return True
        finally:
            self._running = None
            self._has_ended.set()
        return True

    async def _run_round(self, writer: LogWriter[UnifiedLog], control: CleaningControl) -> None:
        partition, begun_s = writer.log.topic_partition, self._clock.monotonic_s()
        known = self._manager.cleaner_offset(partition)
        begun = await writer.run(lambda log: self._begin(log, known, control))
        await self._in_thread(begun.map_keys)
        for group in begun.groups():
            await self._clean_group(writer, begun, group)
        if self._manager.cleaner_offset(partition) == known:  # or a truncation lowered it, and it stays low
            await self._store_cleaner_offset(partition, begun.end_offset)
        self.statistics.rounds += 1
        _LOG.info(
            "log_cleaned",
            **self._where(partition),
            cleaned_to=begun.end_offset,
            bytes_read=begun.bytes_read,
            bytes_written=begun.bytes_written,
            duration_ms=round((self._clock.monotonic_s() - begun_s) * 1000),
        )

    def _begin(self, log: UnifiedLog, known: int | None, control: CleaningControl) -> CleaningRound:
        now_ms = self._clock.now_ms()
        return log.apply(
            lambda state: CleaningRound(
                state,
                measure_log(state, checkpointed_offset=known, now_ms=now_ms),
                start=self._start,
                control=control,
                now_ms=now_ms,
            )
        )

    async def _clean_group(self, writer: LogWriter[UnifiedLog], begun: CleaningRound, group: SegmentGroup) -> None:
        read, written = begun.bytes_read, begun.bytes_written
        output = await self._in_thread(lambda: begun.rewrite(group))
        await writer.run(lambda log: log.apply(lambda _: begun.replace(group, output, now_ms=self._clock.now_ms())))
        self.statistics.bytes_read += begun.bytes_read - read
        self.statistics.bytes_written += begun.bytes_written - written

    async def _store_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        await self._in_thread(lambda: self._manager.set_cleaner_offset(partition, offset))

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        """Run ``call`` in the cleaner's thread; cancelled, return only when the thread is done with it."""
        running = asyncio.get_running_loop().run_in_executor(self._thread, call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if self._running is not None:
                self._running[1].abort()
            await wait_all([running])
            raise

    def _where(self, partition: TopicPartition) -> dict[str, str]:
        return {"partition": str(partition), "log_dir": str(self._log_dir)}

    def _mark_uncleanable(self, partition: TopicPartition, error: Exception) -> None:
        self.statistics.failed += 1
        self.uncleanable[partition] = str(error)
        _LOG.error(
            "log_uncleanable",
            **self._where(partition),
            error=str(error),
            remedy="run tierd inspect on its directory, repair it, then start again; retention goes on meanwhile",
            exc_info=not isinstance(error, TierError),
        )
