"""Any history of a partition: queries have the rows of ``tierd.reader``, and no task has rows of another log."""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

import tierd
from tests.fakes.log_dirs import LogDirWriter
from tests.log.logs import NOW_MS, lead, lead_marker, records
from tests.pipeline.source.queries import Queries, Reader, read_all
from tests.scenarios.installation import Installation
from tests.tiering.setups import delete_segment
from tierd.app import Deployment, copy_once
from tierd.config import load_config
from tierd.log import LogConfig, Producer, UnifiedLog, opened_partition
from tierd.pipeline.pipeline_errors import DataLossError

Row = tuple[int, bytes]  # offset and value

_ISOLATIONS: Final = ("read_committed", "read_uncommitted")

ENTRIES = st.lists(st.sampled_from(["-", "A", "B", "A+", "A!", "B+", "B!", "roll", "roll"]), min_size=1, max_size=25)
"""Each entry is a batch of one offset, or the end of a segment.

::

    -   a record      A   a record in a transaction of producer A      A+ A!   the marker that commits or aborts it
"""


class InterruptedProducer:
    """Producer that keeps its sequence and its transaction while the log is closed."""

    def __init__(self, producer_id: int) -> None:
        self._producer_id = producer_id
        self._sequence = 0
        self._is_open = False

    def write(self, log: UnifiedLog, value: bytes, *, epoch: int) -> None:
        producer = Producer(self._producer_id, 0, self._sequence)
        lead(log, records(value=value, producer=producer, transactional=True), epoch=epoch)
        self._sequence += 1
        self._is_open = True

    def end(self, log: UnifiedLog, *, commit: bool, epoch: int) -> None:
        if self._is_open:
            lead_marker(log, self._producer_id, commit=commit, epoch=epoch)
        self._is_open = False


class History:
    """Partition ``orders-0``, written by the code of a broker, and its tier."""

    def __init__(self, root: Path) -> None:
        self.log_dir = LogDirWriter(root / "kafka").path
        self.path = self.log_dir / "orders-0"
        self.installation = Installation(root / "tierd", [self.log_dir])
        self._epoch = -1
        self._writes = count()
        self._producer_ids = count(1000)
        self._producers = self._new_producers()

    def write(self, entries: Sequence[str]) -> None:
        """Append as a new leader."""
        with opened_partition(self.path, config=LogConfig(), now_ms=NOW_MS, create_with=uuid4()) as log:
            self._lead(log, entries)

    def write_anew(self, entries: Sequence[str], *, lost: int) -> None:
        """Lose up to ``lost`` of the last local offsets, and append as a new leader."""
        self._producers = self._new_producers()
        with opened_partition(self.path, config=LogConfig(), now_ms=NOW_MS) as log:
            log.truncate_to(max(log.log_end_offset - lost, log.log_start_offset), now_ms=NOW_MS)
            self._lead(log, entries)

    def make_anew(self, entries: Sequence[str]) -> None:
        """Delete the topic, and make another one of its name."""
        shutil.rmtree(self.path)
        self._epoch, self._producers = -1, self._new_producers()
        self.write(entries)

    def _new_producers(self) -> dict[str, InterruptedProducer]:
        return {letter: InterruptedProducer(next(self._producer_ids)) for letter in "AB"}

    def _lead(self, log: UnifiedLog, entries: Sequence[str]) -> None:
        self._epoch += 1
        log.assign_leader_epoch(self._epoch, log.log_end_offset)
        value = b"written by leader %d" % next(self._writes)
        for entry in entries:
            match entry:
                case "roll":
                    log.roll(now_ms=NOW_MS)
                case "-":
                    lead(log, records(value=value), epoch=self._epoch)
                case "A" | "B":
                    self._producers[entry].write(log, value, epoch=self._epoch)
                case _:
                    self._producers[entry[0]].end(log, commit=entry[1] == "+", epoch=self._epoch)
        log.maybe_increment_high_watermark(log.log_end_offset)

    def copy(self, keep_local: int) -> None:
        """Copy what is due; delete all copied segments of the host but the last ``keep_local``."""
        config_file = self.installation.config_file
        outcomes = asyncio.run(copy_once(Deployment(load_config(config_file, {}), config_file), None))
        assert all(outcome.error is None for outcome in outcomes), outcomes
        bases = sorted(int(file.stem) for file in self.path.glob("*.log"))
        end = self.queries().remote_ends().get("orders-0", 0)
        copied = [base for base, following in pairwise(bases) if following <= end]
        for base in copied[: max(len(copied) - keep_local, 0)]:
            delete_segment(self.path, base)

    def queries(self, **options: str) -> Queries:
        return Queries(self.installation.config_file, subscribePattern="orders", includeLocal="true", **options)

    def rows_of_reader(self, isolation: str) -> list[Row]:
        with tierd.reader(self.installation.config_file) as reader:
            return [*_rows(reader.scan("orders", isolation=isolation).to_table())]


