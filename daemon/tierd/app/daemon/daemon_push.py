"""DaemonPush: push replication as a part of the daemon; without ``push.listen`` it does nothing."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tierd.app.engine.compose import Engine

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
