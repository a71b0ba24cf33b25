"""The log file of a segment: walked, searched, cut and preallocated (Kafka: FileRecords)."""

from pathlib import Path

import pytest

from tests.log.batches import legacy, plain, wrapper
from tests.log.records.test_record_batch import inner
from tierd.errors import CorruptRecordError
from tierd.log import iter_batches
from tierd.log.files.disk import OsDisk
from tierd.log.files.partition_scan import SegmentFiles
from tierd.log.files.source import open_source
from tierd.log.records.batch_header import BatchHeader, iter_headers
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.log.segments.log_read import LogReader
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.log_segments import PublishedLog
from tierd.log.segments.offset_lookup import LookupFacts, offset_by_timestamp
from tierd.log.segments.segment_reading import find_batch, opener
from tierd.model import Lineage, TimestampOffset

MAX_INT = 2**31 - 1
NAME = "00000000000000000000.log"
BATCHES = [plain(0, 2), plain(2, 1), plain(7, 3)]  # offsets 3 to 6 are missing
STARTS = [0, len(BATCHES[0]), len(BATCHES[0] + BATCHES[1])]
DATA = b"".join(BATCHES)


def segment_of(folder: Path, data: bytes, *, config: LogConfig | None = None) -> LogSegment:
    (folder / NAME).write_bytes(data)
    return LogSegment(OsDisk(), folder, 0, config=config or LogConfig(), now_ms=0)


def headers_of(path: Path, *, position: int = 0, end: int | None = None) -> list[BatchHeader]:
    with open_source(path) as source:
        return list(iter_headers(source, position=position, end=end))


def appended(segment: LogSegment, *batches: bytes) -> None:
    for batch in batches:
        (header,) = iter_batches(batch, name="new")
        segment.append(
            [batch],
            [header],
            largest_offset=header.last_offset,
            max_timestamp_ms=header.max_timestamp_ms,
            shallow_offset=header.last_offset,
        )


