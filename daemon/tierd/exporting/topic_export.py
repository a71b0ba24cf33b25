"""ExportJob: topics of the tier as files, planned and carried out."""

import asyncio
import contextlib
import difflib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from tierd.app import Deployment, source_reader
from tierd.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    RefusedError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    StateDirError,
    TierError,
    UnknownPartitionError,
)
from tierd.exporting.export_directory import ExportDirectory, ExportedEnd, exported_ends, reserve_bytes_of
from tierd.exporting.export_request import ExportFormat, ExportRequest
from tierd.exporting.range_sink import ExportLayout, RangeSink
from tierd.kernels import compile_kernels_for
from tierd.model import TopicIdPartition, is_topic_name, uuid_to_text
from tierd.scanning import EARLIEST, LATEST, OnePosition, RowLayout, ScanPlan, ScanRange, ScanRequest, TierScanner
from tierd.tasks import in_thread, one_ahead

_BATCH_BYTES: Final = {ExportFormat.PARQUET: 32 << 20, ExportFormat.ARROW: 16 << 20, ExportFormat.JSONL: 4 << 20}
_INTERNAL: Final = "__"
_OF_ONE_PARTITION: Final = (
    OffsetOutOfRangeError,
    CorruptRecordError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
)
"""Errors that say nothing about other partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportProgress:
    """Progress of a run.

    Attributes:
        records: that this run has read.
        size_bytes: of the files that this run has finished.
        offsets_done: offsets of the plan that are behind the run.
        offset_count: offsets of the plan.
    """

    records: int
    size_bytes: int
    offsets_done: int
    offset_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRange:
    """Outcome of one partition.

    Attributes:
        span: what was planned; an earlier run has what comes before it.
        next_offset: the offset behind the last record that is in a file.
        records: of this run.
        size_bytes: of the files of this run.
        files: number of files of this run.
        problem: reason why the range is not complete; None if it is.
    """

    span: ScanRange
    next_offset: int
    records: int = 0
    size_bytes: int = 0
    files: int = 0
    problem: TierError | None = None


OnExportProgress = Callable[[ExportProgress], None]


class ExportJob:
    """Planned export.

    Attributes:
        plans: a plan for each topic, in order of names; what earlier runs have exported is left out.
    """

    def __init__(
        self,
        scanner: TierScanner,
        request: ExportRequest,
        plans: Sequence[ScanPlan],
        exported: Mapping[TopicIdPartition, int],
        *,
        log_dirs: Sequence[Path],
    ) -> None:
        """Prepare; ``log_dirs`` are those of the broker on this host, to whose disks the export leaves some room."""
        self.plans = plans
        self._log_dirs = log_dirs
        self._scanner = scanner
        self._request = request
        self._exported = exported
        self._layout = ExportLayout(
            format=request.format,
            limits=request.limits,
            folders=request.folders,
            isolation=request.isolation,
            cluster_id=scanner.cluster_id,
        )
        self._records = 0
        self._size_bytes = 0

    @property
    def spans(self) -> list[ScanRange]:
        """Return the ranges of all plans, in order."""
        return [span for plan in self.plans for span in plan.ranges]

    def is_begun(self, span: ScanRange) -> bool:
        """Return True if an earlier run has exported records of the partition, so that the range goes on behind it."""
        return span.partition in self._exported

    async def run(self, *, on_progress: OnExportProgress) -> list[ExportedRange]:
        """Export the ranges one after the other. A cancellation removes the files of the unfinished step.

        A damaged or incomplete partition does not stop the others. A store or a disk that fails ends the run: then the
        outcomes of the partitions that were not begun are missing.

        Raises:
            AlreadyRunningError: another process exports into the directory.
            RefusedError: another process has exported into the directory since the plan was made.
            StateDirError: the directory cannot be written.
        """
        into, job = self._request.into, self._request.job(self._scanner.cluster_id)
        with contextlib.ExitStack() as stack:  # closes what a thread opened for a caller that was cancelled meanwhile

            def open_locked() -> ExportDirectory:
                reserve_bytes = reserve_bytes_of(into, self._log_dirs)
                return stack.enter_context(
                    contextlib.closing(ExportDirectory.open(into, job, reserve_bytes=reserve_bytes))
                )

            directory = await in_thread(open_locked)
            if directory.next_offsets() != self._exported:
                raise RefusedError(f"another process exports into {into}", remedy="run it again")
            return await self._run(directory, on_progress)

    async def _run(self, directory: ExportDirectory, on_progress: OnExportProgress) -> list[ExportedRange]:
        await compile_kernels_for(sum(span.offset_count for span in self.spans))
        outcomes: list[ExportedRange] = []
        done = 0
        for span in self.spans:
            outcome = await self._export(span, directory, done, on_progress)
            outcomes.append(outcome)
            done += span.offset_count
            on_progress(self._progress(done))
            if outcome.problem is not None and not isinstance(outcome.problem, _OF_ONE_PARTITION):
                break
        return outcomes

    async def _export(
        self, span: ScanRange, directory: ExportDirectory, done: int, on_progress: OnExportProgress
    ) -> ExportedRange:
        sink = RangeSink(directory, self._layout, span.partition, span.start_offset, lineage=span.lineage)
        try:
            problem = await self._fill(sink, span, done, on_progress)
            await in_thread(sink.finish, span.end_offset if problem is None else None)
        except StateDirError as error:
            problem = error
        finally:
            await in_thread(sink.abandon)
        self._size_bytes += sink.size_bytes
        return ExportedRange(
            span=span,
            next_offset=sink.next_offset,
            records=sink.records,
            size_bytes=sink.size_bytes,
            files=sink.files,
            problem=problem,
        )

    async def _fill(
        self, sink: RangeSink, span: ScanRange, done: int, on_progress: OnExportProgress
    ) -> TierError | None:
        """Write the records of a range; return the error that ends the read early."""
        if not span.offset_count:
            return None
        layout = RowLayout(batch_bytes=_BATCH_BYTES[self._request.format])
        rows = self._scanner.range_rows(span, self._request.isolation, layout)
        async with contextlib.aclosing(one_ahead(rows, name=f"export {span.partition}")) as batches:
            while True:
                try:
                    scanned = await anext(batches, None)
                except TierError as error:
                    return error
                if scanned is None:
                    return None
                rest: pa.RecordBatch | None = scanned.batch
                while rest is not None:
                    rest = await in_thread(sink.write, rest)
                self._records += scanned.batch.num_rows
                at = done + scanned.next_offset - span.start_offset
                on_progress(self._progress(at, range_bytes=sink.size_bytes))

    def _progress(self, offsets_done: int, *, range_bytes: int = 0) -> ExportProgress:
        return ExportProgress(
            records=self._records,
            size_bytes=self._size_bytes + range_bytes,
            offsets_done=offsets_done,
            offset_count=sum(each.offset_count for each in self.spans),
        )


@contextlib.asynccontextmanager
async def export_job(
    deployment: Deployment, request: ExportRequest, *, on_progress: Callable[[str], None]
) -> AsyncIterator[ExportJob]:
    """Open the tier, and plan the export; nothing is written. ``on_progress`` is called with lines about the progress.

    Raises:
        UnknownPartitionError: no topic has a name that matches.
        RefusedError: the directory has files of another kind, or is in a log dir; or since an earlier run a topic was
            made anew, or a log was cut back below what that run has exported.
        OffsetOutOfRangeError: records that come next have left the tier, or the first offset is below a log start.
        TierError: a store or a log dir cannot be read.
    """
    await asyncio.to_thread(deployment.require_outside_log_dirs, request.into)
    async with source_reader(deployment, request.source, on_progress=on_progress) as reader:
        scanner = TierScanner(reader)
        done = await asyncio.to_thread(exported_ends, request.into, request.job(scanner.cluster_id))
        plans = []
        for topic in await _matching(scanner, request):
            on_progress(f"topic {topic}")
            plans.append(await _planned(scanner, request, topic, done))
        exported = {partition: end.next_offset for partition, end in done.items()}
        yield ExportJob(scanner, request, plans, exported, log_dirs=deployment.log_dirs)


async def _matching(scanner: TierScanner, request: ExportRequest) -> list[str]:
    """Return the names of the wanted topics. A topic of Kafka's own is wanted if the pattern begins as its name."""
    names = sorted({topic.name for topic in await scanner.topics() if is_topic_name(topic.name)})
    found = [
        name
        for name in names
        if any(
            re.fullmatch(pattern, name) and (pattern.startswith(_INTERNAL) or not name.startswith(_INTERNAL))
            for pattern in request.patterns
        )
    ]
    if not found:
        near = difflib.get_close_matches(request.patterns[0], names, n=1)
        raise UnknownPartitionError(
            f"no topic has a name that matches {' or '.join(request.patterns)}"
            f"{f'; did you mean {near[0]}?' if near else ''}",
            remedy="a pattern is a regular expression for the whole name, such as 'orders.*'; tierd status has names",
        )
    return found


