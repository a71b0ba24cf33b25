"""PolicyChanges: topic policies that changed, in the file or on the brokers, take effect at once."""

import asyncio
from collections.abc import Collection

from tierd.app.own_logs import LocalLogs
from tierd.tiering import RemoteLogManager


class PolicyChanges:
    """Applies them one after the other; several that come together are one."""

    def __init__(self, logs: LocalLogs) -> None:
        self._logs = logs
        self._changed = asyncio.Event()

    def tell(self, topics: Collection[str] = ()) -> None:
        """Some policies may have changed; of which topics hardly matters, for what is in force is asked for anyway."""
        self._changed.set()

    async def run(self, manager: RemoteLogManager) -> None:
        """Apply whatever changes, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._logs.follow_policies()
            await manager.follow_policies()
