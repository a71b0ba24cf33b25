"""SegmentHold by itself, over real files."""

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter, SegmentShape
from tests.tiering.setups import HoldModeName, delete_segment
from tierd.files import open_to_read
from tierd.log import PartitionScan, identify_directory, scan_partition
from tierd.model import OffsetRange, PartitionKey, uuid_to_text
from tierd.tiering import SegmentHold, linked_offsets
from tierd.tiering.local.held_segment import FileState, HeldSegment, HoldKind, SegmentFile

SHAPE = SegmentShape()  # 8 records a segment


class Setup:
    def __init__(self, tmp_path: Path, *, rolled: int = 3) -> None:
        self.hold_dir = tmp_path / "hold"
        self.log_dir = LogDirWriter(tmp_path / "kafka")
        self.writer: PartitionWriter = self.log_dir.add_partition("orders")
        self.writer.fill(rolled_segments=rolled, shape=SHAPE)
        self.path = self.writer.path

    def hold(
        self, *, mode: HoldModeName = "auto", max_bytes: int | None = None, max_descriptors: int | None = None
    ) -> SegmentHold:
        return SegmentHold(mode=mode, hold_dir=self.hold_dir, max_bytes=max_bytes, max_descriptors=max_descriptors)

    def scan(self) -> PartitionScan:
        directory = identify_directory(self.path)
        assert directory is not None
        return scan_partition(directory)

    @property
    def key(self) -> PartitionKey:
        return self.scan().directory.partition.topic_id, 0

    def log(self, base: int) -> Path:
        return self.path / f"{base:020d}.log"


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def _names(path: Path) -> dict[str, FileState]:
    return {str(file.relative_to(path)): FileState.of(file) for file in sorted(path.rglob("*"))}


def _begin_anew(path: Path, *, active: int, content: bytes, at: int) -> None:
    """Cut a log off whole and restart it at ``at``, as a broker does (LocalLog.truncateFullyAndStartAt)."""
    for file in path.iterdir():
        if file.name[:20].isdigit():
            file.unlink()
    (path / f"{active:020d}.log.deleted").write_bytes(content)
    (path / f"{at:020d}.log").touch()


@pytest.mark.parametrize("mode", ["link", "descriptor"])
def test_a_held_segment_outlives_the_brokers_deletion(setup: Setup, mode: HoldModeName) -> None:
    hold = setup.hold(mode=mode)
    content = setup.log(0).read_bytes()
    hold.protect(setup.scan(), copied_through=-1)
    delete_segment(setup.path, 0)

    first, *others = hold.protect(setup.scan(), copied_through=-1)

    assert (first.base_offset, first.end_offset) == (0, 7)
    assert first.log.read_bytes() == content
    snapshot = first.path(SegmentFile.PRODUCER_SNAPSHOT)
    assert snapshot is not None
    assert snapshot.read_bytes()
    assert first.path(SegmentFile.TRANSACTION_INDEX) is None
    assert [held.base_offset for held in others] == [8, 16]
    hold.close()


@pytest.mark.parametrize("mode", ["link", "descriptor"])
def test_snapshot_that_the_broker_writes_after_the_roll_is_held(setup: Setup, mode: HoldModeName) -> None:
    hold = setup.hold(mode=mode)
    snapshot_file = setup.path / "00000000000000000008.snapshot"
    content = snapshot_file.read_bytes()
    snapshot_file.unlink()
    assert hold.protect(setup.scan(), copied_through=-1)[0].path(SegmentFile.PRODUCER_SNAPSHOT) is None
    snapshot_file.write_bytes(content)
    hold.protect(setup.scan(), copied_through=-1)
    delete_segment(setup.path, 0)
    snapshot_file.unlink(missing_ok=True)

    first = hold.protect(setup.scan(), copied_through=-1)[0]

    held_snapshot = first.path(SegmentFile.PRODUCER_SNAPSHOT)
    assert held_snapshot is not None
    assert held_snapshot.read_bytes() == content
    hold.close()


def test_hold_and_release_change_no_file_of_the_log_dir(setup: Setup) -> None:
    before = _names(setup.log_dir.path)
    hold = setup.hold()
    hold.protect(setup.scan(), copied_through=-1)
    hold.release(setup.key, 0)
    hold.drop_partition(setup.key)
    assert _names(setup.log_dir.path) == before


