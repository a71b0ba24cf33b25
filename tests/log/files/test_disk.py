"""OsDisk keeps every promise of ``Disk``."""

import os
from pathlib import Path

import pytest

from tests.contracts.disk import DiskContract
from tierd.log.files.disk import OsDisk, replace_file


class TestOsDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> OsDisk:
        return OsDisk()

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path

    def test_pipe_is_refused_without_waiting_for_its_other_end(self, disk: OsDisk, root: Path) -> None:
        os.mkfifo(root / "pipe")
        for write in (True, False):
            with pytest.raises(OSError, match="not a regular file"):
                disk.open(root / "pipe", write=write)

    def test_link_in_place_of_a_temporary_file_is_refused_and_not_followed(self, disk: OsDisk, root: Path) -> None:
        (root / "outside").write_bytes(b"kept")
        (root / "checkpoint.tmp").symlink_to(root / "outside")
        with pytest.raises(OSError, match="not a regular file"):
            replace_file(disk, root / "checkpoint", b"new")
        assert (root / "outside").read_bytes() == b"kept"

    def test_files_and_directories_are_closed_to_others_under_any_umask(self, disk: OsDisk, root: Path) -> None:
        previous = os.umask(0)
        try:
            disk.make_directory(root / "orders-0")
            disk.open(root / "orders-0" / "0.log", create=True).close()
        finally:
            os.umask(previous)
        assert (root / "orders-0").stat().st_mode & 0o777 == 0o750
        assert (root / "orders-0" / "0.log").stat().st_mode & 0o777 == 0o640
