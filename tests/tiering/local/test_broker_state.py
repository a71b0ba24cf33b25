"""Checkpoints of the broker, read no more often than the broker writes them."""

import asyncio
import os
from pathlib import Path

import pytest

from tierd.log import read_offset_checkpoint
from tierd.model import TopicPartition
from tierd.tiering.local.broker_state import BrokerCheckpoints, BrokerOffsets

ORDERS = TopicPartition("orders", 0)


async def test_checkpoint_with_many_readers_at_once_is_parsed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 8\n")
    parsed: list[Path] = []

    def counted(path: Path) -> dict[TopicPartition, int]:
        parsed.append(path)
        return read_offset_checkpoint(path)

    monkeypatch.setattr("tierd.tiering.local.broker_state.read_offset_checkpoint", counted)
    checkpoints = BrokerCheckpoints()
    answers = await asyncio.gather(*(checkpoints.offsets(tmp_path, ORDERS) for _ in range(100)))
    assert set(answers) == {BrokerOffsets(8, None)}
    assert len(parsed) == 2, "each of the two files"


async def test_checkpoint_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    path, new = tmp_path / "replication-offset-checkpoint", tmp_path / "new"
    checkpoints = BrokerCheckpoints()
    assert (await checkpoints.offsets(tmp_path, ORDERS)).high_watermark is None
    for offset in (8, 16):
        new.write_text(f"0\n1\norders 0 {offset}\n")
        new.replace(path)
        assert (await checkpoints.offsets(tmp_path, ORDERS)).high_watermark == offset


async def test_log_start_that_is_older_than_the_partition_is_not_its_own(tmp_path: Path) -> None:
    path, identity = tmp_path / "log-start-offset-checkpoint", tmp_path / "orders-0" / "partition.metadata"
    path.write_text("0\n1\norders 0 8\n")
    identity.parent.mkdir()
    identity.write_text("of a topic that was made anew")
    checkpoints = BrokerCheckpoints()
    os.utime(identity, ns=(2 * 10**9, 2 * 10**9))
    for written_s, known in ((1, (None, False)), (2, (8, True)), (3, (8, True))):
        os.utime(path, ns=(written_s * 10**9, written_s * 10**9))
        offsets = await checkpoints.offsets(tmp_path, ORDERS)
        assert (offsets.log_start_offset, offsets.is_log_start_known) == known
    os.utime(identity, ns=(4 * 10**9, 4 * 10**9))
    assert (await checkpoints.offsets(tmp_path, ORDERS)).log_start_offset is None, "although it did not change"
    identity.unlink()
    assert (await checkpoints.offsets(tmp_path, ORDERS)).log_start_offset == 8