def test_segment_that_is_in_the_tier_is_released(setup: Setup) -> None:
    hold = setup.hold()
    hold.protect(setup.scan(), copied_through=-1)
    assert hold.statistics().segments == 3
    assert [held.base_offset for held in hold.protect(setup.scan(), copied_through=7)] == [8, 16]
    assert hold.statistics().segments == 2
    assert hold.statistics().bytes == sum(setup.log(base).stat().st_size for base in (8, 16))


def test_links_are_recovered_by_the_next_process(setup: Setup) -> None:
    setup.hold().protect(setup.scan(), copied_through=-1)
    delete_segment(setup.path, 0)
    (setup.path / "leader-epoch-checkpoint").write_text(
        "0\n1\n0 8\n"
    )  # the broker forgets the epochs of deleted segments

    hold = setup.hold()
    assert hold.recover() == 3

    first = hold.protect(setup.scan(), copied_through=-1)[0]
    assert (first.base_offset, first.kind) == (0, HoldKind.LINK)
    assert first.lineage.epoch_for(0) == 0
    assert hold.statistics().bytes > 0


def test_an_unfinished_hold_is_removed_at_the_next_start(setup: Setup) -> None:
    setup.hold().protect(setup.scan(), copied_through=-1)
    (partition_dir,) = setup.hold_dir.glob("*/*")
    (partition_dir / "00000000000000000099-120.tmp").mkdir()
    (partition_dir / "00000000000000000099-120-7.log").touch()
    (partition_dir / "00000000000000000099-120-7.leader-epoch-checkpoint.tmp").touch()
    hold = setup.hold()
    assert hold.recover() == 3
    assert not list(setup.hold_dir.rglob("*.tmp"))
    assert not list(setup.hold_dir.rglob(f"{99:020d}*"))


def test_file_of_a_person_beside_the_links_is_not_touched(setup: Setup) -> None:
    setup.hold().protect(setup.scan(), copied_through=-1)
    (partition_dir,) = setup.hold_dir.glob("*/*")
    note = partition_dir / "00000000000000000099-notes.log"
    note.touch()
    assert setup.hold().recover() == 3
    assert note.exists()


class Killed(BaseException):
    """End of a process in the middle of a hold: nothing is cleaned up."""


