"""Assembly of the tiering: no part is replaced after its construction."""

import asyncio
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.tiering.running import PlainSupervisor, StandingClock
from tests.tiering.setups import Tier


async def test_single_pass_replaces_no_part_of_the_manager(tmp_path: Path) -> None:
    writer = LogDirWriter(tmp_path / "kafka")
    writer.add_partition("orders").fill(rolled_segments=1, shape=SegmentShape())
    writer.write_checkpoints()
    session = Tier(tmp_path, [writer.path]).session()
    owners = (session.manager, session.manager._follower, session.manager._follower._roles, session.manager._upkeep)
    before = [dict(vars(owner)) for owner in owners]
    await session.copy_once()
    for owner, members in zip(owners, before, strict=True):
        assert [name for name, member in members.items() if vars(owner)[name] is not member] == []
    session.hold.close()


async def test_single_pass_over_a_supervisor_that_runs_tasks_is_a_bug(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        session = Tier(tmp_path, []).session(supervisor=PlainSupervisor(group, StandingClock()))
        with pytest.raises(AssertionError, match="second time"):
            await session.copy_once()
