"""Versions of keys. The expected result is a list of what was put, which is asked for the version at a time."""

from hypothesis import given
from hypothesis import strategies as st

from tests.restore.streams.states import columns, records
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType
from tierd.restore.streams.version_puts import VersionPuts, segment_prefix
from tierd.restore.streams.version_row import Version, VersionRow

Row = tuple[bytes, bytes | None, int]


def versioned(*, retention_ms: int, interval_ms: int) -> StreamsStore:
    return StreamsStore(
        name="v",
        changelog="c",
        subtopology=0,
        type=StreamsStoreType.VERSIONED,
        retention_ms=retention_ms,
        segment_interval_ms=interval_ms,
    )


LASTING = versioned(retention_ms=10_000, interval_ms=20)
SHORT = versioned(retention_ms=40, interval_ms=20)


def write(content: dict[bytes, bytes], puts: VersionPuts) -> None:
    changes = puts.take()
    for segment_id in changes.expired:
        for key in [key for key in content if key.startswith(segment_prefix(segment_id))]:
            del content[key]
    for key, value in changes.puts.items():
        content.pop(key, None)
        if value is not None:
            content[key] = value


def stored(store: StreamsStore, rows: list[Row], *, size: int = 1) -> dict[bytes, bytes]:
    content: dict[bytes, bytes] = {}
    puts = VersionPuts(store, content.get)
    for batch in columns(records(*rows), size=size):
        puts.add(batch)
        write(content, puts)
    return content


def latest(key: bytes, value: bytes, time_ms: int) -> tuple[bytes, bytes]:
    return segment_prefix(-1) + key, time_ms.to_bytes(8, "big") + value


def row(segment_id: int, key: bytes, next_ms: int, *versions: tuple[int, bytes | None]) -> tuple[bytes, bytes]:
    return segment_prefix(segment_id) + key, VersionRow(next_ms, [Version(*each) for each in versions]).encode()


def version_at(content: dict[bytes, bytes], store: StreamsStore, key: bytes, time_ms: int) -> bytes | None:
    """Return what a query would (Kafka: RocksDBVersionedStore.get with a timestamp)."""
    data = content.get(segment_prefix(-1) + key)
    if data is not None and int.from_bytes(data[:8], "big") <= time_ms:
        return data[8:]
    for segment_id in range(60, store.segment_id(time_ms) - 1, -1):
        data = content.get(segment_prefix(segment_id) + key)
        if data is None:
            continue
        versions = VersionRow.decode(data)
        if versions.next_ms <= time_ms:
            return None
        if versions.oldest_ms <= time_ms:
            return versions.versions[versions.find(time_ms)].value
    return None


def test_newest_value_is_a_latest_one() -> None:
    assert stored(LASTING, [(b"k", b"a", 5)]) == dict([latest(b"k", b"a", 5)])


def test_replaced_value_goes_to_the_segment_of_the_end_of_its_validity() -> None:
    assert stored(LASTING, [(b"k", b"a", 5), (b"k", b"b", 45)]) == dict(
        [latest(b"k", b"b", 45), row(2, b"k", 45, (5, b"a"))]
    )


def test_value_at_the_same_time_replaces_the_latest_one() -> None:
    assert stored(LASTING, [(b"k", b"a", 5), (b"k", b"b", 5)]) == dict([latest(b"k", b"b", 5)])


def test_tombstone_removes_the_latest_value_and_keeps_its_history() -> None:
    assert stored(LASTING, [(b"k", b"a", 5), (b"k", None, 25)]) == dict([row(1, b"k", 25, (5, b"a"))])


def test_first_tombstone_of_a_key_is_a_bare_row() -> None:
    assert stored(LASTING, [(b"k", None, 25)]) == dict([row(1, b"k", 25, (25, None))])


def test_late_version_in_an_older_segment_moves_the_version_before_it() -> None:
    rows: list[Row] = [(b"k", b"a", 5), (b"k", b"c", 45), (b"k", b"b", 25)]

    assert stored(LASTING, rows) == dict(
        [latest(b"k", b"c", 45), row(2, b"k", 45, (25, b"b")), row(1, b"k", 25, (5, b"a"))]
    )


