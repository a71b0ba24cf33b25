"""Checkpoints of the broker, read no more often than the broker writes them."""

import asyncio
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
