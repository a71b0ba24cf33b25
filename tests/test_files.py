"""The one way to open files that others may have put there, and to make files for this user alone."""

import errno
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tierd.files import make_private, make_private_directory, open_regular, open_to_read


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
    """Return what ``call`` raised; one that waits for ever fails the test, as an alarm would end a daemon."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it waits"
    return raised[0] if raised else None


@pytest.mark.parametrize("make", NOT_REGULAR)
@pytest.mark.parametrize("flags", FLAGS)
def test_what_is_no_regular_file_is_refused_without_waiting(
    tmp_path: Path, make: Callable[[Path], None], flags: int
) -> None:
    make(tmp_path / "name")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - how many is all that is wanted
    error = within_deadline(lambda: open_regular(tmp_path / "name", flags))
    assert isinstance(error, OSError)
    assert error.errno in {errno.EINVAL, errno.EISDIR}
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - how many is all that is wanted
    assert not (tmp_path / "nothing").exists()


def test_regular_file_is_read_also_through_a_descriptor_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with open_to_read(path) as file:
        path.unlink()
        with open_to_read(f"/proc/self/fd/{file.fileno()}") as again:
            assert again.read() == b"content"


def test_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "nothing")


def test_created_file_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    del umask
    os.close(open_regular(tmp_path / "file", os.O_WRONLY | os.O_CREAT))
    assert mode(tmp_path / "file") == 0o600


def test_created_directory_and_its_parents_are_for_their_owner_alone(tmp_path: Path, umask: int) -> None:
    del umask
    make_private_directory(tmp_path / "a" / "b")
    make_private_directory(tmp_path / "a" / "b")
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700


def test_directory_is_not_made_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(OSError, match="Not a directory"):
        make_private_directory(tmp_path / "a")


def test_open_file_is_closed_to_others_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o644)
    assert make_private(path)
    assert mode(path) == 0o600
    assert not make_private(path)


def test_link_does_not_lead_a_change_of_mode_elsewhere(tmp_path: Path) -> None:
    link_to_file(tmp_path / "link")
    (tmp_path / "target").chmod(0o644)
    assert not make_private(tmp_path / "link")
    assert mode(tmp_path / "target") == 0o644