async def _planned(
    scanner: TierScanner, request: ExportRequest, topic: str, exported: Mapping[TopicIdPartition, ExportedEnd]
) -> ScanPlan:
    """Plan a topic: each partition from where an earlier run has ended, or from the first offset that is wanted."""
    chosen = await scanner.choose(topic)
    before = {partition: end for partition, end in exported.items() if partition.topic == topic}
    if any(uuid_to_text(partition.topic_id) != chosen.topic_id for partition in before):
        raise RefusedError(
            f"topic {topic} was made anew since an earlier run exported it: its id is {chosen.topic_id}",
            remedy="export the present topic into another directory",
        )
    begun: dict[int, OnePosition] = {partition.partition: end.next_offset for partition, end in before.items()}
    first: OnePosition = EARLIEST if request.start is None else request.start
    plan = await scanner.plan(
        ScanRequest(
            topic=topic,
            start={number: begun.get(number, first) for number in chosen.partitions},
            end=LATEST if request.end is None else request.end,
            isolation=request.isolation,
        )
    )
    for span in plan.ranges:
        if span.partition in before:
            _require_same_log(span, before[span.partition])
    return plan


def _require_same_log(span: ScanRange, exported: ExportedEnd) -> None:
    """Require that the log has what earlier runs exported, as far as its leader epochs tell.

    A log that lost its end, as after an unclean election or the restore of a disk, writes offsets anew: an export that
    goes on behind them would lack their new records.
    """
    next_offset, epoch = exported
    if epoch is None:
        return
    _, end = span.lineage.end_offset_for(epoch, log_end_offset=next_offset)  # -1 where it is not known
    if 0 <= end < next_offset:
        raise RefusedError(
            f"{span.partition}: the log was cut back to offset {end} since an earlier run exported it up to "
            f"{next_offset - 1}: the files have records that the log lost, and lack those that it has in their place",
            remedy="export the present log into another directory",
        )
