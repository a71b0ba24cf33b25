"""CompositeSource: a log dir and the tier as one changelog (changelog-restore 3.4)."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter
from tests.fakes.remote_segments import PARTITION
from tests.restore.changelog.sources.changelog_fixtures import (
    COMMITTED,
    NAME,
    UNCOMMITTED,
    MovingLogs,
    RemoteLogs,
    batch_of,
    counted,
    local_log,
    offsets_of,
    read_rest,
    transactional_log,
    write_cleaned_to,
    write_counted,
)
from tierd.model import IndexType, TopicIdPartition
from tierd.restore.changelog.changelog_errors import ChangelogRangeError, CorruptSourceError
from tierd.restore.changelog.sources.composite_source import CompositeSource
from tierd.restore.changelog.sources.local_log_source import LocalChangelogs, LocalEnd
from tierd.restore.changelog.sources.remote_segment_source import RemoteChangelogs

DAY_MS = 86_400_000


def composite(log_dir: Path, remote: RemoteLogs, *, is_compacted: bool = False) -> CompositeSource:
    return CompositeSource(
        LocalChangelogs([log_dir], is_compacted=lambda _: is_compacted, end=LocalEnd.HIGH_WATERMARK),
        RemoteChangelogs({NAME: remote.view.partition}, remote.tier(), is_compacted=lambda _: is_compacted),
        delete_retention=lambda _: DAY_MS if is_compacted else None,
    )


def local_tail(root: Path, segments: list[tuple[int, int]], *, word: str = "v") -> LogDirWriter:
    """Write the given segments, the first of which need not begin at 0, as retention leaves them."""
    first = segments[0][0]
    log_dir = local_log(root, [(0, first), *segments] if first else segments, word=word)
    for file in (root / str(NAME)).glob(f"{0:020d}.*") if first else []:
        file.unlink()
    return log_dir


@pytest.mark.spec("changelog-restore 46")
async def test_each_offset_comes_once_and_in_order_and_from_this_host_where_it_has_it(tmp_path: Path) -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 100, word="remote"), start=0, end=100)
    local_tail(tmp_path, [(80, 120), (120, 200)], word="local")
    source = composite(tmp_path, remote)

    found, end = await read_rest(source)

    expected = [*(b"remote%d" % n for n in range(80)), *(b"local%d" % n for n in range(80, 200))]
    assert found == list(enumerate(expected))
    assert end == 200
    assert await source.earliest_offset(NAME) == 0
    assert await source.end_offset(NAME, UNCOMMITTED) == 200
    assert await source.list_partitions() == {NAME}


async def test_bytes_are_counted_by_their_place(tmp_path: Path) -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 100), start=0, end=100)
    local_tail(tmp_path, [(80, 100)])
    source = composite(tmp_path, remote)
    from_tier = await source.read(NAME, 0, max_bytes=1, isolation=UNCOMMITTED)
    from_host = await source.read(NAME, 80, max_bytes=1, isolation=UNCOMMITTED)
    assert from_tier.remote_bytes == from_tier.size_bytes > 0
    assert (from_host.remote_bytes, from_host.size_bytes > 0) == (0, True)


@pytest.mark.spec("changelog-restore 48")
async def test_hole_between_the_tier_and_this_host_is_an_error_unless_the_topic_is_compacted(tmp_path: Path) -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 50), start=0, end=50)
    local_tail(tmp_path, [(80, 100)])
    with pytest.raises(CorruptSourceError, match=r"offsets 50 to 79 are missing"):
        await read_rest(composite(tmp_path, remote))
    assert await offsets_of(composite(tmp_path, remote, is_compacted=True), 80) == list(range(80, 100))


@pytest.mark.spec("changelog-restore 49")
@pytest.mark.parametrize(("cleaned_to", "begins"), [(0, 0), (80, 0), (100, 0), (101, 80), (150, 80)])
async def test_compacted_changelog_is_mixed_only_if_the_local_part_was_never_cleaned(
    tmp_path: Path, cleaned_to: int, begins: int
) -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 100, word="remote"), start=0, end=100)
    local_tail(tmp_path, [(80, 200)], word="local")
    write_cleaned_to(tmp_path, cleaned_to)
    source = composite(tmp_path, remote, is_compacted=True)

    assert await source.earliest_offset(NAME) == begins
    found, _ = await read_rest(source, begins)

    assert [offset for offset, _ in found] == list(range(begins, 200))
    first_local = next(offset for offset, value in found if value is not None and value.startswith(b"local"))
    assert first_local >= min(cleaned_to, 100) if begins == 0 else first_local == 80


@pytest.mark.spec("changelog-restore 50")
@pytest.mark.parametrize("first_offset", [0, 101], ids=["a whole local log", "a local log that begins later"])
async def test_key_whose_tombstone_the_local_cleaner_has_dropped_does_not_come_back(
    tmp_path: Path, first_offset: int
) -> None:
    remote = RemoteLogs()
    remote.add(batch_of([(b"k", b"v"), (b"other", b"1")], base_offset=100), start=100, end=151)
    log_dir = LogDirWriter(tmp_path)
    writer = PartitionWriter(tmp_path, NAME, topic_id=PARTITION.topic_id, first_offset=first_offset)
    log_dir.partitions[NAME] = writer
    # The log once had k=v at 100 and the tombstone of k at 200. The cleaner has removed both.
    writer.end_offset = 101
    writer.append_batch(batch_of([(b"other", b"1")], base_offset=101), 1)
    writer.end_offset = 250
    writer.append_batch(batch_of([(b"new", b"2")], base_offset=250), 1)
    log_dir.write_checkpoints()
    write_cleaned_to(tmp_path, 240)
    source = composite(tmp_path, remote, is_compacted=True)

    store: dict[bytes, bytes | None] = {}
    offset = await source.earliest_offset(NAME)
    while True:
        result = await source.read(NAME, offset, max_bytes=1 << 20, isolation=UNCOMMITTED)
        store.update({key: value for key, value in zip(result.records.keys, result.records.values, strict=True) if key})
        if result.next_offset == offset:
            break
        offset = result.next_offset

    assert store == {b"other": b"1", b"new": b"2"}


@pytest.mark.spec("changelog-restore 51")
async def test_records_in_the_tier_whose_abort_marker_is_on_this_host_are_left_out(tmp_path: Path) -> None:
    path = transactional_log(tmp_path, "A - B B+ - A! -")
    remote = RemoteLogs()
    remote.add_rolled(path)
    for segment in sorted(remote.view.list(), key=lambda each: each.start_offset)[4:]:
        remote.expire(segment)
    for base in range(3):
        for file in path.glob(f"{base:020d}.*"):
            file.unlink()

    found, end = await read_rest(composite(tmp_path, remote), isolation=COMMITTED)

    assert ([offset for offset, _ in found], end) == ([1, 2, 4, 6], 7)


@pytest.mark.spec("changelog-restore 52")
async def test_open_transaction_that_began_in_the_tier_ends_committed_reads_there(tmp_path: Path) -> None:
    path = transactional_log(tmp_path, "- A - - -")
    remote = RemoteLogs()
    remote.add_rolled(path)
    for base in range(3):
        for file in path.glob(f"{base:020d}.*"):
            file.unlink()
    source = composite(tmp_path, remote)

    assert await source.end_offset(NAME, COMMITTED) == 1
    assert await source.end_offset(NAME, UNCOMMITTED) == 5
    assert await offsets_of(source, isolation=COMMITTED) == [0]


async def test_segments_that_the_broker_deletes_under_a_read_are_read_from_the_tier(tmp_path: Path) -> None:
    path = local_log(tmp_path, [(0, 20), (20, 40)]).path / str(NAME)
    remote = RemoteLogs()
    remote.add_rolled(path)
    source = composite(tmp_path, remote)
    assert (await source.read(NAME, 0, max_bytes=1, isolation=UNCOMMITTED)).remote_bytes == 0
    for file in path.glob(f"{0:020d}.*"):
        file.unlink()

    result = await source.read(NAME, 5, max_bytes=1, isolation=UNCOMMITTED)

    assert (result.records.offsets, result.remote_bytes > 0) == (list(range(5, 10)), True)
    assert await offsets_of(source, 10) == list(range(10, 40))


@pytest.mark.parametrize(
    "part", [None, IndexType.PRODUCER_SNAPSHOT], ids=["under a read", "while the bounds are looked up"]
)
async def test_segment_that_is_replaced_twice_is_read_from_the_tier(tmp_path: Path, part: IndexType | None) -> None:
    path = local_log(tmp_path, [(0, 20), (20, 40)]).path / str(NAME)
    remote = MovingLogs(part, 2)
    remote.add_rolled(path)
    for file in path.glob(f"{0:020d}.*"):
        file.unlink()

    assert await offsets_of(composite(tmp_path, remote)) == list(range(40))
    assert remote.moves_left == 0


async def test_offset_that_neither_place_has_any_more_is_out_of_range(tmp_path: Path) -> None:
    path = local_log(tmp_path, [(0, 20), (20, 40)]).path / str(NAME)
    remote = RemoteLogs()
    remote.add_rolled(path)
    source = composite(tmp_path, remote)
    assert await source.earliest_offset(NAME) == 0
    for file in path.glob(f"{0:020d}.*"):
        file.unlink()
    first = min(remote.view.list(), key=lambda each: each.start_offset)
    remote.vanish(first)
    remote.expire(first)

    with pytest.raises(ChangelogRangeError) as refused:
        await source.read(NAME, 5, max_bytes=1, isolation=UNCOMMITTED)

    assert (refused.value.earliest_offset, refused.value.end_offset) == (20, 40)


async def test_partition_that_only_one_place_has_is_read_there(tmp_path: Path) -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 20), start=0, end=20)
    empty = LogDirWriter(tmp_path / "empty")
    empty.write_checkpoints()
    assert await offsets_of(composite(tmp_path / "empty", remote)) == list(range(20))
    local_log(tmp_path / "local", [(0, 30)])
    assert await offsets_of(composite(tmp_path / "local", RemoteLogs())) == list(range(30))


async def test_segments_of_an_earlier_topic_of_the_name_are_not_read(tmp_path: Path) -> None:
    remote = RemoteLogs(TopicIdPartition(UUID(int=99), NAME.topic, NAME.partition))
    remote.add(counted(0, 100, word="earlier"), start=0, end=100)
    log_dir = local_log(tmp_path, [(0, 10)], word="present")
    write_counted(log_dir.partitions[NAME], [(10, 20)], word="present")
    log_dir.write_checkpoints()

    found, end = await read_rest(composite(tmp_path, remote))

    assert found == [(n, b"present%d" % n) for n in range(20)]
    assert end == 20
