"""StandbySide: keeps copies of other daemons' partitions in a log dir of this host, tended as tierd's own are."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tierd.app.engine.local_logs import service_settings
from tierd.app.push.room_settings import followed_leaders, standby_settings
from tierd.clock import Clock
from tierd.config import LogCleanerSettings, PushReplicationSettings
from tierd.errors import LogDirOfflineError
from tierd.files import make_own_directory
from tierd.kernels import new_hash_secret
from tierd.log import LogManager, LogManagerSettings, LogService
from tierd.pipeline import own_log_rewriting
from tierd.replication import (
    AppendRecordsRequest,
    AppendRecordsResponse,
    OpenLeaderChannel,
    PeerIdentity,
    PushErrorCode,
    Standby,
    StandbyIdentity,
    StandbyMemory,
    StandbyStatus,
    StandbyTopics,
)

_KEY_MAP_BYTES: Final = 128 << 20


class StandbySide:
    """Follower's side of one daemon; ``run`` is its task. Without a log dir in the configuration there is none."""

    def __init__(
        self,
        identity: StandbyIdentity,
        settings: Callable[[], PushReplicationSettings],
        open_channel: OpenLeaderChannel,
        *,
        state_dir: Path,
        cleaner: LogCleanerSettings,
        clock: Clock,
    ) -> None:
        """Open nothing yet.

        Args:
            identity: of this daemon.
            settings: return those in force.
            open_channel: connects to a leader.
            state_dir: has the standby's file.
            cleaner: settings of the cleaner of compacted copies.
            clock: time.
        """
        self._identity = identity
        self._settings = settings
        self._open_channel = open_channel
        self._state_dir = state_dir
        self._cleaner = cleaner
        self._clock = clock
        self._standby: Standby | None = None

    @property
    def not_ready(self) -> str:
        """Return why leaders cannot send yet; empty when they can."""
        return "" if self._standby is not None else "the copies of push replication are being loaded"

    async def run(self) -> None:
        """Keep copies until cancelled; the logs are closed in an orderly way.

        Raises:
            LogError: the log dir cannot be made, another process owns it, or a log cannot be loaded.
        """
        push = self._settings()
        log_dir = push.standby.log_dir
        assert log_dir is not None, "asked for with a log dir only"
        await asyncio.to_thread(_make_log_dir, log_dir)
        memory = await asyncio.to_thread(StandbyMemory.load, self._state_dir)
        topics = StandbyTopics(memory.topics, flush=push.standby.flush, flush_interval_s=push.standby.flush_interval_s)
        manager = LogManager([log_dir], LogManagerSettings(config_for=topics.config_for, clock=self._clock))
        rewriting = own_log_rewriting(memory_bytes=_KEY_MAP_BYTES, new_secret=new_hash_secret)
        settings = service_settings(self._cleaner)
        async with LogService(manager, clock=self._clock, rewriting=rewriting, settings=settings) as service:
            standby = Standby(
                self._identity,
                service,
                self._open_channel,
                topics=topics,
                memory=memory,
                clock=self._clock,
                settings=standby_settings(push, state_dir=self._state_dir),
            )
            self._standby = standby
            self.follow()
            try:
                await standby.run()
            finally:
                self._standby = None

    def follow(self) -> None:
        """Take the settings in force after a change."""
        if self._standby is not None:
            push = self._settings()
            self._standby.enable_push(push.enabled)
            self._standby.set_leaders(followed_leaders(push))

    async def append_records(self, request: AppendRecordsRequest, peer: PeerIdentity) -> AppendRecordsResponse:
        """Answer a leader that has proved who it is."""
        if self._standby is None:
            return AppendRecordsResponse(error_code=PushErrorCode.FOLLOWER_BUSY)
        return await self._standby.append_records(request, peer)

    def status(self) -> StandbyStatus | None:
        """Return the standby as it is now; None while its logs are loaded."""
        return None if self._standby is None else self._standby.status()


def _make_log_dir(path: Path) -> None:
    try:
        make_own_directory(path)
    except OSError as error:
        raise LogDirOfflineError(
            f"push.standby.log_dir {path}: {error.strerror or error}",
            remedy="let the user of tierd make the directory, or choose another one",
        ) from error
