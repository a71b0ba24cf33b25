"""Files that prove their content."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.open_files import open_files
from tierd.kernels import crc32c
from tierd.remote.cache import checked_file
from tierd.remote.cache.checked_file import (
    DamagedFileError,
    file_size_of,
    is_complete,
    open_checked,
    read_checked,
    write_checked,
)
from tierd.testing import content_of


@given(content=st.binary(max_size=200), identity=st.text(max_size=20))
def test_file_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, identity: str
) -> None:
    file = tmp_path_factory.mktemp("checked") / "file"
    write_checked(file, content, identity=identity)
    assert read_checked(file, identity=identity) == content
    assert file.stat().st_size == file_size_of(len(content))
    assert is_complete(file)
    assert [path.name for path in file.parent.iterdir()] == ["file"]


@given(content=st.binary(min_size=1, max_size=60), data=st.data())
def test_file_with_a_changed_or_lost_byte_is_damaged(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("checked") / "file"
    write_checked(file, content, identity="mine")
    written = bytearray(file.read_bytes())
    position = data.draw(st.integers(0, len(written) - 1))
    if data.draw(st.booleans()):
        written[position] ^= data.draw(st.integers(1, 255))
    else:
        del written[position:]
    file.write_bytes(written)
    with pytest.raises(DamagedFileError):
        read_checked(file, identity="mine")


BLOCK_BYTES, STEP_BYTES, FOOTER_BYTES = 4096, 1 << 20, file_size_of(0)
SIZES = [
    *(0, 1, BLOCK_BYTES - FOOTER_BYTES, BLOCK_BYTES - FOOTER_BYTES + 1, BLOCK_BYTES),
    *(STEP_BYTES - FOOTER_BYTES, STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 3 * STEP_BYTES),
]


@pytest.mark.parametrize("size_bytes", SIZES)
def test_file_that_passes_the_page_cache_by_is_read_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    flags = _recorded_flags(monkeypatch)
    content = content_of(size_bytes)
    write_checked(tmp_path / "file", content, identity="mine", is_direct=True)
    assert flags[0] & os.O_DIRECT
    assert read_checked(tmp_path / "file", identity="mine") == content
    assert (tmp_path / "file").stat().st_size == file_size_of(size_bytes)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_file_is_written_where_the_file_system_opens_none_past_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = _recorded_flags(monkeypatch, refused=os.O_DIRECT)
    write_checked(tmp_path / "file", b"content", identity="mine", is_direct=True)
    assert [bool(each & os.O_DIRECT) for each in flags] == [True, False]
    assert read_checked(tmp_path / "file", identity="mine") == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_file_is_written_where_the_file_system_refuses_the_first_block_past_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_file, "_BLOCK_BYTES", 100)  # no file system takes blocks of this size
    write_checked(tmp_path / "file", b"content", identity="mine", is_direct=True)
    assert read_checked(tmp_path / "file", identity="mine") == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def _recorded_flags(monkeypatch: pytest.MonkeyPatch, *, refused: int = 0) -> list[int]:
    """Return the flags of all files that are opened from now on; those with a refused flag are made and refused."""
    flags, real = list[int](), os.open

    def open_recorded(path: Path, flag: int, mode: int = 0o777) -> int:
        flags.append(flag)
        opened = real(path, flag & ~refused, mode)
        if flag & refused:
            os.close(opened)
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened

    monkeypatch.setattr(os, "open", open_recorded)
    return flags


def test_file_of_another_identity_or_format_is_damaged(tmp_path: Path) -> None:
    write_checked(tmp_path / "file", b"content", identity="theirs")
    with pytest.raises(DamagedFileError):
        read_checked(tmp_path / "file", identity="mine")


@pytest.mark.parametrize("change", [lambda data: b"", lambda data: data[:10], lambda data: data + b"x"])
def test_torn_file_is_recognised_without_a_read_of_its_content(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "file"
    write_checked(file, b"content" * 10, identity="mine")
    file.write_bytes(change(file.read_bytes()))
    assert not is_complete(file)


@pytest.mark.parametrize("is_direct", [False, True])
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, is_direct: bool) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "inside").touch()
    with pytest.raises(OSError, match="irectory"):
        write_checked(tmp_path / "file", b"content", identity="mine", is_direct=is_direct)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_pipe_in_the_place_of_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    assert not is_complete(tmp_path / "file")
    with pytest.raises(DamagedFileError):
        read_checked(tmp_path / "file", identity="mine")


def test_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    write_checked(tmp_path / "elsewhere", b"content", identity="mine")
    (tmp_path / "file").symlink_to("elsewhere")
    with pytest.raises(DamagedFileError):
        read_checked(tmp_path / "file", identity="mine")


def test_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user that may write into the directory can make a file with a right checksum."""
    write_checked(tmp_path / "file", b"content", identity="mine")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(DamagedFileError, match="another user"):
        read_checked(tmp_path / "file", identity="mine")


