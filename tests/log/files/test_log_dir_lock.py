"""The lock file of a log dir when its name belongs to another kind of file."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tierd.log.files.log_dir_lock import LOCK_FILE, LogDirLock, require_unlocked


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("plant", [pipe, link])
@pytest.mark.parametrize("take", [LogDirLock.acquire, require_unlocked])
def test_pipe_or_link_in_place_of_the_lock_is_refused_without_waiting(
    tmp_path: Path, plant: Callable[[Path], None], take: Callable[[Path], object]
) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    plant(tmp_path / LOCK_FILE)
    errors: list[OSError] = []

    def attempt() -> None:
        try:
            take(tmp_path)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "the attempt waits for a writer"
    assert [error.strerror for error in errors] == ["not a regular file"]
