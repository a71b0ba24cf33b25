"""The process epoch rises with each start, whatever clock and disk do."""

from pathlib import Path

import pytest

from tierd.app.engine.process_epoch import FILE_NAME, next_process_epoch
from tierd.errors import StateDirError


def test_epoch_is_the_wall_clock(tmp_path: Path) -> None:
    assert next_process_epoch(tmp_path, now_ms=1_700_000_000_000) == 1_700_000_000_000


def test_epoch_rises_although_the_clock_was_set_back(tmp_path: Path) -> None:
    epochs = [next_process_epoch(tmp_path, now_ms=now_ms) for now_ms in (1000, 1000, 500, 2000)]
    assert epochs == [1000, 1001, 1002, 2000]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"process_epoch": true}', b'{"process_epoch": -1}', b"\xff"])
def test_damaged_file_counts_as_no_last_epoch(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert next_process_epoch(tmp_path, now_ms=1000) == 1000


def test_state_dir_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateDirError, match="cannot be written"):
        next_process_epoch(tmp_path / "absent", now_ms=1000)
