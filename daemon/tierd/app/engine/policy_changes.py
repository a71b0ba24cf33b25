"""PolicyChanges: topic policies that changed, in the file or on the brokers, take effect at once."""

import asyncio
from collections.abc import Collection

from tierd.app.engine.local_logs import LocalLogs
from tierd.tiering import RemoteLogManager


class PolicyChanges:
    """Application of changed policies, one after the other; changes that come together are applied once."""

    def __init__(self, logs: LocalLogs) -> None:
        self._logs = logs
        self._changed = asyncio.Event()

    def tell(self, topics: Collection[str] = ()) -> None:
        """Report that policies may have changed; ``topics`` is unused: the policies of all topics are read anew."""
        self._changed.set()

    async def run(self, manager: RemoteLogManager) -> None:
        """Apply the policies after each report, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._logs.follow_policies()
            await manager.follow_policies()