def test_late_version_in_the_same_segment_is_put_between() -> None:
    rows: list[Row] = [(b"k", b"a", 41), (b"k", b"c", 45), (b"k", b"b", 43)]

    assert stored(LASTING, rows) == dict([latest(b"k", b"c", 45), row(2, b"k", 45, (43, b"b"), (41, b"a"))])


def test_version_older_than_all_others_comes_first() -> None:
    rows: list[Row] = [(b"k", b"b", 41), (b"k", b"c", 45), (b"k", b"a", 5)]

    assert stored(LASTING, rows) == dict([latest(b"k", b"c", 45), row(2, b"k", 45, (41, b"b"), (5, b"a"))])


def test_tombstone_at_the_time_of_the_only_version_leaves_nothing_as_in_streams() -> None:
    """Kafka Streams deletes the latest value and keeps no tombstone: an older version is then the latest one."""
    rows: list[Row] = [(b"k", b"a", 5), (b"k", None, 5)]

    assert stored(LASTING, rows) == {}
    assert stored(LASTING, [*rows, (b"k", b"b", 1)]) == dict([latest(b"k", b"b", 1)])


def test_record_older_than_the_retention_is_left_out() -> None:
    assert stored(SHORT, [(b"k", b"b", 100), (b"k", b"a", 59)]) == dict([latest(b"k", b"b", 100)])


def test_expired_segment_is_removed_and_the_latest_value_stays() -> None:
    rows: list[Row] = [(b"k", b"a", 5), (b"k", b"b", 15), (b"x", b"y", 100)]

    assert stored(SHORT, rows) == dict([latest(b"k", b"b", 15), latest(b"x", b"y", 100)])


def test_segment_that_expires_before_it_is_written_leaves_nothing() -> None:
    rows: list[Row] = [(b"k", b"a", 5), (b"k", b"b", 15), (b"x", b"y", 100)]

    assert stored(SHORT, rows, size=3) == stored(SHORT, rows)


def test_record_without_key_is_counted_and_means_nothing() -> None:
    puts = VersionPuts(LASTING, lambda _: None)
    puts.add(ChangelogRecords.of(records((None, b"a", 5))))

    assert (puts.take().puts, puts.skipped) == ({}, 1)


_ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b"]),
        st.sampled_from([b"", b"v", b"w", None]),
        st.integers(0, 200),
    ),
    max_size=25,
)


@given(_ROWS)
def test_version_at_every_time_is_the_one_that_was_put(rows: list[Row]) -> None:
    history: dict[bytes, dict[int, bytes | None]] = {}
    put: list[Row] = []
    for key, value, time_ms in rows:
        versions = history.setdefault(key, {})
        if value is None and versions and time_ms == max(versions):
            continue  # Streams may forget this tombstone: see the test above
        versions[time_ms] = value
        put.append((key, value, time_ms))

    content = stored(LASTING, put)

    for key, versions in history.items():
        for time_ms in range(0, 210, 3):
            valid = max((each for each in versions if each <= time_ms), default=None)
            expected = None if valid is None else versions[valid]
            assert version_at(content, LASTING, key, time_ms) == expected


@given(_ROWS, st.integers(1, 25))
def test_batches_of_any_size_mean_the_same(rows: list[Row], size: int) -> None:
    assert stored(SHORT, rows, size=size) == stored(SHORT, rows)


@given(_ROWS, st.integers(0, 25))
def test_store_that_is_opened_again_goes_on_as_before(rows: list[Row], cut: int) -> None:
    content: dict[bytes, bytes] = {}
    puts = VersionPuts(SHORT, content.get)
    log = records(*rows)
    puts.add(ChangelogRecords.of(log[:cut]))
    write(content, puts)

    segments = {int.from_bytes(key[:8], "big") for key in content if key < segment_prefix(-1)}
    puts = VersionPuts(SHORT, content.get, stream_time_ms=puts.stream_time_ms, segments=segments)
    puts.add(ChangelogRecords.of(log[cut:]))
    write(content, puts)

    assert content == stored(SHORT, rows)
