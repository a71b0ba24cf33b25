"""DaemonPush: push replication as a part of the daemon; without ``push.listen`` it does nothing."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import JsonValue

from tierd.app.daemon.unprotected_watch import RecordsAtRisk
from tierd.app.engine.compose import Engine
from tierd.model import TopicIdPartition
from tierd.telemetry import PushUse

if TYPE_CHECKING:  # at run time only where it is configured
    from tierd.app.push.push_node import PushNode


class DaemonPush:
    """Push replication of a daemon, or none."""

    def __init__(self, node: "PushNode | None") -> None:
        self._node = node

    @property
    def not_ready(self) -> str:
        """Return why push replication does not work yet; empty when it does, and where there is none."""
        return "" if self._node is None else self._node.not_ready

    async def run(self) -> None:
        """Replicate until ``stop``.

        Raises:
            LogError: the log dir of the copies cannot be used.
        """
        if self._node is not None:
            await self._node.run()

    def stop(self) -> None:
        """End the sessions, close the copies, and end."""
        if self._node is not None:
            self._node.stop()

    def follow(self) -> None:
        """Take the settings of a reload."""
        if self._node is not None:
            self._node.follow()

    def facts(self) -> Mapping[str, JsonValue]:
        """Return the section of the status; empty where there is no push replication."""
        if self._node is None:
            return {}
        from tierd.app.push.push_facts import push_facts  # noqa: PLC0415 - only when configured

        return push_facts(self._node)

    def use(self) -> PushUse | None:
        """Return the state for the metrics; None where there is no push replication."""
        if self._node is None:
            return None
        from tierd.app.push.push_facts import push_use  # noqa: PLC0415 - only when configured

        return push_use(self._node)

    def at_risk(self) -> Mapping[TopicIdPartition, RecordsAtRisk]:
        """Return what the best standby of each partition lacks that is sent to any."""
        if self._node is None:
            return {}
        lacking = self._node.leader.lacking_on_standbys()
        return {each: RecordsAtRisk(risk.seconds, risk.size_bytes) for each, risk in lacking.items()}


async def new_daemon_push(engine: Engine, *, is_short: Callable[[], bool]) -> DaemonPush:
    """Build push replication if the configuration has it, and bind its port; nothing is sent yet.

    Raises:
        ListenError: the port cannot be bound.
        PushLinkError: a certificate cannot be used.
    """
    if not engine.settings.config.push.is_configured:
        return DaemonPush(None)
    from tierd.app.push.engine_push import engine_push  # noqa: PLC0415 - only when configured

    return DaemonPush(await engine_push(engine, is_short=is_short))
