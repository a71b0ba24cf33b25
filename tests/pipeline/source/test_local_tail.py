"""Local log of the host behind the end of the tier."""

import os
from pathlib import Path

import pytest

from tests.log.batches import make_partition, plain
from tierd.log import ProducerStateEntry, file_name
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.pipeline.pipeline_errors import DataLossError
from tierd.pipeline.source.local_tail import LocalTails


def test_transaction_that_began_in_the_tier_sets_the_last_stable_offset(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {10: plain(10, 5), 15: plain(15, 5)})
    begun = ProducerStateEntry(7, 0, 0, 14, 0, 0, -1, 3)
    (directory.path / file_name(15, ".snapshot")).write_bytes(encode_producer_snapshot((begun,)))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    tail = LocalTails([tmp_path]).tail(directory)
    assert tail is not None
    assert (tail.start_offset, tail.last_stable_offset) == (10, 3)


def test_tail_of_a_log_that_was_cut_back_ends_with_its_files(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {10: plain(10, 5), 15: plain(15, 5)})
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 23\n")
    tail = LocalTails([tmp_path]).tail(directory)
    assert tail is not None
    assert (tail.high_watermark, tail.last_stable_offset, tail.lost_to) == (20, 20, 23)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    whole = LocalTails([tmp_path]).tail(directory)
    assert whole is not None
    assert (whole.high_watermark, whole.lost_to) == (20, None)


def test_log_that_is_cut_back_since_the_plan_is_data_loss(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {10: plain(10, 5), 15: plain(15, 5)})
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    tail = LocalTails([tmp_path]).tail(directory)
    assert tail is not None
    os.truncate(directory.path / file_name(15, ".log"), 0)
    pieces = tail.pieces(10, 20)
    assert next(pieces)
    with pytest.raises(DataLossError, match="cut back to offset 15"):
        next(pieces)
