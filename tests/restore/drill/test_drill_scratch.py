"""The scratch directory: one drill at a time, room for the broker, and nothing left of a drill that was killed."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tierd.errors import AlreadyRunningError, RefusedError, StateDirError
from tierd.restore.drill.drill_scratch import held_scratch


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def roomy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file system of the tests have room, whatever else is on this machine."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1000, 0, 1000))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.usefixtures("roomy_disk")
def test_scratch_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with held_scratch(tmp_path / "state" / "drill") as scratch:
        place = scratch.new_place(0)
        assert place.stat().st_mode & 0o077 == 0
        assert (tmp_path / "state" / "drill").stat().st_mode & 0o077 == 0


def test_second_drill_is_refused_while_one_holds_the_scratch(tmp_path: Path) -> None:
    with held_scratch(tmp_path / "drill"), pytest.raises(AlreadyRunningError), held_scratch(tmp_path / "drill"):
        pytest.fail("it is held")
    with held_scratch(tmp_path / "drill"):
        assert names(tmp_path / "drill") == ["lock"]


@pytest.mark.usefixtures("roomy_disk")
def test_place_of_a_killed_drill_is_removed_by_the_next_one(tmp_path: Path) -> None:
    with held_scratch(tmp_path / "drill") as scratch:
        place = scratch.new_place(0)
        (place / "log-dir" / "orders-0").mkdir(parents=True)
        (place / "log-dir" / "orders-0" / "0.log").write_bytes(b"x")
        kept = scratch.keep(scratch.new_place(0), "orders-0", now_ms=1_700_000_000_000)
    assert place.exists()
    with held_scratch(tmp_path / "drill"):
        assert names(tmp_path / "drill") == [kept.name, "lock"]


def test_result_of_a_topic_with_the_longest_name_is_kept(tmp_path: Path) -> None:
    with held_scratch(tmp_path / "drill") as scratch:
        kept = scratch.keep(scratch.new_place(0), f"{'t' * 249}-0", now_ms=1_700_000_000_000)
        assert kept.is_dir()
        assert kept.name.startswith("kept-20231114T221320.000000-ttt")


def test_sweep_takes_nothing_but_places_and_follows_no_link(tmp_path: Path) -> None:
    with held_scratch(tmp_path / "drill"):
        others = [tmp_path / "drill" / "drill-of-mine", tmp_path / "drill" / "notes"]
        for other in others:
            other.mkdir()
        (tmp_path / "precious").mkdir()
        (tmp_path / "drill" / "drill-1").symlink_to(tmp_path / "precious")
    with held_scratch(tmp_path / "drill"):
        assert names(tmp_path / "drill") == ["drill-1", "drill-of-mine", "lock", "notes"]
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize(
    ("free_bytes", "size_bytes", "fits"),
    [
        *[(200, 100, True), (200, 137, True), (200, 138, False), (200, 1000, False)],
        *[(40, 0, True), (40, 2, True), (40, 3, False)],
    ],
)
def test_drill_leaves_a_part_of_the_file_system_free_or_most_of_a_smaller_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, size_bytes: int, fits: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1000, 1000 - free_bytes, free_bytes))
    with held_scratch(tmp_path / "drill") as scratch:
        if fits:
            scratch.new_place(size_bytes)
            return
        with pytest.raises(RefusedError, match=f"{free_bytes} bytes are free"):
            scratch.new_place(size_bytes)


def test_scratch_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StateDirError) as caught, held_scratch(tmp_path / "file" / "drill"):
        pytest.fail("it cannot be made")
    assert "drill.scratch_dir" in caught.value.remedy
