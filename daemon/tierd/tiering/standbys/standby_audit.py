"""StandbyAudit: compares the copies of standbys with the tier (``tierd verify --standby``). Reads only."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tierd.clock import Clock
from tierd.errors import LogError, OffsetOutOfRangeError, RemoteStorageError, SegmentChangedError
from tierd.log import Damage, PartitionDirectory, inspect_path
from tierd.metadata import PartitionView
from tierd.model import IsolationLevel, TopicIdPartition
from tierd.tiering.auditing.tier_findings import Finding, Severity
from tierd.tiering.reading.fetch_task import FetchTask
from tierd.tiering.reading.tiered_log import TieredLog
from tierd.tiering.standbys.batch_comparison import BatchComparison
from tierd.tiering.standbys.offset_comparison import CommonOffsets, compared, epoch_findings, offset_findings
from tierd.tiering.standbys.standby_copy import StandbyCopy, read_standby_copy

_READS: Final = 4  # of a copy whose segments are being replaced
_PAUSE_S: Final = 0.5
_ALL: Final = (1 << 63) - 1

NewFetchTask = Callable[[Callable[[], Awaitable[TieredLog]]], FetchTask]
"""Maker of a reader of one partition; its argument returns the present state of the partition."""


@dataclass(frozen=True, slots=True)
class _Read:
    """Findings of one read of a copy, and the copy; None where it cannot be read."""

    copy: StandbyCopy | None
    findings: tuple[Finding, ...] = ()


class StandbyAudit:
    """Comparison of copies with the tier. It may run beside daemons that write both: it tells faults that stay.

    Args:
        view: reads the stored metadata of a partition.
        new_task: makes a reader of one partition, from the state of its tier.
        clock: time.
    """

    def __init__(
        self, *, view: Callable[[TopicIdPartition], Awaitable[PartitionView]], new_task: NewFetchTask, clock: Clock
    ) -> None:
        self._view = view
        self._new_task = new_task
        self._clock = clock

    async def run(
        self,
        partition: TopicIdPartition,
        directories: Sequence[PartitionDirectory],
        *,
        is_compacted: bool | None,
        deep: bool,
    ) -> tuple[Finding, ...]:
        """Return the findings about the copies of one partition, a note on each included.

        Args:
            partition: the incarnation that the directories are of.
            directories: its copies.
            is_compacted: a log cleaner removes records of the topic; None where that is not known.
            deep: compare every batch, and check every batch and index of the copies.

        Raises:
            RemoteStorageError: the store does not answer; what it answers wrongly is a note.
            MetadataError: the metadata store does not answer, or is damaged.
        """
        found = await self._read(partition, directories, is_compacted=is_compacted, deep=deep)
        if all(each.severity is Severity.NOTE for each in found):
            return found
        # The copy grows, is truncated and cleaned, and the tier gets and loses segments meanwhile.
        again = await self._read(partition, directories, is_compacted=is_compacted, deep=deep)
        before = {(each.kind, each.where) for each in found}
        return tuple(each for each in again if each.severity is Severity.NOTE or (each.kind, each.where) in before)

    async def _read(
        self,
        partition: TopicIdPartition,
        directories: Sequence[PartitionDirectory],
        *,
        is_compacted: bool | None,
        deep: bool,
    ) -> tuple[Finding, ...]:
        tier = TieredLog(partition, await self._view(partition), None, None)
        reads = [await self._read_copy(tier, directory) for directory in directories]
        copies = [each.copy for each in reads if each.copy is not None]
        findings = [finding for each in reads for finding in each.findings]
        if not deep:
            return (*(compared(tier, copy, None) for copy in copies), *findings)
        comparisons = [_comparison(tier, copy, is_compacted=is_compacted) for copy in copies]
        findings += await self._compare(tier, comparisons)
        for copy in copies:
            findings += await asyncio.to_thread(_damage, copy)
        notes = (compared(tier, each.copy, each.compared_records) for each in comparisons)
        first_of_kind = {(each.kind, each.where): each for each in reversed(findings)}
        return (*notes, *reversed(first_of_kind.values()))

    async def _read_copy(self, tier: TieredLog, directory: PartitionDirectory) -> _Read:
        for reads_left in reversed(range(_READS)):
            try:
                copy = await asyncio.to_thread(read_standby_copy, directory)
                epochs = await asyncio.to_thread(_epochs, tier, copy)
            except SegmentChangedError as error:  # a cleaner replaces segments, or retention deletes some
                if not reads_left:
                    return _Read(None, (_unreadable(directory, error),))
                await self._clock.sleep(_PAUSE_S)
            except LogError as error:
                return _Read(None, (_unreadable(directory, error),))
            else:
                return _Read(copy, (*offset_findings(tier, copy), *epochs))
        raise AssertionError("the last read returns")

    async def _compare(self, tier: TieredLog, comparisons: Sequence[BatchComparison]) -> list[Finding]:
        """Read the tier once for all copies, as far as one of them wants it."""
        going, findings = list(comparisons), []
        task = self._new_task(partial(_answered, tier))
        start = min((each.common.start for each in going if each.common), default=_ALL)
        try:
            for first, end in _ranges(tier, start):
                findings += await self._compare_range(task, first, end, going)
        except (RemoteStorageError, OffsetOutOfRangeError) as error:
            if error.retriable:
                raise
            what = f"the tier cannot be read: {error}"
            findings += [
                Finding(Severity.NOTE, "standby-not-compared", what, each.copy.place, "run tierd verify --deep")
                for each in going
            ]
            going = []
        for comparison in going:
            findings += await _carried_out(comparison, comparison.finish)
        return [*findings, *(finding for each in comparisons for finding in each.findings())]

    async def _compare_range(
        self, task: FetchTask, start: int, end: int, going: list[BatchComparison]
    ) -> list[Finding]:
        findings: list[Finding] = []
        batches = task.batches(start, end, IsolationLevel.READ_UNCOMMITTED)
        async with contextlib.aclosing(batches) as groups:
            async for group in groups:
                for comparison in [each for each in going if each.wants(group.batches[0].base_offset)]:
                    if failed := await _carried_out(comparison, partial(comparison.take, group.batches)):
                        findings += failed
                        going.remove(comparison)
                if not any(each.wants(group.batches[-1].last_offset + 1) for each in going):
                    break
        return findings


def _comparison(tier: TieredLog, copy: StandbyCopy, *, is_compacted: bool | None) -> BatchComparison:
    is_cleaned = copy.cleaned_offset > 0 or tier.view.compacted_to is not None
    return BatchComparison(copy, CommonOffsets.of(tier, copy), True if is_cleaned else is_compacted)


def _ranges(tier: TieredLog, start: int) -> Iterator[tuple[int, int]]:
    """Yield the readable offsets from ``start`` on, as ranges without holes."""
    first, end = -1, -1
    for part in tier.branch.readable_ranges(max(start, tier.log_start_offset), tier.remote_end_offset):
        if part.start_offset != end:
            if first >= 0:
                yield first, end
            first = part.start_offset
        end = part.end_offset
    if first >= 0:
        yield first, end


def _epochs(tier: TieredLog, copy: StandbyCopy) -> tuple[Finding, ...]:
    return tuple(epoch_findings(tier, copy))


async def _answered(tier: TieredLog) -> TieredLog:
    return tier


async def _carried_out(comparison: BatchComparison, step: Callable[[], None]) -> list[Finding]:
    """Carry out a step in a thread; return a finding if the copy cannot be read further."""
    try:
        await asyncio.to_thread(step)
    except LogError as error:
        return [_unreadable(comparison.copy.directory, error)]
    return []


def _unreadable(directory: PartitionDirectory, error: LogError) -> Finding:
    if isinstance(error, SegmentChangedError):
        remedy = "start its tierd, which finishes what it began; if it runs, verify again"
        return Finding(Severity.WARNING, "standby-not-compared", str(error), str(directory.path), remedy)
    return _damaged(str(directory.path), str(error))


def _damaged(place: str, problem: str) -> Finding:
    remedy = "tierd inspect names all damage; delete the copy while its tierd is stopped: the leader sends it anew"
    return Finding(Severity.ERROR, "standby-damage", problem, place, remedy)


def _damage(copy: StandbyCopy) -> list[Finding]:
    """Return the first damage of each file that a second look confirms. Blocking."""
    first = _damages(copy)
    if not first:
        return []
    again = _damages(copy)
    return [_damaged(place, problem) for place, problem in again.items() if place in first]


def _damages(copy: StandbyCopy) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in inspect_path(copy.directory.path):
        if isinstance(each, Damage):
            at = "" if each.position is None else f" at byte {each.position}"
            found.setdefault(str(each.path), f"{each.problem}{at}")
    return found
