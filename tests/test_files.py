"""Opening of files that other users may have planted, and creation of files for this user alone."""

import errno
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.fakes.open_files import open_files
from tierd.files import (
    bind_privately,
    make_own_directory,
    make_private,
    make_private_directory,
    open_regular,
    open_to_read,
    require_unchangeable,
)
from tierd.pipeline.jobs.spark_session_settings import process_umask


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat(follow_symlinks=False).st_mode)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def link_to_file(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(b"secret")
    path.symlink_to(target)


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.bind(str(path))


NOT_REGULAR = [pipe, directory, link_to_file, link_to_device, dangling_link, unix_socket]
FLAGS = [os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_APPEND]


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    previous = os.umask(request.param)
    yield request.param
    os.umask(previous)


def within_deadline(call: Callable[[], object]) -> BaseException | None:
    """Return the exception of ``call``; fail the test if the call waits, as an alarm would end a daemon."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "the call waits"
    return raised[0] if raised else None


@pytest.mark.parametrize("make", NOT_REGULAR)
@pytest.mark.parametrize("flags", FLAGS)
def test_path_that_is_no_regular_file_is_refused_without_waiting(
    tmp_path: Path, make: Callable[[Path], None], flags: int
) -> None:
    make(tmp_path / "name")
    error = within_deadline(lambda: open_regular(tmp_path / "name", flags))
    assert isinstance(error, OSError)
    assert error.errno in {errno.EINVAL, errno.EISDIR}
    assert open_files(tmp_path) + open_files(Path("/dev/zero")) == []
    assert not (tmp_path / "nothing").exists()


def test_regular_file_is_read_through_the_path_of_its_own_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with open_to_read(path) as file:
        path.unlink()
        with open_to_read(f"/proc/self/fd/{file.fileno()}") as again:
            assert again.read() == b"content"


def test_open_of_a_missing_file_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "nothing")


def test_created_file_is_accessible_to_its_owner_only(tmp_path: Path, umask: int) -> None:
    del umask
    os.close(open_regular(tmp_path / "file", os.O_WRONLY | os.O_CREAT))
    assert mode(tmp_path / "file") == 0o600


def test_created_directory_and_its_parents_are_accessible_to_their_owner_only(tmp_path: Path, umask: int) -> None:
    del umask
    make_private_directory(tmp_path / "a" / "b")
    make_private_directory(tmp_path / "a" / "b")
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700


def test_creation_of_a_directory_over_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(OSError, match="Not a directory"):
        make_private_directory(tmp_path / "a")


def test_make_private_changes_the_mode_of_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o644)
    assert make_private(path)
    assert mode(path) == 0o600
    assert not make_private(path)


def test_make_private_does_not_follow_a_link(tmp_path: Path) -> None:
    link_to_file(tmp_path / "link")
    (tmp_path / "target").chmod(0o644)
    assert not make_private(tmp_path / "link")
    assert mode(tmp_path / "target") == 0o644


def test_bound_socket_is_accessible_to_its_owner_only_and_the_umask_stays(tmp_path: Path, umask: int) -> None:
    asked: list[int] = []

    class Channel(socket.socket):
        def bind(self, address: object, /) -> None:
            asked.append(process_umask())
            super().bind(address)  # type: ignore[arg-type] # as the caller gave it

    with Channel(socket.AF_UNIX) as channel:
        bind_privately(channel, str(tmp_path / "sock"))
    assert mode(tmp_path / "sock") == 0o600
    assert asked == [umask]


def test_own_directory_is_created_or_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name in ("open", "new"):
        make_own_directory(tmp_path / name)
        assert mode(tmp_path / name) == 0o700


@pytest.mark.parametrize("planted", ["link", "file"])
def test_own_directory_that_is_a_link_or_file_is_refused(tmp_path: Path, planted: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    if planted == "link":
        (tmp_path / "own").symlink_to(elsewhere)
    else:
        (tmp_path / "own").touch()
    with pytest.raises(NotADirectoryError):
        make_own_directory(tmp_path / "own")
    assert mode(elsewhere) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories to another user")
def test_directory_of_another_user_is_refused_as_own_and_as_unchangeable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted").mkdir()
    os.chown(tmp_path / "planted", 65533, 65533)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # the parents of this directory are closed to others
    os.seteuid(65534)
    try:
        for check in (make_own_directory, require_unchangeable):
            with pytest.raises(PermissionError, match="belongs to user id 65533"):
                check(Path("planted"))
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(("bits", "is_safe"), [(0o755, True), (0o1777, True), (0o775, False), (0o707, False)])
def test_directory_is_unchangeable_unless_others_may_write_and_it_is_not_sticky(
    tmp_path: Path, bits: int, *, is_safe: bool
) -> None:
    tmp_path.chmod(bits)
    with nullcontext() if is_safe else pytest.raises(PermissionError, match="other users may write into it"):
        require_unchangeable(tmp_path)
