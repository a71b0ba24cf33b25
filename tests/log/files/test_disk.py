"""OsDisk keeps what every Disk promises."""

import os
from pathlib import Path

import pytest

from tests.contracts.disk import DiskContract
from tierd.log.files.disk import OsDisk


class TestOsDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> OsDisk:
        return OsDisk()

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path

    def test_a_pipe_is_refused_without_waiting_for_its_other_end(self, disk: OsDisk, root: Path) -> None:
        os.mkfifo(root / "pipe")
        with pytest.raises(OSError, match="not a regular file"):
            disk.open(root / "pipe")
