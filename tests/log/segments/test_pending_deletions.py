from pathlib import Path

import pytest

from tierd.log.files.disk import OsDisk
from tierd.log.segments.pending_deletions import PendingDeletions


def test_files_are_unlinked_when_they_are_due(tmp_path: Path) -> None:
    for name in ("a.deleted", "b.deleted", "c.deleted"):
        (tmp_path / name).touch()
    pending = PendingDeletions(OsDisk())
    assert PendingDeletions(OsDisk()).next_due_ms is None
    pending.add(["b.deleted"], due_ms=200)
    pending.add(["a.deleted", "gone.deleted"], due_ms=100)
    assert (len(pending), pending.next_due_ms) == (3, 100)
    assert pending.run_due(tmp_path, now_ms=99) == 0
    assert pending.run_due(tmp_path, now_ms=100) == 1
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["b.deleted", "c.deleted"]
    assert pending.run_all(tmp_path) == 1
    assert (len(pending), pending.run_all(tmp_path)) == (0, 0)


def test_name_without_the_deleted_suffix_is_refused() -> None:
    pending = PendingDeletions(OsDisk())
    with pytest.raises(ValueError, match="does not end with"):
        pending.add(["00000000000000000000.log"], due_ms=0)
    assert len(pending) == 0


class FailingDisk(OsDisk):
    is_failing = True

    def unlink(self, path: Path) -> None:
        if self.is_failing and path.name == "b.deleted":
            raise OSError(5, "Input/output error")
        super().unlink(path)


def test_file_that_cannot_be_unlinked_stays_in_the_queue(tmp_path: Path) -> None:
    disk = FailingDisk()
    pending = PendingDeletions(disk)
    for name in ("a.deleted", "b.deleted", "c.deleted"):
        (tmp_path / name).touch()
        pending.add([name], due_ms=0)
    with pytest.raises(OSError, match="Input/output"):
        pending.run_due(tmp_path, now_ms=0)
    assert len(pending) == 2
    disk.is_failing = False
    assert pending.run_due(tmp_path, now_ms=0) == 2


def test_at_most_the_asked_number_of_files_is_unlinked_in_one_call(tmp_path: Path) -> None:
    pending = PendingDeletions(OsDisk())
    names = [f"{number}.deleted" for number in range(5)]
    for name in names:
        (tmp_path / name).touch()
    pending.add(names, due_ms=0)
    assert [pending.run_due(tmp_path, now_ms=0, limit=2) for _ in range(4)] == [2, 2, 1, 0]
