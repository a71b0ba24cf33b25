"""Sound batches behind damage are found at any position, in about the time of one read of the file."""

import random
from pathlib import Path

import pytest

from tests.log.logs import records
from tierd.log.files.disk import OsDisk
from tierd.log.repair.sound_batch_search import find_sound_batch

WINDOW_BYTES = 1 << 20


def found(path: Path, *, position: int = 0) -> int | None:
    file = OsDisk().open(path, write=False)
    try:
        return find_sound_batch(file, position=position, expected_offset=0)
    finally:
        file.close()


@pytest.mark.parametrize("at", [0, 1, *range(WINDOW_BYTES - 62, WINDOW_BYTES + 2, 7), 3 * WINDOW_BYTES + 5])
def test_search_finds_a_batch_across_the_bounds_of_its_windows(tmp_path: Path, at: int) -> None:
    path = tmp_path / "segment"
    path.write_bytes(random.Random(at).randbytes(at) + records(3))
    assert found(path) == at
    assert found(path, position=at) == at
    assert found(path, position=at + 1) is None


def test_search_skips_the_zeros_of_a_preallocated_segment(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    with path.open("wb") as file:
        file.truncate((128 << 20) - 1000)
        file.seek(0, 2)
        file.write(records(3))
    assert found(path) == (128 << 20) - 1000
