import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.logs import NOW_MS, open_log, records
from tierd.log import parse_lineage
from tierd.log.files.disk import OsDisk
from tierd.log.files.leader_epoch import LeaderEpochFileCache
from tierd.log.log_errors import CheckpointError
from tierd.model import EpochEndOffset, EpochEntry, Lineage
from tierd.model.lineage import UNDEFINED_END


def cache_of(folder: Path, *entries: tuple[int, int]) -> LeaderEpochFileCache:
    cache = LeaderEpochFileCache(OsDisk(), folder)
    for epoch, start_offset in entries:
        cache.assign(epoch=epoch, start_offset=start_offset)
    return cache


def written(folder: Path) -> list[EpochEntry]:
    """Return the content of the file, read by another program."""
    return list(parse_lineage((folder / "leader-epoch-checkpoint").read_bytes(), name="f").entries)


@pytest.mark.spec("log-format EPO-01")
def test_empty_cache_has_no_epochs_and_truncations_change_nothing(tmp_path: Path) -> None:
    cache = cache_of(tmp_path)
    assert (cache.latest_epoch, cache.lineage.latest, cache.lineage.earliest, cache.is_empty) == (
        None,
        None,
        None,
        True,
    )
    assert cache.lineage.end_offset_for(0, log_end_offset=9) == UNDEFINED_END
    assert cache.lineage.epoch_for(0) is None
    cache.truncate_from_end(0)
    cache.truncate_from_start(9)
    assert not cache.is_pending
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b""


@pytest.mark.spec("log-format EPO-02")
@pytest.mark.spec("log-format EPO-03")
def test_epoch_is_assigned_once_and_written_immediately(tmp_path: Path) -> None:
    cache = cache_of(tmp_path)
    assert cache.assign(epoch=2, start_offset=11)
    assert written(tmp_path) == [(2, 11)]
    assert not cache.assign(epoch=2, start_offset=12)
    assert (cache.latest_epoch, cache.lineage.end_offset_for(2, log_end_offset=14)) == (2, EpochEndOffset(2, 14))
    assert cache.lineage.epoch_for(13) == 2


@pytest.mark.spec("log-format EPO-04")
@pytest.mark.spec("log-format EPO-05")
@pytest.mark.spec("log-format EPO-06")
@pytest.mark.parametrize(
    ("assigned", "left"),
    [
        ([(2, 9), (3, 9)], [(3, 9)]),
        ([(2, 6), (3, 5)], [(3, 5)]),
        ([(1, 5), (2, 6), (1, 7)], [(1, 7)]),
    ],
)
def test_new_epoch_replaces_the_entries_that_contradict_it(
    tmp_path: Path, assigned: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    assert list(cache_of(tmp_path, *assigned).lineage.entries) == left == written(tmp_path)


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_neither_epoch_nor_offset_may_be_negative(tmp_path: Path, epoch: int, start_offset: int) -> None:
    with pytest.raises(ValueError, match="neither may be negative"):
        cache_of(tmp_path).assign(epoch=epoch, start_offset=start_offset)


@pytest.mark.spec("log-format EPO-15")
@pytest.mark.spec("log-format EPO-11")
@pytest.mark.spec("log-format EPO-12")
@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        (None, 8, [(2, 6)]),
        (None, 9, [(2, 6), (3, 8)]),
        (None, -1, [(2, 6), (3, 8), (4, 11)]),
        (1, None, [(2, 6), (3, 8), (4, 11)]),
        (8, None, [(3, 8), (4, 11)]),
        (9, None, [(3, 9), (4, 11)]),
        (15, None, [(4, 15)]),
        (9, 11, [(3, 9)]),
        (0, 0, []),
    ],
)
def test_truncation_changes_the_cache_immediately_and_the_file_later(
    tmp_path: Path, start: int | None, end: int | None, left: list[tuple[int, int]]
) -> None:
    cache = cache_of(tmp_path, (2, 6), (3, 8), (4, 11))
    if start is not None:
        cache.truncate_from_start(start)
    if end is not None:
        cache.truncate_from_end(end)
    assert list(cache.lineage.entries) == left
    assert cache.is_pending == (len(left) < 3)
    assert written(tmp_path) == [(2, 6), (3, 8), (4, 11)]
    cache.write_pending()
    assert not cache.is_pending
    assert written(tmp_path) == left


