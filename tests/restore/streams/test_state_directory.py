import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.restore.streams.states import COUNTS, WINDOWS
from tierd.errors import RefusedError
from tierd.restore.streams.state_directory import StreamsStateDirectory

CHECKPOINT = Path("app/0_0/.checkpoint")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StreamsStateDirectory]:
    opened = StreamsStateDirectory.open(tmp_path, "app")
    yield opened
    opened.close()


def built(state: StreamsStateDirectory, content: str) -> Path:
    path = state.stage_directory(COUNTS, 0) / "store"
    path.mkdir(parents=True)
    (path / "file").write_text(content)
    return path


def test_missing_directory_is_made_with_the_mode_of_streams(tmp_path: Path) -> None:
    StreamsStateDirectory.open(tmp_path / "new" / "state", "app").close()

    assert (tmp_path / "new/state/app").stat().st_mode & 0o777 == 0o750


def test_directory_in_use_is_refused(state: StreamsStateDirectory) -> None:
    with pytest.raises(RefusedError, match=r"app is in use: \.lock is locked") as refused:
        StreamsStateDirectory.open(state.path, "app")

    assert refused.value.remedy == "stop the application, then restore again"


def test_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    owner = (tmp_path / "app").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with pytest.raises(RefusedError, match=f"belongs to user id {owner}"):
        StreamsStateDirectory.open(tmp_path, "app")


@pytest.mark.parametrize("application_id", ["", "..", "a/b"])
def test_application_id_that_is_no_name_is_refused(tmp_path: Path, application_id: str) -> None:
    with pytest.raises(RefusedError, match="cannot be an application id"):
        StreamsStateDirectory.open(tmp_path, application_id)


def test_store_is_moved_to_its_place(state: StreamsStateDirectory) -> None:
    replaced = state.install(COUNTS, 0, built(state, "new"))

    assert replaced is None
    assert (state.path / "app/0_0/rocksdb/counts/file").read_text() == "new"


def test_second_installation_of_the_same_store_changes_nothing(state: StreamsStateDirectory) -> None:
    path = built(state, "new")
    state.install(COUNTS, 0, path)

    assert state.install(COUNTS, 0, path) is None
    assert (state.store_directory(COUNTS, 0) / "file").read_text() == "new"


def test_store_in_the_way_is_moved_aside_with_its_position(state: StreamsStateDirectory) -> None:
    state.install(COUNTS, 0, built(state, "old"))
    (state.path / "app/0_0/counts.position").write_text("0\n0\n")
    (state.path / "app/0_0/windows.position").write_text("of another store")

    replaced = state.install(COUNTS, 0, built(state, "new"))

    assert replaced is not None
    assert replaced.name == "counts.replaced-1"
    assert (replaced / "counts/file").read_text() == "old"
    assert (replaced / "counts.position").exists()
    assert (state.store_directory(COUNTS, 0) / "file").read_text() == "new"
    assert (state.path / "app/0_0/windows.position").exists()


def test_stores_moved_aside_one_after_the_other_are_all_kept(state: StreamsStateDirectory) -> None:
    places = [state.install(COUNTS, 0, built(state, str(number))) for number in range(3)]

    assert [place and (place / "counts/file").read_text() for place in places] == [None, "0", "1"]


def test_offset_leaves_the_checkpoint_before_another_store_comes(
    state: StreamsStateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.install(COUNTS, 0, built(state, "old"))
    (state.path / CHECKPOINT).write_text("0\n2\ngolden-counts-changelog 0 7\nother 0 9\n")

    def fail(*_: object) -> None:
        raise OSError("no more")

    monkeypatch.setattr(state._disk, "rename", fail)
    with pytest.raises(OSError, match="no more"):
        state.install(COUNTS, 0, built(state, "new"))

    assert (state.path / CHECKPOINT).read_text() == "0\n1\nother 0 9\n"


def test_last_offset_that_leaves_the_checkpoint_takes_the_file_with_it(state: StreamsStateDirectory) -> None:
    state.install(COUNTS, 0, built(state, "old"))
    (state.path / CHECKPOINT).write_text("0\n1\ngolden-counts-changelog 0 7\n")

    state.install(COUNTS, 0, built(state, "new"))

    assert not (state.path / CHECKPOINT).exists()


def test_offset_is_added_to_those_of_other_stores(state: StreamsStateDirectory) -> None:
    state.install(COUNTS, 0, built(state, "new"))
    state.record_offset(WINDOWS, 0, 5)
    state.record_offset(COUNTS, 0, 7)

    assert (state.path / CHECKPOINT).read_text() == (
        "0\n2\ngolden-windows-changelog 0 5\ngolden-counts-changelog 0 7\n"
    )


def test_offset_that_streams_wrote_in_the_meantime_stays(state: StreamsStateDirectory) -> None:
    state.install(COUNTS, 0, built(state, "new"))
    (state.path / CHECKPOINT).write_text("0\n1\ngolden-counts-changelog 0 9\n")

    state.record_offset(COUNTS, 0, 7)

    assert (state.path / CHECKPOINT).read_text() == "0\n1\ngolden-counts-changelog 0 9\n"


def test_store_without_records_is_known_without_an_offset(state: StreamsStateDirectory) -> None:
    state.install(COUNTS, 0, built(state, "new"))

    state.record_offset(COUNTS, 0, None)

    assert (state.path / CHECKPOINT).read_text() == "0\n1\ngolden-counts-changelog 0 -4\n"
