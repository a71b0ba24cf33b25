"""Promises of every Disk. Subclass the contract and provide the fixtures ``disk`` and ``root``, an empty directory."""

import errno
from pathlib import Path

import pytest

from tierd.errors import SegmentChangedError
from tierd.log.files.disk import Disk, FileStatus, read_file, replace_file, unlink_if_there


def write_file(disk: Disk, path: Path, data: bytes) -> None:
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write(0, [data])
    finally:
        file.close()


class DiskContract:
    def test_missing_name_is_not_listed_and_not_opened(self, disk: Disk, root: Path) -> None:
        assert disk.list_names(root) == []
        assert disk.status(root / "a") is None
        assert disk.status(root / "a" / "b") is None
        with pytest.raises(FileNotFoundError):
            disk.open(root / "a")
        with pytest.raises(FileNotFoundError):
            disk.open(root / "a", write=False)
        with pytest.raises(FileNotFoundError):
            disk.open(root / "a" / "b", create=True)
        with pytest.raises(FileNotFoundError):
            disk.list_names(root / "a")

    def test_created_file_is_empty_and_an_existing_one_keeps_its_content(self, disk: Disk, root: Path) -> None:
        disk.open(root / "a", create=True).close()
        assert read_file(disk, root / "a") == b""
        write_file(disk, root / "a", b"kept")
        disk.open(root / "a", create=True).close()
        assert read_file(disk, root / "a") == b"kept"

    def test_pieces_of_one_write_are_read_as_a_whole(self, disk: Disk, root: Path) -> None:
        file = disk.open(root / "a", create=True)
        file.write(0, [b"one", bytearray(b"two"), memoryview(b"-three-")[1:6], b""])
        assert file.size_bytes == 11
        assert file.read(0, 100) == b"onetwothree"
        assert file.read(3, 3) == b"two"
        assert file.read(11, 5) == file.read(12, 5) == b""
        file.close()

    def test_more_pieces_than_one_system_call_takes_are_written(self, disk: Disk, root: Path) -> None:
        pieces = [b"%06d" % number for number in range(1500)]
        file = disk.open(root / "a", create=True)
        file.write(0, pieces)
        assert file.read(0, 10_000) == b"".join(pieces)
        file.close()

    def test_a_write_overwrites_and_a_write_behind_the_end_leaves_zeros(self, disk: Disk, root: Path) -> None:
        write_file(disk, root / "a", b"abcdef")
        file = disk.open(root / "a")
        file.write(2, [b"XY"])
        file.write(8, [b"z"])
        file.close()
        assert read_file(disk, root / "a") == b"abXYef\0\0z"

    def test_truncate_cuts_and_grows_by_zeros(self, disk: Disk, root: Path) -> None:
        write_file(disk, root / "a", b"abcdef")
        file = disk.open(root / "a")
        file.truncate(2)
        assert file.size_bytes == 2
        file.truncate(5)
        assert file.size_bytes == 5
        assert file.read(0, 10) == b"ab\0\0\0"
        file.close()
        assert disk.status(root / "a") == FileStatus(5, disk_mtime_ms(disk, root / "a"), is_directory=False)

    def test_read_into_fills_its_target_or_reports_a_changed_file(self, disk: Disk, root: Path) -> None:
        write_file(disk, root / "a", b"abcdef")
        file = disk.open(root / "a", write=False)
        target = bytearray(3)
        file.read_into(memoryview(target), 2)
        assert target == b"cde"
        with pytest.raises(SegmentChangedError, match="changed while it was read"):
            file.read_into(memoryview(target), 4)
        file.close()

    def test_reader_reads_bytes_written_before_it_opened_the_file(self, disk: Disk, root: Path) -> None:
        writer = disk.open(root / "a", create=True)
        writer.write(0, [b"one"])
        reader = disk.open(root / "a", write=False)
        writer.write(3, [b"two"])
        assert (reader.size_bytes, reader.read(0, 100)) == (3, b"one")
        reader.close()
        writer.close()

    def test_closed_file_refuses_calls_and_may_be_closed_again(self, disk: Disk, root: Path) -> None:
        file = disk.open(root / "a", create=True)
        file.close()
        file.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.write(0, [b"x"])
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.sync()

    def test_rename_replaces_the_target_and_an_open_file_follows(self, disk: Disk, root: Path) -> None:
        write_file(disk, root / "b", b"old")
        file = disk.open(root / "a", create=True)
        file.write(0, [b"new"])
        disk.rename(root / "a", root / "b")
        file.renamed(root / "b")
        assert file.path == root / "b"
        file.write(3, [b"er"])
        file.close()
        assert disk.list_names(root) == ["b"]
        assert read_file(disk, root / "b") == b"newer"
        with pytest.raises(FileNotFoundError):
            disk.rename(root / "a", root / "c")

    def test_a_file_renamed_to_its_own_name_stays(self, disk: Disk, root: Path) -> None:
        write_file(disk, root / "a", b"x")
        disk.rename(root / "a", root / "a")
        assert read_file(disk, root / "a") == b"x"

    def test_unlinked_file_stays_usable_while_it_is_open(self, disk: Disk, root: Path) -> None:
        write_file(disk, root / "a", b"x")
        file = disk.open(root / "a")
        disk.unlink(root / "a")
        assert disk.list_names(root) == []
        file.write(1, [b"y"])
        assert file.read(0, 10) == b"xy"
        file.sync()
        file.close()
        with pytest.raises(FileNotFoundError):
            disk.unlink(root / "a")
        assert not unlink_if_there(disk, root / "a")

    def test_directories_are_made_listed_renamed_and_removed(self, disk: Disk, root: Path) -> None:
        disk.make_directory(root / "d")
        with pytest.raises(FileExistsError):
            disk.make_directory(root / "d")
        with pytest.raises(FileNotFoundError):
            disk.make_directory(root / "e" / "f")
        write_file(disk, root / "d" / "b", b"x")
        write_file(disk, root / "d" / "a", b"x")
        assert disk.list_names(root / "d") == ["a", "b"]
        status = disk.status(root / "d")
        assert status is not None
        assert status.is_directory
        disk.rename(root / "d", root / "e")
        assert read_file(disk, root / "e" / "a") == b"x"
        with pytest.raises(OSError, match="not empty"):
            disk.remove_directory(root / "e")
        disk.unlink(root / "e" / "a")
        disk.unlink(root / "e" / "b")
        disk.remove_directory(root / "e")
        assert disk.list_names(root) == []

    def test_a_directory_is_no_file_and_a_file_no_directory(self, disk: Disk, root: Path) -> None:
        disk.make_directory(root / "d")
        write_file(disk, root / "a", b"x")
        for write in (True, False):
            with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is looked at
                disk.open(root / "d", write=write)
            assert caught.value.errno in {errno.EISDIR, errno.EINVAL}
        with pytest.raises(NotADirectoryError):
            disk.list_names(root / "a")
        with pytest.raises(NotADirectoryError):
            disk.open(root / "a" / "b", create=True)
        assert disk.status(root / "a" / "b") is None
        with pytest.raises(OSError):  # noqa: PT011 - EISDIR or EPERM, as the system likes
            disk.unlink(root / "d")
        with pytest.raises(IsADirectoryError):
            disk.rename(root / "a", root / "d")

    def test_sync_keeps_content_and_a_missing_directory_is_no_error(self, disk: Disk, root: Path) -> None:
        file = disk.open(root / "a", create=True)
        file.write(0, [b"x"])
        file.sync()
        file.close()
        disk.sync_directory(root)
        disk.sync_directory(root / "gone")
        assert read_file(disk, root / "a") == b"x"

    def test_a_modification_time_can_be_set(self, disk: Disk, root: Path) -> None:
        write_file(disk, root / "a", b"x")
        disk.set_mtime_ms(root / "a", 1_234_567)
        assert disk_mtime_ms(disk, root / "a") == 1_234_567

    def test_replace_file_leaves_no_temporary_file(self, disk: Disk, root: Path) -> None:
        replace_file(disk, root / "a", b"one, longer")
        replace_file(disk, root / "a", b"two")
        assert read_file(disk, root / "a") == b"two"
        assert disk.list_names(root) == ["a"]


def disk_mtime_ms(disk: Disk, path: Path) -> int:
    status = disk.status(path)
    assert status is not None
    return status.mtime_ms