@pytest.mark.spec("log-format EPO-15")
def test_assignment_writes_a_pending_truncation_too(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (2, 6), (3, 8))
    cache.truncate_from_end(8)
    cache.assign(epoch=5, start_offset=8)
    assert not cache.is_pending
    assert written(tmp_path) == [(2, 6), (5, 8)]


@pytest.mark.spec("log-format EPO-16")
@pytest.mark.parametrize("offset", [20, 21])
def test_epoch_that_begins_at_the_log_end_is_dropped_by_a_truncation_there(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(records(20), now_ms=NOW_MS)
    log.assign_leader_epoch(1, 20)
    assert list(log.leader_epochs.entries) == [(0, 0), (1, 20)]
    assert not log.truncate_to(offset, now_ms=NOW_MS)
    assert list(log.leader_epochs.entries) == [(0, 0)]
    log.housekeep(NOW_MS)
    assert written(log.directory) == [(0, 0)]


@pytest.mark.spec("log-format EPO-17")
def test_truncation_drops_epochs_one_by_one_with_their_offsets(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch, offsets in ((0, range(10)), (1, range(10, 16)), (2, range(16, 20))):
        for offset in offsets:
            log.append_as_follower(records(base_offset=offset, epoch=epoch), now_ms=NOW_MS)
    counts = []
    for offset in (20, 11, 10, 0):
        log.truncate_to(offset, now_ms=NOW_MS)
        counts.append(len(log.leader_epochs.entries))
    assert counts == [3, 2, 1, 0]


@pytest.mark.spec("log-format DIR-23")
def test_lineage_is_read_by_another_cache_as_it_was_written(tmp_path: Path) -> None:
    one = cache_of(tmp_path, (0, 0), (2, 7), (3, 8), (9, 2**40))
    assert cache_of(tmp_path).lineage == one.lineage


def test_a_cleared_cache_has_an_empty_file(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (0, 0))
    cache.clear()
    assert cache.is_empty
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n0\n"


def test_later_of_two_contradicting_lines_wins(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n3\n1 5\n2 6\n1 7\n")
    assert list(cache_of(tmp_path).lineage.entries) == [(1, 7)]


@pytest.mark.parametrize("content", ["1\n0\n", "0\n2\n0 0\n", "0\n1\n0 zero\n", "0\n1\n-1 0\n", "0\n1\n0\n", "x"])
def test_content_that_is_no_epoch_checkpoint_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(content)
    with pytest.raises(CheckpointError, match="leader-epoch-checkpoint:"):
        cache_of(tmp_path)


def test_pending_write_is_no_error_when_the_directory_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    cache = cache_of(folder, (0, 0), (1, 5))
    cache.truncate_from_end(5)
    shutil.rmtree(folder)
    cache.write_pending()
    assert list(tmp_path.iterdir()) == []


def test_epoch_that_cannot_be_written_is_not_assigned(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    cache = cache_of(folder, (0, 0))
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError):
        cache.assign(epoch=1, start_offset=5)
    assert cache.latest_epoch == 0


@pytest.mark.spec("log-format TRN-10")
def test_detached_cache_does_not_write_its_file(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (0, 0), (1, 5))
    cache.truncate_from_end(5)
    cache.detach()
    cache.write_pending()
    cache.assign(epoch=3, start_offset=7)
    cache.truncate_from_end(7)
    cache.write_pending()
    assert written(tmp_path) == [(0, 0), (1, 5)]


operations = st.one_of(
    st.tuples(st.just("assign"), st.integers(0, 8), st.integers(0, 30)),
    st.tuples(st.just("start"), st.just(0), st.integers(-1, 30)),
    st.tuples(st.just("end"), st.just(0), st.integers(-1, 30)),
    st.tuples(st.just("write"), st.just(0), st.just(0)),
)


@pytest.mark.spec("log-format EPO-15")
@given(st.lists(operations, max_size=20))
def test_file_equals_the_cache_when_no_write_is_pending(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("epochs")
    cache, model = cache_of(folder), Lineage()
    for kind, epoch, offset in steps:
        match kind:
            case "assign":
                cache.assign(epoch=epoch, start_offset=offset)
                model = model.assign(epoch=epoch, start_offset=offset)
            case "start":
                cache.truncate_from_start(offset)
                model = model.truncated_from_start(offset)
            case "end":
                cache.truncate_from_end(offset)
                model = model.truncated_from_end(offset)
            case _:
                cache.write_pending()
        assert cache.lineage == model
        if not cache.is_pending:
            assert written(folder) == list(model.entries)
