"""Headers of batches that lie one behind the other: in memory, and in a file."""

from pathlib import Path

import pytest

from tests.log.batches import legacy, marker, plain
from tierd.errors import CorruptRecordError
from tierd.log.files.source import open_source
from tierd.log.records.batch_header import headers_in, iter_headers

BATCHES = plain(100) + legacy(1, 101, b"key", b"value") + marker(102, 7, commit=True)


@pytest.mark.parametrize("size", range(len(BATCHES) + 1))
def test_headers_in_memory_are_those_of_a_file_wherever_the_bytes_end(size: int, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.log"
    path.write_bytes(BATCHES[:size])

    with open_source(path) as source:
        assert list(headers_in(BATCHES[:size], name=str(path))) == list(iter_headers(source))


def test_positions_of_headers_count_from_the_given_position() -> None:
    first, second = headers_in(plain(100) + plain(101), name="log", position=512)

    assert (first.position, second.position) == (512, first.end_position)


def test_impossible_header_behind_a_batch_is_an_error() -> None:
    with pytest.raises(CorruptRecordError):
        list(headers_in(plain(100) + bytes(100), name="log"))