def _rows(table: pa.Table | pa.RecordBatch) -> Iterator[Row]:
    yield from zip(*(table.column(name).to_pylist() for name in ("offset", "value")), strict=True)


def rows(reader: Reader, tasks: Sequence[InputPartition]) -> list[Row]:
    return [row for batch in read_all(reader, tasks) for row in _rows(batch)]


def rows_of_stream(queries: Queries, most: int) -> Iterator[Row]:
    reader = queries.stream(startingOffsets="earliest")
    progress = reader.initialOffset()
    while (end := reader.latestOffset(progress, ReadMaxRows(most))) != progress:
        yield from rows(reader, reader.partitions(progress, end))
        progress = end
    reader.stop()


@settings(max_examples=25, deadline=None)
@given(
    entries=ENTRIES,
    later=ENTRIES,
    keep_local=st.integers(0, 3),
    most=st.integers(1, 9),
    isolation=st.sampled_from(_ISOLATIONS),
)
def test_queries_return_the_records_of_the_reader_in_python(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    entries: Sequence[str],
    later: Sequence[str],
    keep_local: int,
    most: int,
    isolation: str,
) -> None:
    history = History(tmp_path_factory.mktemp("history"))
    history.write([*entries, "roll"])
    history.copy(keep_local)
    history.write(later)
    expected = history.rows_of_reader(isolation)
    event(f"records: {bool(expected)}")
    queries = history.queries(isolation=isolation, maxRecordsPerPartition=str(most))
    assert [row for batch in queries.batches() for row in _rows(batch)] == expected
    assert list(rows_of_stream(queries, most)) == expected


Change = Callable[[History, Sequence[str]], None]


def go_on(history: History, entries: Sequence[str]) -> None:
    history.write(entries)


def go_on_and_copy(history: History, entries: Sequence[str]) -> None:
    history.write([*entries, "roll"])
    history.copy(keep_local=1)


def lose_the_end(history: History, entries: Sequence[str]) -> None:
    history.write_anew([], lost=len(entries))


def write_the_end_anew(history: History, entries: Sequence[str]) -> None:
    history.write_anew([*entries, "-", "-"], lost=len(entries))


def make_anew(history: History, entries: Sequence[str]) -> None:
    history.make_anew([*entries, "roll", *entries, "-"])


def take_away(history: History, entries: Sequence[str]) -> None:
    del entries
    shutil.move(history.path, history.log_dir.parent / "moved")


CHANGES: Final[Sequence[Change]] = (
    go_on,
    go_on_and_copy,
    lose_the_end,
    write_the_end_anew,
    make_anew,
    take_away,
)


@settings(max_examples=30, deadline=None)
@given(
    entries=ENTRIES,
    later=ENTRIES,
    change=st.sampled_from(CHANGES),
    changed=ENTRIES,
    keep_local=st.integers(0, 3),
    isolation=st.sampled_from(_ISOLATIONS),
    is_stream=st.booleans(),
)
def test_task_has_the_rows_of_its_plan_or_fails(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    entries: Sequence[str],
    later: Sequence[str],
    change: Change,
    changed: Sequence[str],
    keep_local: int,
    isolation: str,
    is_stream: bool,
) -> None:
    history = History(tmp_path_factory.mktemp("history"))
    history.write([*entries, "roll"])
    history.copy(keep_local)
    history.write(later)
    queries = history.queries(isolation=isolation, maxRecordsPerPartition="5")
    reader: Reader
    if is_stream:
        reader = stream = queries.stream(startingOffsets="earliest")
        start = stream.initialOffset()
        tasks = stream.partitions(start, stream.latestOffset(start, stream.getDefaultReadLimit()))
        stream.stop()
    else:
        reader = batch = queries.reader()
        tasks = batch.partitions()
    planned = rows(reader, tasks)
    change(history, changed)
    try:
        found = rows(reader, tasks)
    except DataLossError:
        event(f"{change.__name__}: fails")
        return
    event(f"{change.__name__}: reads")
    assert found == planned