@pytest.mark.spec("log-format REC-42")
def test_several_walks_of_one_file_are_independent(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(DATA)
    with open_source(tmp_path / NAME) as source:
        first = iter_headers(source)
        assert next(first).position == STARTS[0]
        assert source.read(STARTS[2], 8) == (7).to_bytes(8, "big")
        assert [header.position for header in iter_headers(source)] == STARTS
        assert next(first).position == STARTS[1]
        assert [header.position for header in iter_headers(source, position=STARTS[1])] == STARTS[1:]
        assert next(first).position == STARTS[2]


@pytest.mark.spec("log-format REC-43")
def test_walk_of_a_file_that_ends_within_a_batch_yields_the_whole_batches(tmp_path: Path) -> None:
    for size in range(STARTS[1], len(DATA)):
        (tmp_path / NAME).write_bytes(DATA[:size])
        whole = [start for start, data in zip(STARTS, BATCHES, strict=True) if start + len(data) <= size]
        assert [header.position for header in headers_of(tmp_path / NAME)] == whole


@pytest.mark.spec("log-format REC-44")
def test_part_of_a_file_is_clipped_at_its_end_and_walked(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(DATA)
    with open_source(tmp_path / NAME) as source:
        assert source.read(STARTS[1], 1 << 20) == DATA[STARTS[1] :]
        assert source.read(len(DATA), 10) == b""
    assert [header.position for header in headers_of(tmp_path / NAME, position=STARTS[1], end=STARTS[2])] == [STARTS[1]]
    part = memoryview(DATA)[STARTS[1] :]
    assert [batch.position for batch in iter_batches(part[len(BATCHES[1]) :], name="part", position=STARTS[2])] == [
        STARTS[2]
    ]


@pytest.mark.spec("log-format REC-45")
@pytest.mark.parametrize(
    ("offset", "found"), [(0, 0), (1, 0), (2, 1), (3, 2), (6, 2), (7, 2), (9, 2), (10, None), (MAX_INT, None)]
)
def test_offset_is_found_in_the_first_batch_that_reaches_it(tmp_path: Path, offset: int, found: int | None) -> None:
    (tmp_path / NAME).write_bytes(DATA)
    files = SegmentFiles(tmp_path, 0, None)
    open_file = opener(OsDisk())
    with open_file(files.log) as source:
        for begin in (None, *STARTS[: 3 if found is None else found + 1]):
            batch = find_batch(open_file, source, files, offset, end=len(DATA), known_position=begin)
            assert (batch.position if batch else None) == (None if found is None else STARTS[found])


@pytest.mark.spec("log-format REC-49")
@pytest.mark.parametrize(
    ("timestamp_ms", "start", "found"),
    [
        (0, 0, TimestampOffset(1000, 1)),  # magic 0 has no timestamps
        (1000, 0, TimestampOffset(1000, 1)),
        (1000, 2, TimestampOffset(1000, 2)),
        (1001, 0, TimestampOffset(2000, 4, 5)),
        (2000, 5, TimestampOffset(2001, 5, 5)),
        (2001, 0, TimestampOffset(2001, 5, 5)),
        (2002, 0, None),
    ],
)
def test_timestamp_is_found_in_a_segment_of_several_formats(
    tmp_path: Path, timestamp_ms: int, start: int, found: TimestampOffset | None
) -> None:
    entries = [legacy(0, 0, b"k", b"v"), wrapper(1, 3, inner(1, range(3))), plain(4, 2, timestamp_ms=2000, epoch=5)]
    segment = LogSegment(OsDisk(), tmp_path, 0, config=LogConfig(), now_ms=0, create=True)
    appended(segment, *entries)
    segment.flush()
    log = PublishedLog((segment,), LogOffset(6, 0, segment.written_bytes))
    facts = LookupFacts(log_start_offset=start, local_log_start_offset=start, log_end_offset=6, lineage=Lineage())
    assert offset_by_timestamp(LogReader(OsDisk(), lambda: log, name="orders-0"), timestamp_ms, facts) == found
    segment.close_handles()


@pytest.mark.spec("log-format REC-46")
def test_a_file_is_cut_to_any_size_up_to_its_own(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, DATA)
    assert segment.log.truncate(len(DATA)) == 0
    for size in (len(DATA) + 1, -1):
        with pytest.raises(ValueError, match="cannot be cut"):
            segment.log.truncate(size)
    assert (tmp_path / NAME).read_bytes() == DATA
    assert segment.log.truncate(STARTS[1]) == len(DATA) - STARTS[1]
    assert segment.log.truncate(STARTS[1]) == 0
    assert (segment.size_bytes, (tmp_path / NAME).read_bytes()) == (STARTS[1], BATCHES[0])
    segment.close_handles()


@pytest.mark.spec("log-format REC-47")
def test_closed_preallocated_file_is_as_long_as_its_data(tmp_path: Path) -> None:
    config = LogConfig(preallocate=True, segment_bytes=1 << 20)
    segment = LogSegment(OsDisk(), tmp_path, 0, config=config, now_ms=0, create=True)
    appended(segment, *BATCHES[:2])
    segment.write_out()
    assert ((tmp_path / NAME).stat().st_size, segment.size_bytes) == (1 << 20, STARTS[2])
    segment.close()
    assert (tmp_path / NAME).stat().st_size == STARTS[2]
    reopened = LogSegment(OsDisk(), tmp_path, 0, config=config, now_ms=0)
    assert reopened.size_bytes == STARTS[2]
    appended(reopened, BATCHES[2])
    reopened.write_out()
    assert (tmp_path / NAME).read_bytes() == DATA
    reopened.close()


@pytest.mark.spec("log-format REC-48")
def test_file_larger_than_the_largest_int_is_refused(tmp_path: Path) -> None:
    with (tmp_path / NAME).open("wb") as file:
        file.truncate(MAX_INT + 1)
    with pytest.raises(CorruptRecordError, match="more than a segment may have"):
        LogSegment(OsDisk(), tmp_path, 0, config=LogConfig(), now_ms=0)
    with (tmp_path / NAME).open("wb") as file:
        file.truncate(MAX_INT - len(BATCHES[0]) + 1)
    segment = LogSegment(OsDisk(), tmp_path, 0, config=LogConfig(), now_ms=0)
    with pytest.raises(ValueError, match="larger than a segment may be"):
        appended(segment, BATCHES[0])
    assert segment.size_bytes == segment.written_bytes == MAX_INT - len(BATCHES[0]) + 1


@pytest.mark.spec("log-format LEG-08")
@pytest.mark.parametrize(("magic", "smallest"), [(0, 14), (1, 22)])
def test_an_entry_below_the_smallest_message_of_its_magic_is_corrupt(magic: int, smallest: int) -> None:
    entry = legacy(magic, 5, None, None)
    assert len(entry) == 12 + smallest
    short = entry[:8] + (smallest - 1).to_bytes(4, "big") + entry[12:]
    with pytest.raises(CorruptRecordError, match="position 0"):
        list(iter_batches(short, name="file"))


@pytest.mark.spec("log-format REC-43")
def test_legacy_entries_and_batches_of_one_file_are_walked(tmp_path: Path) -> None:
    entries = [legacy(0, 0, b"k", b"v"), wrapper(1, 3, inner(1, range(3))), plain(4, 2)]
    (tmp_path / NAME).write_bytes(b"".join(entries))
    found = headers_of(tmp_path / NAME)
    assert [(header.magic, header.last_offset, header.size_bytes) for header in found] == [
        (0, 0, len(entries[0])),
        (1, 3, len(entries[1])),
        (2, 5, len(entries[2])),
    ]
