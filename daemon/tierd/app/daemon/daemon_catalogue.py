"""The catalogue inside a running daemon: its keeper, built from the parts of the engine, and its status."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Final

from pydantic import JsonValue

from tierd.app.engine.compose import Engine
from tierd.app.engine.control_plane import ControlPlane
from tierd.clock import Clock
from tierd.config import CatalogueSettings, LeadershipSettings
from tierd.log import BrokerIdentity
from tierd.restore import BrokerTopics, CatalogueKeeper, CatalogueStorage, LocalPartitions, LogDirTopics, TopicSource
from tierd.telemetry import CatalogueUse

_PATIENCE_S: Final = 60.0


class DaemonCatalogue:
    """Owner of the keeper; without one where the catalogue is not enabled."""

    def __init__(self, engine: Engine, settings: CatalogueSettings, leadership: LeadershipSettings) -> None:
        """Build the keeper; nothing is read or written yet."""
        self._keeper: CatalogueKeeper | None = None
        if settings.enabled:
            keys = engine.deployment.object_keys(engine.identity)
            self._keeper = CatalogueKeeper(
                CatalogueStorage(engine.store, keys, engine.ring),
                local=LocalPartitions(engine.deployment.log_dirs, wants=engine.settings.wants),
                topics=_topic_source(leadership, engine.control, engine.identity, engine.clock),
                node_id=engine.identity.node_id,
                clock=engine.clock,
                settings=settings,
            )

    async def run(self, loaded: Callable[[], Awaitable[object]], *, patience_s: float = _PATIENCE_S) -> None:
        """Keep the catalogue until cancelled; return at once where it is not enabled.

        The keeper reads every partition directory, as the start does, and would delay it: so it begins once ``loaded``
        returns, or after ``patience_s``.
        """
        if self._keeper is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await loaded()
        await self._keeper.run()

    def use(self) -> CatalogueUse | None:
        """Return the work for the metrics; None where the catalogue is not enabled."""
        if self._keeper is None:
            return None
        did = self._keeper.statistics()
        return CatalogueUse(
            written=did.written,
            removed=did.removed,
            failures=did.failures,
            positions_s=None if did.positions_ms is None else did.positions_ms / 1000,
            groups=did.groups,
            has_problem=bool(did.problems),
        )

    def facts(self) -> dict[str, JsonValue]:
        """Return the section ``catalogue`` of the status."""
        if self._keeper is None:
            return {"enabled": False}
        return {"enabled": True, **asdict(self._keeper.statistics())}


def _topic_source(
    settings: LeadershipSettings, control: ControlPlane, identity: BrokerIdentity, clock: Clock
) -> TopicSource:
    """Return the brokers where a connection is configured, otherwise the log dirs and the configured leadership."""
    if settings.kafka is not None:
        from tierd.control import ClusterTopics  # noqa: PLC0415 - only when configured

        cluster = ClusterTopics(settings.kafka, cluster_id=identity.cluster_id)
        return BrokerTopics(cluster, node_id=identity.node_id, clock=clock)
    assert control.leads is not None, "the other source needs a connection"
    return LogDirTopics(leads=control.leads, node_id=identity.node_id, clock=clock)
