"""Indexes of a segment, checked as a reader checks them."""

import struct

import pytest

from tierd.errors import CorruptIndexError, LogError
from tierd.log import AbortedTransaction, TransactionIndex, check_index
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.model import IndexType

SOUND = {
    IndexType.OFFSET: struct.pack(">ii", 3, 4096),
    IndexType.TIMESTAMP: struct.pack(">qi", 1_700_000_000_000, 3),
    IndexType.TRANSACTION: TransactionIndex((AbortedTransaction(1, 100, 105, 100),)).to_bytes(),
    IndexType.PRODUCER_SNAPSHOT: encode_producer_snapshot(()),
    IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
}


def check(index_type: IndexType, content: bytes, *, log_bytes: int = 5000) -> None:
    check_index(index_type, content, base_offset=100, log_bytes=log_bytes, name="orders-0 index")


@pytest.mark.parametrize("index_type", IndexType)
def test_sound_index_of_each_type_passes(index_type: IndexType) -> None:
    check(index_type, SOUND[index_type])


@pytest.mark.parametrize("index_type", [IndexType.TRANSACTION, IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH])
def test_damaged_index_is_refused_by_name(index_type: IndexType) -> None:
    with pytest.raises(LogError, match="orders-0 index"):
        check(index_type, b"\xff" * len(SOUND[index_type]))


def test_offset_index_that_points_behind_the_log_is_refused() -> None:
    with pytest.raises(CorruptIndexError, match="orders-0 index: points behind the end of the log"):
        check(IndexType.OFFSET, SOUND[IndexType.OFFSET], log_bytes=4096)


def test_empty_index_of_an_empty_log_passes() -> None:
    check(IndexType.OFFSET, b"", log_bytes=0)
