"""Two daemons' push replication in one process, over loopback connections: node 1 leads, node 2 keeps copies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from tests.fakes.eventually import eventually
from tests.log.cleaning.cleaners import own_log_rules
from tests.scenarios.push_hosts import batches_in
from tests.services.ports import free_port
from tierd.app.push.leader_side import HostPartitions
from tierd.app.push.push_node import PushContext, PushNode, link_identity
from tierd.clock import SystemClock
from tierd.config import LogCleanerSettings, TierdConfig
from tierd.control import StaticLeadership
from tierd.log import LogConfig, LogManager, LogManagerSettings, LogService
from tierd.replication import PushSessionEndReason

CLUSTER: Final = "cluster"
LEADER, STANDBY = 1, 2
CONFIG: Final = LogConfig(segment_bytes=4000, retention_ms=-1)

Section = dict[str, Any]


class LiveSection:
    """Section ``push`` of one daemon, which a test changes as a reload does."""

    def __init__(self, root: Path, section: Section) -> None:
        self._root = root
        self.section = section
        self.settings = self._read()

    def change(self, **changes: Any) -> None:  # noqa: ANN401 - values of YAML
        """Set keys of the section."""
        self.section |= changes
        self.settings = self._read()

    def _read(self) -> Any:  # noqa: ANN401 - PushReplicationSettings, by the model of the file
        return TierdConfig.model_validate(
            {
                "state_dir": str(self._root / "state"),
                "log_dirs": [{"path": str(self._root / "logs")}],
                "remote": {"backend": "filesystem", "filesystem": {"path": str(self._root / "store")}},
                "push": self.section,
            }
        ).push


class PushPair:
    """Leader and standby, each begun and ended by the test."""

    def __init__(self, root: Path, *, owner: str = "kafka") -> None:
        self.root = root
        self.log_dir = root / "leader" / "logs"
        self.log_dir.mkdir(parents=True)
        self.copies = root / "standby" / "copies"
        self.clock = SystemClock()
        self._owner = owner
        self._epoch = 0
        ports = {LEADER: free_port(), STANDBY: free_port()}
        self.leading = LiveSection(
            root / "leader",
            {
                **_section(LEADER, ports),
                "topics": ["orders.*"],
                "standbys": [STANDBY],
                "session": {"keepalive": "100ms", "idle_max": "1s", "unacked_max": "2s"},
            },
        )
        self.keeping = LiveSection(
            root / "standby",
            {
                **_section(STANDBY, ports),
                "standby": {"log_dir": str(self.copies)},
                "session": {"keepalive": "100ms", "idle_max": "1s"},
            },
        )
        for each in ("leader", "standby"):
            (root / each / "state").mkdir(parents=True)
        self.logs: LogService | None = None
        self.closed_sources: list[int] = []
        self.session_events: list[tuple[int, PushSessionEndReason | None]] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._owner == "tierd":
            manager = LogManager([self.log_dir], LogManagerSettings(config_for=lambda _: CONFIG, clock=self.clock))
            self.logs = await self._stack.enter_async_context(
                LogService(manager, clock=self.clock, rewriting=own_log_rules())
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def leader(self) -> AsyncIterator[PushNode]:
        """Run the daemon that leads."""
        async with self._running(LEADER, self.leading) as node:
            yield node

    @asynccontextmanager
    async def standby(self) -> AsyncIterator[PushNode]:
        """Run the daemon that keeps copies."""
        async with self._running(STANDBY, self.keeping) as node:
            yield node

    def node(self, node_id: int, section: LiveSection) -> PushNode:
        """Return the push replication of a new process of a daemon."""
        self._epoch += 1
        is_own = self._owner == "tierd"
        log_dirs = [self.log_dir] if node_id == LEADER else []
        return PushNode(
            PushContext(
                settings=lambda: section.settings,
                identity=link_identity(cluster_id=CLUSTER, node_id=node_id, process_epoch=self._epoch),
                local=HostPartitions(
                    broker_log_dirs=[] if is_own else log_dirs,
                    own_log_dirs=log_dirs if is_own else [],
                    service=self.logs if is_own else None,
                    source=StaticLeadership(),
                    close_source=lambda: self.closed_sources.append(node_id),
                    is_cluster_asked=False,
                    config_for=lambda _topic, _log_dir: (("cleanup.policy", "delete"), ("retention.ms", "-1")),
                ),
                state_dir=self.root / ("leader" if node_id == LEADER else "standby") / "state",
                cleaner=LogCleanerSettings(),
                on_session=lambda identity, reason: self.session_events.append((identity.session_id, reason)),
                clock=self.clock,
                random=lambda: 0.5,
                is_short=lambda: False,
            )
        )

    async def same(self, *names: str) -> None:
        """Return when the copies of partitions have the batches of the leader, byte for byte."""

        def is_same() -> bool:
            with suppress(FileNotFoundError):  # a file may be renamed while it is looked for
                written = {name: batches_in(self.log_dir / name) for name in names}
                return all(written.values()) and written == {name: batches_in(self.copies / name) for name in names}
            return False

        await eventually(is_same, what=f"copies of {names}")

    @asynccontextmanager
    async def _running(self, node_id: int, section: LiveSection) -> AsyncIterator[PushNode]:
        node = self.node(node_id, section)
        await node.start()
        task = asyncio.create_task(node.run(), name=f"node {node_id}")
        try:
            yield node
            assert not task.done(), task.exception()
        finally:
            node.stop()
            await asyncio.wait([task])
        task.result()


def _section(node_id: int, ports: dict[int, int]) -> Section:
    return {
        "node_id": node_id,
        "listen": f"127.0.0.1:{ports[node_id]}",
        "peers": [
            {"node_id": other, "address": f"127.0.0.1:{port}"} for other, port in ports.items() if other != node_id
        ],
    }
