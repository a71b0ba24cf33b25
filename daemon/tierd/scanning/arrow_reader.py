"""ArrowReader: topics of the tier as batches of Arrow, for notebooks and programs without an event loop."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from tierd.errors import with_remedy
from tierd.scanning.positions import EARLIEST, LATEST, Position
from tierd.scanning.range_rows import ScannedBatch
from tierd.scanning.reader_thread import ReaderThread
from tierd.scanning.row_layout import BATCH_BYTES, RowLayout
from tierd.scanning.scan_plan import ScanPlan, ScanRange, parse_request
from tierd.scanning.topic_choice import TieredTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProgress:
    """Progress of one read.

    Attributes:
        partition: the partition of the last batch.
        records: number of records so far.
        size_bytes: of the batches so far, in memory.
        offsets_done: offsets whose records the caller has.
        offset_count: offsets of the whole read.
    """

    partition: int
    records: int
    size_bytes: int
    offsets_done: int
    offset_count: int


class ProgressCounter:
    """Counter of what one read has given."""

    def __init__(self, plan: ScanPlan) -> None:
        self._plan = plan
        self._records = 0
        self._size_bytes = 0
        self._done = 0

    def after(self, scanned: ScannedBatch) -> ScanProgress:
        """Return the progress after one more batch."""
        self._records += scanned.batch.num_rows
        self._size_bytes += scanned.batch.nbytes
        before = self._plan.ranges[: self._plan.ranges.index(scanned.range)]
        self._done = sum(each.offset_count for each in before) + scanned.next_offset - scanned.range.start_offset
        return self._progress(scanned.range)

    def at_end(self) -> ScanProgress | None:
        """Return the progress at the end; None where the last batch has reached it already, or nothing was to read."""
        if self._done == self._plan.offset_count:
            return None
        self._done = self._plan.offset_count
        return self._progress(self._plan.ranges[-1])

    def _progress(self, span: ScanRange) -> ScanProgress:
        return ScanProgress(
            partition=span.partition.partition,
            records=self._records,
            size_bytes=self._size_bytes,
            offsets_done=self._done,
            offset_count=self._plan.offset_count,
        )


OnProgress = Callable[[ScanProgress], None]


class Scan:
    """Planned read of a topic. Its range is fixed, so that each use gives the same rows.

    pyarrow, polars and DuckDB take it as it is (the Arrow PyCapsule interface). A loop gives batches of pyarrow.
    One use has at most three batches in memory, of which the caller has one, and ``fetch.prefetch`` bytes of the log.
    """

    def __init__(self, thread: ReaderThread, plan: ScanPlan, layout: RowLayout, on_progress: OnProgress | None) -> None:
        self._thread = thread
        self._plan = plan
        self._layout = layout
        self._on_progress = on_progress

    @property
    def schema(self) -> pa.Schema:
        """Return the columns."""
        return self._layout.schema

    @property
    def topic(self) -> str:
        """Return the name of the topic."""
        return self._plan.topic

    @property
    def topic_id(self) -> str:
        """Return the id of the topic's incarnation, as Kafka prints it."""
        return self._plan.topic_id

    @property
    def ranges(self) -> tuple[ScanRange, ...]:
        """Return the offsets of each partition that are read."""
        return self._plan.ranges

    def select(self, *columns: str) -> "Scan":
        """Return the same read with these columns alone; the others are not decoded.

        Raises:
            ScanRequestError: there is no such column, or one is named twice.
        """
        with with_remedy():
            return Scan(self._thread, self._plan, self._layout.select(columns), self._on_progress)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader of pyarrow. Nothing is read before the first batch is asked for."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """Return all rows in memory.

        Raises:
            TierError: the read failed.
        """
        return pa.Table.from_batches(list(self), self.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        counter = ProgressCounter(self._plan)
        with self._thread.reading(self._plan, self._layout) as stream:
            while (scanned := stream.next()) is not None:
                if self._on_progress is not None:
                    self._on_progress(counter.after(scanned))
                yield scanned.batch
        if self._on_progress is not None and (last := counter.at_end()) is not None:
            self._on_progress(last)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        stream: object = self.to_reader().__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
        return stream

    def __repr__(self) -> str:
        plan = self._plan
        return (
            f"<Scan of {plan.topic}: {len(plan.ranges)} partitions, {plan.offset_count} offsets, "
            f"about {plan.size_bytes} bytes in the log>"
        )


class ArrowReader:
    """Open tier. It has an event loop in a thread of its own, so that it also works inside one, as in Jupyter.

    Use it in a ``with`` statement, or ``close`` it. Any thread may use it, and any number of reads may run at once.
    """

    def __init__(self, thread: ReaderThread) -> None:
        self._thread = thread
        self._closing = weakref.finalize(self, thread.close)
        self._closing.atexit = False  # the threads that the tier is closed with have ended then

    def topics(self) -> list[TieredTopic]:
        """Return every topic of the tier and of the log dirs of this host; a topic that was made anew comes twice.

        Raises:
            TierError: the metadata store does not answer, or the reader was closed.
        """
        return self._thread.call(self._thread.scanner.topics())

    def scan(
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
    ) -> Scan:
        """Plan a read of a topic: partition by partition, each in order of offsets, local log and tier as one log.

        Args:
            topic: the name.
            partitions: numbers; None for all that the tier or a log dir of this host has.
            start: first offset; or a time, which stands for the first record with that timestamp or a later one; or
                ``"earliest"``. One for all partitions, or a dict by partition.
            end: the same, exclusive; ``"latest"`` is the end at this moment. What is behind the end is left out.
            isolation: ``"read_committed"`` leaves out aborted and undecided transactions; ``"read_uncommitted"``.
            columns: names of the wanted columns in order; None for all.
            batch_bytes: largest size of a batch, unless a single record is larger.
            topic_id: incarnation of a topic that was deleted and created again; None for the one on this host, or the
                one that was copied last.
            on_progress: is called with each batch, and at the end, in the thread that reads.

        Raises:
            ScanRequestError: an argument cannot be understood, or the reader was closed.
            UnknownPartitionError: there is no such topic or partition.
            OffsetOutOfRangeError: ``start`` is below the log start.
            TierError: a log or a store cannot be read.
        """
        with with_remedy():
            layout = RowLayout.of(columns, batch_bytes=batch_bytes)
            request = parse_request(topic, topic_id, partitions, start=start, end=end, isolation=isolation)
            plan = self._thread.call(self._thread.scanner.plan(request))
        return Scan(self._thread, plan, layout, on_progress)

    def close(self) -> None:
        """End all reads and close the tier. A second call does nothing."""
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ArrowReader, {'open' if self._closing.alive else 'closed'}>"
