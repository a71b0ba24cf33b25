"""AsyncArrowReader: topics of the tier as batches of Arrow, in the caller's own event loop."""

import weakref
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tierd.errors import with_remedy
from tierd.scanning.arrow_reader import OnProgress, ProgressCounter
from tierd.scanning.positions import EARLIEST, LATEST, Position
from tierd.scanning.reader_thread import closed_reader
from tierd.scanning.row_layout import BATCH_BYTES, RowLayout
from tierd.scanning.scan_plan import ScanPlan, ScanRange, parse_request
from tierd.scanning.tier_scanner import TierScanner
from tierd.scanning.topic_choice import TieredTopic
from tierd.tasks import one_ahead


@dataclass(slots=True)
class _Reads:
    """Reads of one reader."""

    running: "weakref.WeakSet[AsyncGenerator[pa.RecordBatch, None]]" = field(default_factory=weakref.WeakSet)
    is_closed: bool = False

    def require_open(self) -> None:
        if self.is_closed:
            raise closed_reader()


class AsyncScan:
    """Planned read of a topic, for ``async for``. Its range is fixed, so that each use gives the same rows."""

    def __init__(
        self,
        scanner: TierScanner,
        plan: ScanPlan,
        layout: RowLayout,
        on_progress: OnProgress | None,
        reads: _Reads,
    ) -> None:
        self._scanner = scanner
        self._plan = plan
        self._layout = layout
        self._on_progress = on_progress
        self._reads = reads

    @property
    def schema(self) -> pa.Schema:
        """Return the columns."""
        return self._layout.schema

    @property
    def ranges(self) -> tuple[ScanRange, ...]:
        """Return the offsets of each partition that are read."""
        return self._plan.ranges

    def select(self, *columns: str) -> "AsyncScan":
        """Return the same read with these columns alone; the others are not decoded.

        Raises:
            ScanRequestError: there is no such column, or one is named twice.
        """
        with with_remedy():
            layout = self._layout.select(columns)
        return AsyncScan(self._scanner, self._plan, layout, self._on_progress, self._reads)

    def __aiter__(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """Return the batches. A caller that may stop early closes them, with ``contextlib.aclosing(aiter(scan))``."""
        batches = self._batches()
        self._reads.running.add(batches)
        return batches

    async def to_table(self) -> pa.Table:
        """Return all rows in memory.

        Raises:
            TierError: the read failed.
        """
        return pa.Table.from_batches([batch async for batch in self], self.schema)

    async def _batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        with with_remedy():
            self._reads.require_open()
        counter = ProgressCounter(self._plan)
        rows = one_ahead(self._scanner.rows(self._plan, self._layout), name="tierd reader ahead")
        try:
            while True:
                with with_remedy():
                    scanned = await anext(rows, None)
                if scanned is None:
                    break
                if self._on_progress is not None:
                    self._on_progress(counter.after(scanned))
                yield scanned.batch
        finally:
            await rows.aclose()
        if self._on_progress is not None and (last := counter.at_end()) is not None:
            self._on_progress(last)


class AsyncArrowReader:
    """Open tier. Any number of reads may run at once."""

    def __init__(self, scanner: TierScanner) -> None:
        self._scanner = scanner
        self._reads = _Reads()

    async def topics(self) -> list[TieredTopic]:
        """Return the topics; see ``ArrowReader.topics``."""
        with with_remedy():
            self._reads.require_open()
            return await self._scanner.topics()

    async def scan(
        self,
        topic: str,
        *,
        partitions: Sequence[int] | None = None,
        start: Position = EARLIEST,
        end: Position = LATEST,
        isolation: str = "read_committed",
        columns: Sequence[str] | None = None,
        batch_bytes: int = BATCH_BYTES,
        topic_id: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> AsyncScan:
        """Plan a read of a topic; arguments and errors are those of ``ArrowReader.scan``."""
        with with_remedy():
            self._reads.require_open()
            layout = RowLayout.of(columns, batch_bytes=batch_bytes)
            request = parse_request(topic, topic_id, partitions, start=start, end=end, isolation=isolation)
            plan = await self._scanner.plan(request)
        return AsyncScan(self._scanner, plan, layout, on_progress, self._reads)

    async def aclose(self) -> None:
        """End the reads that were left early; no read begins any more."""
        self._reads.is_closed = True
        for batches in list(self._reads.running):
            await batches.aclose()
