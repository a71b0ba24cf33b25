"""The logs of tierd's own log dirs: opened, tended, and told of the tier; their settings follow the policies."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tierd.clock import Clock
from tierd.config import TierdConfig
from tierd.log import LogConfig, LogManager, LogService
from tierd.tiering import BrokerLogOffsets, LogOffsets, OwnLogOffsets, TopicPolicy

_FROM_TOTAL = -2
_NO_LIMIT = -1


@dataclass(frozen=True, slots=True)
class LocalLogs:
    """What is known of the logs in every log dir.

    Attributes:
        offsets: of all of them.
        service: of tierd's own; None when every log dir is a broker's.
        config_for: the settings of one of tierd's own, by topic, as the policies have them now.
    """

    offsets: LogOffsets
    service: LogService | None
    config_for: Callable[[str], LogConfig]

    async def follow_policies(self) -> None:
        """Apply the policies to the open logs; what rolls or expires from now on goes by them."""
        if self.service is not None:
            await self.service.reconfigure(self.config_for)


@contextlib.asynccontextmanager
async def local_logs(
    config: TierdConfig, *, policies: Callable[[str], TopicPolicy], wants: Callable[[str], bool], clock: Clock
) -> AsyncIterator[LocalLogs]:
    """Open the logs of tierd's own log dirs; close them in good order afterwards.

    Raises:
        LogError: a log dir is somebody else's, or a log cannot be loaded.
    """

    def config_for(topic: str) -> LogConfig:
        return log_config(policies(topic), is_tiered=wants(topic))

    own = [log_dir.path for log_dir in config.log_dirs if log_dir.owner == "tierd"]
    if not own:
        yield LocalLogs(BrokerLogOffsets(), None, config_for)
        return
    async with LogService(LogManager(own, config_for=config_for, clock=clock), clock=clock) as service:
        yield LocalLogs(OwnLogOffsets(service, own), service, config_for)


def log_config(policy: TopicPolicy, *, is_tiered: bool) -> LogConfig:
    """Turn a policy into the settings of a log (remote-tiering 17.1, 19).

    What the tier does not know keeps everything: a policy without any cleanup is one without limits. Local limits that
    lie above the total ones, or that copies which are switched off have made void, are the total ones.
    """
    tiered = is_tiered and "compact" not in policy.cleanup_policy
    return LogConfig(
        segment_bytes=policy.segment_bytes,
        retention_ms=policy.expires_ms,
        retention_bytes=policy.expires_bytes,
        local_retention_ms=_local(policy.local_retention_ms, policy.expires_ms, policy),
        local_retention_bytes=_local(policy.local_retention_bytes, policy.expires_bytes, policy),
        cleanup_policy=policy.cleanup_policy or frozenset({"delete"}),
        remote_storage_enable=tiered,
        remote_log_copy_disable=tiered and not policy.copy_enabled,
    )


def _local(local: int, total: int, policy: TopicPolicy) -> int:
    above_total = total != _NO_LIMIT and (local == _NO_LIMIT or local > total)
    return _FROM_TOTAL if above_total or not policy.copy_enabled else local
