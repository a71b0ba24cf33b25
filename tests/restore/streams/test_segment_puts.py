import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.restore.streams.kinds import session_key, window_key
from tests.restore.streams.states import columns, records
from tierd.log import Record
from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.streams.segment_puts import SegmentPuts
from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType


def segmented(kind: StreamsStoreType, *, retention_ms: int = 100, interval_ms: int = 50) -> StreamsStore:
    return StreamsStore(
        name="s", changelog="c", subtopology=0, type=kind, retention_ms=retention_ms, segment_interval_ms=interval_ms
    )


WINDOW = segmented(StreamsStoreType.WINDOW)


def puts_of(store: StreamsStore, rows: list[Record]) -> dict[int, dict[bytes, bytes | None]]:
    puts = SegmentPuts(store)
    puts.add(ChangelogRecords.of(rows))
    return puts.take()


def test_last_record_of_a_key_decides() -> None:
    key = window_key(b"k", 10)

    assert puts_of(WINDOW, records((key, b"1", 5), (key, b"2", 4))) == {0: {key: b"2"}}


@pytest.mark.spec("changelog-restore 58")
def test_empty_value_is_a_value_and_a_missing_one_deletes() -> None:
    kept, deleted = window_key(b"a", 10), window_key(b"b", 10)

    assert puts_of(WINDOW, records((kept, b"", 5), (deleted, None, 5))) == {0: {kept: b"", deleted: None}}


def test_record_without_key_is_counted_and_means_nothing() -> None:
    puts, key = SegmentPuts(WINDOW), window_key(b"k", 10)
    puts.add(ChangelogRecords.of(records((None, b"1", 5), (key, b"2", 5))))

    assert (puts.take(), puts.skipped) == ({0: {key: b"2"}}, 1)


@pytest.mark.spec("changelog-restore 57")
def test_timestamped_store_prefixes_values_and_never_a_tombstone() -> None:
    stamp = (258).to_bytes(8, "big")
    keys = [window_key(word, 10) for word in (b"a", b"b", b"c")]
    rows = zip(keys, (b"1", b"", None), (258, 258, 258), strict=True)

    assert puts_of(segmented(StreamsStoreType.TIMESTAMPED_WINDOW), records(*rows)) == {
        0: {keys[0]: stamp + b"1", keys[1]: stamp, keys[2]: None}
    }


def test_window_goes_to_the_segment_of_its_start() -> None:
    first, second = window_key(b"k", 149, 7), window_key(b"k", 150)

    assert puts_of(WINDOW, records((first, b"1", 900), (second, b"2", 900))) == {2: {first: b"1"}, 3: {second: b"2"}}


def test_session_goes_to_the_segment_of_its_end() -> None:
    key = session_key(b"k", 10, 150)

    assert puts_of(segmented(StreamsStoreType.SESSION), records((key, b"1", 900))) == {3: {key: b"1"}}


def test_segment_below_retention_is_left_out() -> None:
    old, kept, new = window_key(b"k", 149), window_key(b"k", 150), window_key(b"k", 260)

    assert puts_of(WINDOW, records((old, b"1", 0), (kept, b"2", 0), (new, b"3", 0))) == {
        3: {kept: b"2"},
        5: {new: b"3"},
    }


def test_late_window_of_an_expired_segment_is_left_out() -> None:
    new, late = window_key(b"k", 260), window_key(b"k", 149)

    assert puts_of(WINDOW, records((new, b"3", 0), (late, b"1", 0))) == {5: {new: b"3"}}


def test_deleted_window_moves_stream_time_on_too() -> None:
    old, new = window_key(b"k", 149), window_key(b"k", 260)

    assert puts_of(WINDOW, records((old, b"1", 0), (new, None, 0))) == {5: {new: None}}


def test_stream_time_of_an_earlier_run_counts() -> None:
    puts = SegmentPuts(WINDOW, stream_time_ms=260)
    puts.add(ChangelogRecords.of(records((window_key(b"k", 149), b"1", 0))))

    assert (puts.take(), puts.stream_time_ms) == ({}, 260)


def test_key_too_short_for_a_window_is_refused_with_its_offset() -> None:
    puts = SegmentPuts(WINDOW)

    with pytest.raises(StoreFailedError, match="offset 7 of c has a key of 4 bytes, too short"):
        puts.add(ChangelogRecords.of(records((b"word", b"1", 5), first_offset=7)))


_TIMES = st.integers(0, 600)
_ROWS = st.lists(st.tuples(st.sampled_from([b"a", b"b"]), _TIMES, st.sampled_from([b"", b"v", None])), max_size=30)


@given(_ROWS, st.integers(1, 30))
def test_batches_of_any_size_mean_the_same(rows: list[tuple[bytes, int, bytes | None]], size: int) -> None:
    log = records(*((window_key(key, time_ms), value, 1) for key, time_ms, value in rows))
    content: dict[int, dict[bytes, bytes]] = {}
    puts = SegmentPuts(WINDOW)
    for batch in columns(log, size=size):
        puts.add(batch)
        for segment_id, changes in puts.take().items():
            segment = content.setdefault(segment_id, {})
            for key, value in changes.items():
                segment.pop(key, None)
                if value is not None:
                    segment[key] = value

    first_live = WINDOW.first_live_segment(max((time_ms for _, time_ms, _ in rows), default=-1))
    expected: dict[int, dict[bytes, bytes]] = {}
    for key, time_ms, value in rows:
        expected.setdefault(time_ms // 50, {}).pop(window_key(key, time_ms), None)
        if value is not None:
            expected[time_ms // 50][window_key(key, time_ms)] = value
    assert {k: v for k, v in content.items() if k >= first_live} == {
        k: v for k, v in expected.items() if k >= first_live
    }