def test_root_reads_files_of_the_owner_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command run by root reads the cache of the daemon."""
    write_checked(tmp_path / "file", b"content", identity="mine")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert read_checked(tmp_path / "file", identity="mine") == b"content"


class TestOpenChecked:
    @pytest.mark.parametrize("size_bytes", SIZES)
    def test_file_begins_with_the_content_that_has_the_checksum(self, tmp_path: Path, size_bytes: int) -> None:
        content = content_of(size_bytes)
        write_checked(tmp_path / "file", content, identity="mine")
        file = open_checked(tmp_path / "file", size_bytes=size_bytes, content_crc32c=crc32c(content))
        (tmp_path / "file").unlink()
        assert os.pread(file.descriptor, size_bytes, 0) == content
        assert (file.path, file.inode) == (tmp_path / "file", os.fstat(file.descriptor).st_ino)

    @given(content=st.binary(min_size=1, max_size=60), data=st.data())
    def test_changed_or_lost_byte_of_the_content_is_damage(
        self, tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
    ) -> None:
        file = tmp_path_factory.mktemp("checked") / "file"
        write_checked(file, content, identity="mine")
        written = bytearray(file.read_bytes())
        position = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            written[position] ^= data.draw(st.integers(1, 255))
        else:
            del written[position:]
        file.write_bytes(written)
        with pytest.raises(DamagedFileError):
            open_checked(file, size_bytes=len(content), content_crc32c=crc32c(content))
        assert open_files(file) == []

    def test_bytes_that_the_store_damaged_before_they_were_written_are_damage(self, tmp_path: Path) -> None:
        write_checked(tmp_path / "file", b"other", identity="mine")
        with pytest.raises(DamagedFileError, match="does not match the checksum of the chunk"):
            open_checked(tmp_path / "file", size_bytes=5, content_crc32c=crc32c(b"chunk"))

    @pytest.mark.parametrize("damage", ["size", "content"])
    def test_damaged_file_is_not_open_while_its_error_is_kept(self, tmp_path: Path, damage: str) -> None:
        write_checked(tmp_path / "file", b"other", identity="mine")
        with pytest.raises(DamagedFileError) as kept:
            open_checked(tmp_path / "file", size_bytes=4 + (damage == "content"), content_crc32c=crc32c(b"chunk"))
        assert kept.tb is not None
        assert open_files(tmp_path) == []

    def test_link_in_the_place_of_a_checked_file_is_damage(self, tmp_path: Path) -> None:
        write_checked(tmp_path / "file", b"chunk", identity="mine")
        (tmp_path / "link").symlink_to(tmp_path / "file")
        with pytest.raises(DamagedFileError, match="is a link"):
            open_checked(tmp_path / "link", size_bytes=5, content_crc32c=crc32c(b"chunk"))

    def test_use_is_noted_in_the_time_of_the_file(self, tmp_path: Path) -> None:
        write_checked(tmp_path / "file", b"chunk", identity="mine")
        os.utime(tmp_path / "file", (1, 1))
        open_checked(tmp_path / "file", size_bytes=5, content_crc32c=crc32c(b"chunk"))
        assert (tmp_path / "file").stat().st_mtime == 1
        open_checked(tmp_path / "file", size_bytes=5, content_crc32c=crc32c(b"chunk"), touch=True)
        assert (tmp_path / "file").stat().st_mtime > 1
