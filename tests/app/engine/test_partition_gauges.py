"""Gauges of the tier of each partition in a scrape: rows in every state, and zero for none."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation
from tierd.app.engine.compose import Engine, compose
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.instance_lock import make_state_dir
from tierd.config import load_config
from tierd.model import EpochEntry, RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, SoftDelete
from tierd.tiering import PassiveSupervisor

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@pytest.fixture
def tierd(tmp_path: Path) -> Installation:
    writer = LogDirWriter(tmp_path / "kafka")
    writer.add_partition("orders").append([b"one"])
    writer.write_checkpoints()
    return Installation(tmp_path / "tierd", [writer.path])


def gauges(engine: Engine) -> dict[str, float]:
    lines = engine.metrics.render()[0].decode().splitlines()
    found = [line for line in lines if line.startswith("tierd_remote_") and 'topic="orders"' in line]
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in found}


@pytest.mark.spec("remote-tiering 175")
@pytest.mark.spec("remote-tiering 176")
async def test_gauges_count_rows_of_every_state_and_are_zero_without_rows(tierd: Installation) -> None:
    config = load_config(tierd.config_file, {})
    make_state_dir(config.state_dir)
    async with compose(Deployment(config, tierd.config_file)) as engine:
        tiering = engine.new_tiering(PassiveSupervisor())
        await tiering.manager.discover_once()
        (outcome,) = await tiering.removals.expire_here(None)
        assert outcome.error is None
        found = gauges(engine)
        assert (found["tierd_remote_log_metadata_count"], found["tierd_remote_log_size_bytes"]) == (0, 0)
        (status,) = tiering.manager.status()
        for start, steps in ((0, []), (10, [FINISHED]), (20, [FINISHED, DELETING])):
            await add(engine, start, steps)
        found = gauges(engine)
        assert (found["tierd_remote_log_metadata_count"], found["tierd_remote_log_size_bytes"]) == (3, 300)
        assert status.role == "leader"


async def add(engine: Engine, start: int, steps: list[RemoteLogSegmentState]) -> None:
    partition = next(led for led in engine.metadata._led)
    metadata = RemoteLogSegmentMetadata(
        segment=RemoteLogSegmentId(partition, uuid4()),
        start_offset=start,
        end_offset=start + 9,
        max_timestamp_ms=0,
        broker_id=engine.identity.node_id,
        event_timestamp_ms=0,
        size_bytes=100,
        segment_leader_epochs=(EpochEntry(0, start),),
        leader_epoch=0,
        session_id=engine.session_id,
    )
    await engine.metadata.add(metadata)
    for step in steps:
        soft = SoftDelete("retention_time", 10**15) if step is DELETING else None
        await engine.metadata.update(metadata.advance(step, event_timestamp_ms=0, broker_id=1, soft_delete=soft))