def _killed_at_link(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    link, calls = os.link, iter(range(1, 1_000))

    def kill(source: str, target: str, *, follow_symlinks: bool = True) -> None:
        if next(calls) == number:
            raise Killed
        link(source, target, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "link", kill)


def _as_earlier_version_held(setup: Setup, base: int, next_base: int) -> Path:
    """Link a segment into a directory of its own, as versions before stems did; the files keep the broker's names."""
    folder = setup.hold_dir / uuid_to_text(setup.key[0]) / "0" / f"{base:020d}-{next_base}"
    folder.mkdir(parents=True)
    for suffix in (".log", ".index", ".timeindex"):
        os.link(setup.path / f"{base:020d}{suffix}", folder / f"{base:020d}{suffix}")
    os.link(setup.path / f"{next_base:020d}.snapshot", folder / f"{next_base:020d}.snapshot")
    (folder / "leader-epoch-checkpoint").write_bytes((setup.path / "leader-epoch-checkpoint").read_bytes())
    return folder


def _files(held: HeldSegment) -> set[SegmentFile]:
    return {file for file in SegmentFile if (path := held.path(file)) is not None and path.is_file()}


EVERY_FILE = {
    SegmentFile.LOG,
    SegmentFile.OFFSET_INDEX,
    SegmentFile.TIME_INDEX,
    SegmentFile.PRODUCER_SNAPSHOT,
}  # of a segment without aborted transactions


def test_held_segments_of_a_partition_share_one_directory(setup: Setup) -> None:
    setup.hold().protect(setup.scan(), copied_through=-1)
    assert [path.relative_to(setup.hold_dir).as_posix() for path in setup.hold_dir.rglob("*") if path.is_dir()] == [
        uuid_to_text(setup.key[0]),
        f"{uuid_to_text(setup.key[0])}/0",
    ]


def test_released_segment_leaves_no_link(setup: Setup) -> None:
    hold = setup.hold()
    first = hold.protect(setup.scan(), copied_through=-1)[0]
    hold.release(setup.key, 0)
    assert not list(setup.hold_dir.rglob(f"{Path(first.root).name}*"))
    assert len(list(setup.hold_dir.rglob("*.log"))) == 2


@pytest.mark.parametrize("number", range(1, 20))  # three segments with six tries of a link each; the last one is late
def test_hold_that_a_crash_interrupts_is_whole_or_none_at_the_next_start(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with monkeypatch.context() as crash, contextlib.suppress(Killed):
        _killed_at_link(crash, number)
        setup.hold().protect(setup.scan(), copied_through=-1)

    hold = setup.hold()
    count = hold.recover()

    recovered = hold.held(setup.key)
    assert count == len(recovered)
    assert all(_files(held) == EVERY_FILE for held in recovered)
    stems = {Path(held.root).name for held in recovered}
    assert {link.name.partition(".")[0] for link in setup.hold_dir.glob("*/*/*")} == stems
    assert [_files(held) for held in hold.protect(setup.scan(), copied_through=-1)] == [EVERY_FILE] * 3


def test_directory_of_an_earlier_version_is_taken_over(setup: Setup) -> None:
    content = setup.log(0).read_bytes()
    folder = _as_earlier_version_held(setup, 0, 8)
    delete_segment(setup.path, 0)

    assert setup.hold().recover() == 1

    assert not folder.exists()
    hold = setup.hold()
    assert hold.recover() == 1
    first = hold.protect(setup.scan(), copied_through=-1)[0]
    assert (first.kind, first.log.read_bytes(), _files(first)) == (HoldKind.LINK, content, EVERY_FILE)
    hold.release(setup.key, 0)
    assert not list(setup.hold_dir.rglob(f"{0:020d}*"))


@pytest.mark.parametrize("number", range(1, 8))
def test_takeover_that_a_crash_interrupts_loses_nothing(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    content = setup.log(0).read_bytes()
    folder = _as_earlier_version_held(setup, 0, 8)
    delete_segment(setup.path, 0)
    with monkeypatch.context() as crash, contextlib.suppress(Killed):
        _killed_at_link(crash, number)
        setup.hold().recover()

    hold = setup.hold()
    assert hold.recover() == 1

    (first,) = hold.held(setup.key)
    assert (first.kind, first.log.read_bytes(), _files(first)) == (HoldKind.LINK, content, EVERY_FILE)
    assert not folder.exists()


def test_crash_between_takeover_and_removal_of_the_directory_loses_nothing(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = setup.log(0).read_bytes()
    folder = _as_earlier_version_held(setup, 0, 8)
    delete_segment(setup.path, 0)

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as crash, contextlib.suppress(Killed):
        crash.setattr(Path, "rename", kill)
        setup.hold().recover()
    hold = setup.hold()
    hold.recover()

    (first,) = hold.held(setup.key)
    assert (first.kind, first.log.read_bytes(), _files(first)) == (HoldKind.LINK, content, EVERY_FILE)
    assert not folder.exists()


def test_directory_that_cannot_be_taken_over_now_is_read_where_it_is(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = setup.log(0).read_bytes()
    folder = _as_earlier_version_held(setup, 0, 8)
    delete_segment(setup.path, 0)

    def refuse(*paths: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    hold = setup.hold()
    with monkeypatch.context() as full:
        full.setattr(os, "link", refuse)
        assert hold.recover() == 1

    first = hold.protect(setup.scan(), copied_through=-1)[0]
    assert (first.log, first.log.read_bytes(), _files(first)) == (folder / setup.log(0).name, content, EVERY_FILE)
    hold.close()


def test_linked_offsets_are_known_without_the_daemon_that_holds_them(setup: Setup) -> None:
    _as_earlier_version_held(setup, 0, 8)
    setup.hold().protect(setup.scan(), copied_through=7)
    partition = setup.scan().directory.partition
    assert linked_offsets(setup.hold_dir, partition) == (OffsetRange(0, 7), OffsetRange(8, 15), OffsetRange(16, 23))


def test_of_two_holds_with_one_base_offset_the_next_start_keeps_the_one_that_reaches_further(setup: Setup) -> None:
    shorter = Path(setup.hold().protect(setup.scan(), copied_through=-1)[0].root)
    assert shorter.name.startswith(f"{0:020d}-8-")
    for link in shorter.parent.glob(f"{shorter.name}.*"):  # "-24-" is before "-8-" by name
        os.link(link, link.with_name(link.name.replace("-8-", "-24-1", 1)))

    hold = setup.hold()
    hold.recover()

    assert (hold.held(setup.key)[0].base_offset, hold.held(setup.key)[0].next_base_offset) == (0, 24)
    assert not list(shorter.parent.glob(f"{shorter.name}.*"))


def test_marked_index_beside_a_live_log_is_of_a_replaced_segment_and_not_held(setup: Setup) -> None:
    index = setup.log(0).with_suffix(".index")
    index.rename(index.with_name(index.name + ".deleted"))
    assert setup.hold().protect(setup.scan(), copied_through=-1)[0].path(SegmentFile.OFFSET_INDEX) is None


def test_directory_that_is_no_hold_is_not_touched(setup: Setup) -> None:
    strange = setup.hold_dir / "notes" / "of-a-person"
    strange.mkdir(parents=True)
    assert setup.hold().recover() == 0
    assert strange.is_dir()


def test_segment_that_compaction_replaced_is_held_in_its_new_form(setup: Setup) -> None:
    hold = setup.hold()
    before = hold.protect(setup.scan(), copied_through=-1)[0]
    cleaned = setup.path / "cleaned"
    cleaned.write_bytes(setup.log(0).read_bytes())
    cleaned.rename(setup.log(0))
    after = hold.protect(setup.scan(), copied_through=-1)[0]
    assert after.log_file.inode != before.log_file.inode
    assert after.log_file.inode == setup.log(0).stat().st_ino
    assert hold.statistics().segments == 3


def test_segment_that_truncation_cut_off_is_released(setup: Setup) -> None:
    hold = setup.hold()
    hold.protect(setup.scan(), copied_through=-1)
    for base in (16, 24):
        delete_segment(setup.path, base)  # the segment of 8 is the active one again
    assert [held.base_offset for held in hold.protect(setup.scan(), copied_through=-1)] == [0]
    assert hold.statistics().segments == 1


@pytest.mark.parametrize("mode", ["link", "descriptor"])
def test_segments_stay_held_while_the_log_is_empty(setup: Setup, mode: HoldModeName) -> None:
    """A replica whose directory was lost begins with an empty log: what is held of it may be all there is."""
    hold = setup.hold(mode=mode)
    hold.protect(setup.scan(), copied_through=-1)
    content = hold.held(setup.key)[1].log.read_bytes()
    _begin_anew(setup.path, active=24, content=b"", at=0)

    assert hold.protect(setup.scan(), copied_through=7) == ()  # the log has none of these offsets
    held = hold.held(setup.key)
    assert [each.base_offset for each in held] == [8, 16]
    assert held[0].log.read_bytes() == content
    hold.close()


def test_held_segments_outlive_a_replica_that_begins_anew_at_the_log_start_of_its_leader(setup: Setup) -> None:
    hold = setup.hold()
    hold.protect(setup.scan(), copied_through=-1)
    _begin_anew(setup.path, active=24, content=b"", at=0)
    hold.protect(setup.scan(), copied_through=-1)
    _begin_anew(setup.path, active=0, content=b"", at=24)

    assert [each.base_offset for each in hold.protect(setup.scan(), copied_through=-1)] == [0, 8, 16]


def test_a_segment_that_the_broker_has_marked_for_deletion_can_still_be_held(setup: Setup) -> None:
    for file in setup.path.glob(f"{0:020d}.*"):
        file.rename(file.with_name(file.name + ".deleted"))
    first = setup.hold().protect(setup.scan(), copied_through=-1)[0]
    assert (first.base_offset, first.next_base_offset, first.kind) == (0, 8, HoldKind.LINK)
    assert first.path(SegmentFile.PRODUCER_SNAPSHOT) is not None


def test_file_that_compaction_marked_for_deletion_is_not_held(setup: Setup) -> None:
    old = setup.path / f"{12:020d}.log.deleted"
    old.write_bytes(b"replaced")
    held = setup.hold().protect(setup.scan(), copied_through=-1)
    assert [segment.base_offset for segment in held] == [0, 8, 16]


def test_log_that_restarts_above_a_backlog_does_not_cover_the_backlog(setup: Setup) -> None:
    hold = setup.hold()
    hold.protect(setup.scan(), copied_through=-1)
    _begin_anew(setup.path, active=0, content=b"", at=24)

    held = hold.protect(setup.scan(), copied_through=7)

    assert [(each.base_offset, each.next_base_offset) for each in held] == [(8, 16), (16, 24)]


def test_active_segment_of_a_log_before_its_restart_ends_with_its_data(setup: Setup) -> None:
    content = setup.log(8).read_bytes()
    _begin_anew(setup.path, active=8, content=content, at=24)

    held = setup.hold().protect(setup.scan(), copied_through=-1)

    assert [(each.base_offset, each.next_base_offset) for each in held] == [(8, 16)]


def test_empty_segment_that_was_held_during_a_restart_of_its_log_is_released(setup: Setup) -> None:
    _begin_anew(setup.path, active=0, content=b"", at=24)
    (setup.path / f"{0:020d}.log.deleted").rename(setup.log(0))  # as in the moment before the rename
    hold = setup.hold()
    assert [(each.base_offset, each.next_base_offset) for each in hold.protect(setup.scan(), copied_through=7)] == [
        (0, 24)
    ]
    setup.log(0).rename(setup.path / f"{0:020d}.log.deleted")

    assert hold.protect(setup.scan(), copied_through=7) == ()


def test_deleted_segment_that_the_cleaner_emptied_ends_at_the_next_segment(setup: Setup) -> None:
    delete_segment(setup.path, 0)
    for file in setup.path.glob(f"{8:020d}.*"):
        if file.suffix != ".snapshot":
            file.rename(file.with_name(file.name + ".deleted"))
    (setup.path / f"{8:020d}.log.deleted").write_bytes(b"")

    held = setup.hold().protect(setup.scan(), copied_through=-1)

    assert [(each.base_offset, each.next_base_offset) for each in held] == [(8, 16), (16, 24)]


def test_oldest_segments_are_held_when_the_hold_is_full(setup: Setup) -> None:
    size = setup.log(0).stat().st_size
    hold = setup.hold(max_bytes=2 * size)
    kinds = [held.kind for held in hold.protect(setup.scan(), copied_through=-1)]
    assert kinds == [HoldKind.LINK, HoldKind.LINK, HoldKind.NONE]
    statistics = hold.statistics()
    assert (statistics.unheld_segments, statistics.bytes) == (1, 2 * size)
    assert "hold.max_bytes" in statistics.unheld_reason
    hold.protect(setup.scan(), copied_through=7)
    assert hold.statistics().unheld_segments == 0


def test_number_of_held_descriptors_is_bounded(setup: Setup) -> None:
    hold = setup.hold(mode="descriptor", max_descriptors=4)
    kinds = [held.kind for held in hold.protect(setup.scan(), copied_through=-1)]
    assert kinds == [HoldKind.DESCRIPTOR, HoldKind.NONE, HoldKind.NONE]
    assert "4 descriptors" in hold.statistics().unheld_reason
    hold.close()
    assert hold.statistics().descriptors == 0


@pytest.mark.parametrize("refusal", [errno.EXDEV, errno.EPERM], ids=["another mount", "protected_hardlinks"])
def test_files_are_kept_open_if_links_are_impossible(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    tries = []

    def refuse(*paths: object, **options: object) -> None:
        tries.append(paths)
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "link", refuse)
    hold = setup.hold()
    kinds = {held.kind for held in hold.protect(setup.scan(), copied_through=-1)}
    assert kinds == {HoldKind.DESCRIPTOR}
    assert len(tries) == 1, "asked once per log dir"
    (log_dir,) = hold.statistics().log_dirs
    assert log_dir.kind is HoldKind.DESCRIPTOR
    assert os.strerror(refusal) in log_dir.reason
    hold.close()


def test_full_state_dir_makes_the_hold_keep_files_open_until_links_succeed(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "link", refuse)
        hold = setup.hold()
        assert hold.protect(setup.scan(), copied_through=15)[0].kind is HoldKind.DESCRIPTOR
    assert hold.protect(setup.scan(), copied_through=-1)[0].kind is HoldKind.LINK
    hold.close()


def test_files_are_kept_open_if_the_hold_dir_is_no_directory(setup: Setup) -> None:
    setup.hold_dir.parent.joinpath("hold").touch()
    hold = setup.hold()
    assert hold.recover() == 0
    assert {held.kind for held in hold.protect(setup.scan(), copied_through=-1)} == {HoldKind.DESCRIPTOR}
    assert "Not a directory" in hold.statistics().log_dirs[0].reason
    hold.close()


def test_mode_none_holds_no_segment_and_reports_none_as_unheld(setup: Setup) -> None:
    hold = setup.hold(mode="none")
    held = hold.protect(setup.scan(), copied_through=-1)
    assert {segment.kind for segment in held} == {HoldKind.NONE}
    assert hold.statistics().unheld_segments == 0
    assert held[0].log == setup.log(0)


def test_dropped_partition_leaves_no_directory_in_the_hold_dir(setup: Setup) -> None:
    hold = setup.hold()
    hold.protect(setup.scan(), copied_through=-1)
    assert hold.drop_partition(setup.key) == 3
    assert list(setup.hold_dir.iterdir()) == []
    assert hold.partitions() == []


def merge(setup: Setup, base: int, *others: int) -> bytes:
    """Compact as a broker does: one log replaces several, under the name of the first; return its bytes."""
    content = b"".join(setup.log(each).read_bytes() for each in (base, *others))
    cleaned = setup.path / "cleaned"
    cleaned.write_bytes(content)
    for other in others:
        mark_deleted(setup, other)
    cleaned.rename(setup.log(base))
    return content


def mark_deleted(setup: Setup, base: int) -> None:
    for file in setup.path.glob(f"{base:020d}.*[!d]"):
        if file.suffix != ".snapshot":
            file.rename(file.with_name(file.name + ".deleted"))


@pytest.mark.parametrize("mode", ["link", "descriptor"])
def test_merged_log_is_not_held_with_the_end_from_an_older_listing(setup: Setup, mode: HoldModeName) -> None:
    hold, listed = setup.hold(mode=mode), setup.scan()
    merged = merge(setup, 0, 8)
    assert [held.base_offset for held in hold.protect(listed, copied_through=-1)] == [16], "segment 0 is checked again"
    first, second = hold.protect(setup.scan(), copied_through=-1)
    assert (first.base_offset, first.next_base_offset, second.base_offset) == (0, 16, 16)
    assert first.log.read_bytes() == merged
    hold.close()


def test_merged_log_in_deletion_by_retention_is_held_with_its_own_end(setup: Setup) -> None:
    merged = merge(setup, 0, 8)
    mark_deleted(setup, 0)  # the names of segment 8, which was merged into it, still exist
    first, second = setup.hold().protect(setup.scan(), copied_through=-1)
    assert (first.base_offset, first.next_base_offset, second.base_offset) == (0, 16, 16)
    assert first.log.read_bytes() == merged
    snapshot = first.path(SegmentFile.PRODUCER_SNAPSHOT)
    assert snapshot is not None
    assert snapshot.samefile(setup.path / f"{16:020d}.snapshot")


def test_originals_stay_held_until_the_merged_log_is_held(setup: Setup) -> None:
    hold = setup.hold()
    originals = [setup.log(base).read_bytes() for base in (0, 8)]
    hold.protect(setup.scan(), copied_through=-1)
    merge(setup, 0, 8)
    listed = setup.scan()
    delete_segment(setup.path, 0)  # by retention, before a hold of the merged log
    for _ in range(2):
        held = hold.protect(listed, copied_through=-1)
        assert [each.log.read_bytes() for each in held[:2]] == originals
        listed = setup.scan()


def test_log_that_compaction_made_smaller_replaces_the_held_original(setup: Setup) -> None:
    hold = setup.hold()
    hold.protect(setup.scan(), copied_through=-1)
    cleaned = merge(setup, 8)
    held = hold.protect(setup.scan(), copied_through=-1)
    assert [each.base_offset for each in held] == [0, 8, 16]
    assert held[1].log.read_bytes() == cleaned
    assert held[1].log.stat().st_ino == setup.log(8).stat().st_ino
    stems = {link.name.partition(".")[0] for link in setup.hold_dir.glob("*/*/*")}
    assert (hold.statistics().segments, len(stems)) == (3, 3)
    assert hold.statistics().bytes == sum(setup.log(base).stat().st_size for base in (0, 8, 16))


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_secret(path: Path) -> None:
    path.symlink_to(path.with_name("secret"))


@pytest.mark.parametrize("plant", [pipe, link_to_secret])
@pytest.mark.parametrize("mode", ["descriptor", "link"])
def test_pipe_or_link_in_place_of_an_index_does_not_stop_a_hold_and_is_not_followed(
    setup: Setup, plant: Callable[[Path], None], mode: HoldModeName
) -> None:
    setup.log(0).with_name("secret").write_bytes(b"secret")
    index = setup.log(0).with_suffix(".index")
    index.unlink()
    plant(index)
    hold = setup.hold(mode=mode)
    taken: list[HeldSegment] = []
    thread = threading.Thread(target=lambda: taken.extend(hold.protect(setup.scan(), copied_through=-1)), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it waits for a writer"
    first = min(taken, key=lambda held: held.base_offset)
    path = first.path(SegmentFile.OFFSET_INDEX)
    if path is not None:
        with pytest.raises(OSError, match="not a regular file"):
            open_to_read(path)
    hold.close()
