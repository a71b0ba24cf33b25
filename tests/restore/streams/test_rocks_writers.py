"""Writers of stores, on real directories."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.restore.streams.states import columns, read_store, records
from tierd.log import NewRecord, Record, encode_batch, iter_batches
from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.changelog.encoded_records import EncodedRecords, record_pieces
from tierd.restore.streams import rocks_writers
from tierd.restore.streams.rocks_directory import RocksDirectory
from tierd.restore.streams.rocks_writers import StoreWriter, open_writer
from tierd.restore.streams.segment_puts import AppliedRecords
from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType

PLAIN = StreamsStore(name="plain", changelog="c", subtopology=0, type=StreamsStoreType.KEY_VALUE)
STAMPED = StreamsStore(name="stamped", changelog="c", subtopology=0, type=StreamsStoreType.TIMESTAMPED_KEY_VALUE)


def applied(writer: StoreWriter, rows: Iterable[Record], *, size: int = 100) -> StoreWriter:
    for batch in columns(rows, size=size):
        writer.apply(batch)
    return writer


def finished(writer: StoreWriter) -> None:
    writer.finish()
    writer.close()


def content_of(store: StreamsStore, root: Path, rows: Iterable[Record], *, size: int = 100) -> dict[bytes, bytes]:
    """Return what a store holds that was filled with these records."""
    finished(applied(open_writer(store, root, resume=None), rows, size=size))
    return read_store(root)[f".:{store.type.column_family or 'default'}"]


def tables(root: Path) -> int:
    return len(list(root.glob("*.sst")))


def test_last_record_of_a_key_decides_within_a_batch_and_across_batches(tmp_path: Path) -> None:
    rows = records((b"k", b"1", 5), (b"k", b"2", 4), (b"l", b"3", 5), (b"k", None, 5), (b"k", b"4", 3), (b"l", None, 5))

    assert content_of(PLAIN, tmp_path / "one", rows) == {b"k": b"4"}
    assert content_of(PLAIN, tmp_path / "many", rows, size=1) == {b"k": b"4"}


def test_empty_value_is_a_value_and_a_missing_one_deletes(tmp_path: Path) -> None:
    rows = records((b"a", b"", 5), (b"b", b"1", 5), (b"b", None, 5))

    assert content_of(PLAIN, tmp_path / "store", rows) == {b"a": b""}


def test_record_without_key_is_counted_and_means_nothing(tmp_path: Path) -> None:
    writer = applied(open_writer(PLAIN, tmp_path / "store", resume=None), records((None, b"1", 5), (b"k", b"2", 5)))

    assert (writer.skipped, writer.applied) == (1, AppliedRecords(1, -1))
    finished(writer)
    assert read_store(tmp_path / "store")[".:default"] == {b"k": b"2"}


def test_timestamped_store_prefixes_values_and_never_a_tombstone(tmp_path: Path) -> None:
    stamp = (258).to_bytes(8, "big")
    rows = records((b"a", b"1", 258), (b"b", b"", 258), (b"c", b"2", 258), (b"c", None, 259))

    assert content_of(STAMPED, tmp_path / "store", rows) == {b"a": stamp + b"1", b"b": stamp}


def test_few_tables_stay_and_more_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks_writers, "_MOST_TABLES", 2)
    expected = {b"%d" % number: b"v" for number in range(3)}
    for flushes, files in ((2, 2), (3, 1)):
        root = tmp_path / str(flushes)
        writer = open_writer(PLAIN, root, resume=None)
        for row in records(*((key, b"v", 1) for key in list(expected)[:flushes])):
            applied(writer, [row])
            writer.flush()
        finished(writer)

        assert tables(root) == files
        assert read_store(root)[".:default"] == dict(list(expected.items())[:flushes])


def test_full_buffers_become_tables_before_the_end(tmp_path: Path) -> None:
    rows = records(*((b"%06d" % number, bytes(1000), 1) for number in range(3000)))
    writer = applied(open_writer(PLAIN, tmp_path / "store", resume=None, memory_bytes=768 << 10), rows)

    assert tables(tmp_path / "store") > 1
    finished(writer)
    assert len(read_store(tmp_path / "store")[".:default"]) == 3000


def test_records_larger_than_the_memory_are_written(tmp_path: Path) -> None:
    rows = records((b"k", bytes(5000), 1), (b"l", b"small", 1), (b"k", bytes(3000), 1))
    writer = applied(open_writer(STAMPED, tmp_path / "store", resume=None, memory_bytes=300), rows)
    finished(writer)

    stamp = (1).to_bytes(8, "big")
    assert read_store(tmp_path / "store")[".:keyValueWithTimestamp"] == {
        b"k": stamp + bytes(3000),
        b"l": stamp + b"small",
    }


def test_failure_of_a_table_is_raised_by_a_later_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreFailedError("plain", "the disk is full")

    monkeypatch.setattr(RocksDirectory, "add_table", fail)
    writer = open_writer(PLAIN, tmp_path / "store", resume=None, memory_bytes=30)
    with pytest.raises(StoreFailedError, match="the disk is full"):
        applied(writer, records((b"k", bytes(100), 1), (b"l", bytes(100), 1), (b"m", bytes(100), 1)), size=1)
    writer.close()
    writer.close()

    writer = open_writer(PLAIN, tmp_path / "other", resume=None)
    applied(writer, records((b"k", b"1", 1)))
    with pytest.raises(StoreFailedError, match="the disk is full"):
        writer.finish()
    writer.close()


def test_store_without_records_is_a_directory_that_opens(tmp_path: Path) -> None:
    finished(open_writer(STAMPED, tmp_path / "store", resume=None))

    assert read_store(tmp_path / "store") == {".:default": {}, ".:keyValueWithTimestamp": {}}


_KEYS = st.one_of(
    st.none(),
    st.text("\0a\xff", max_size=9).map(lambda text: text.encode("latin-1")),
    st.integers(0, 3).map(lambda number: b"a-long-common-prefix-%d" % number),
)
_VALUES = st.sampled_from([b"", b"v", b"w" * 9, None])
_ROWS = st.lists(st.tuples(_KEYS, _VALUES, st.integers(-(2**63), 2**63 - 1)), max_size=40)
_PRODUCED_ROWS = st.lists(st.tuples(_KEYS, _VALUES, st.integers(0, 1 << 40)), max_size=40)


@settings(max_examples=15)  # each opens directories
@given(_ROWS, st.integers(1, 40), st.sampled_from([3, 90, 1 << 20]))
def test_records_cut_into_any_batches_and_tables_mean_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[bytes | None, bytes | None, int]],
    size: int,
    memory_bytes: int,
) -> None:
    expected: dict[bytes, bytes] = {}
    for key, value, timestamp_ms in rows:
        if key is not None and value is None:
            expected.pop(key, None)
        elif key is not None and value is not None:
            expected[key] = timestamp_ms.to_bytes(8, "big", signed=True) + value
    root = tmp_path_factory.mktemp("store") / "store"
    writer = open_writer(STAMPED, root, resume=None, memory_bytes=memory_bytes)

    finished(applied(writer, records(*rows), size=size))

    assert read_store(root)[".:keyValueWithTimestamp"] == expected
    assert writer.skipped == sum(key is None for key, _, _ in rows)


@settings(max_examples=15)  # each opens directories
@given(_PRODUCED_ROWS, st.integers(1, 40))
def test_encoded_records_mean_the_same_as_lists(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[bytes | None, bytes | None, int]], size: int
) -> None:
    root = tmp_path_factory.mktemp("stores")
    log = records(*rows)
    batches = [
        encode_batch([NewRecord(row.key, row.value, row.timestamp_ms) for row in batch], base_offset=batch.first_offset)
        for batch in columns(log, size=size)
    ]
    writer = open_writer(STAMPED, root / "encoded", resume=None, memory_bytes=90)
    for batch in iter_batches(b"".join(batches), name="log"):
        writer.apply(EncodedRecords(record_pieces([batch], start_offset=0, end_offset=len(log))))
    finished(writer)

    assert read_store(root / "encoded")[".:keyValueWithTimestamp"] == content_of(STAMPED, root / "lists", log)
