"""PolicyChanges: changed settings of topics reach the logs and the tasks."""

import asyncio
from pathlib import Path

from tests.fakes.eventually import eventually
from tests.tiering.setups import Tier
from tierd.app.engine.local_logs import LocalLogs
from tierd.app.engine.topic_policies import PolicyChanges
from tierd.log import LogConfig
from tierd.tiering import BrokerLogOffsets, RemoteLogManager


async def test_simultaneous_changes_are_applied_once(tmp_path: Path) -> None:
    applied = 0

    class Manager(RemoteLogManager):
        async def follow_policies(self) -> None:
            nonlocal applied
            applied += 1

    manager = Tier(tmp_path, []).session().manager
    manager.__class__ = Manager
    changes = PolicyChanges(LocalLogs(BrokerLogOffsets(), None, lambda _: LogConfig()))
    changes.report()
    changes.report(frozenset({"orders"}))
    following = asyncio.create_task(changes.run(manager))
    await eventually(lambda: applied == 1, what="the first")
    changes.report()
    await eventually(lambda: applied == 2, what="the second")
    following.cancel()
    await asyncio.wait([following])
