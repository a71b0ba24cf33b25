"""The logs in the log dirs that tierd owns: opening, settings that follow the policies, and offsets."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pydantic import JsonValue

import tierd.log
import tierd.pipeline
from tierd.clock import Clock
from tierd.config import LogCleanerSettings, LogDirSettings, TopicDefaults, TopicsSettings
from tierd.kernels import new_hash_secret
from tierd.telemetry import LogCleanerUse, OwnLogUse
from tierd.tiering import BrokerLogOffsets, LogOffsets, OwnLogOffsets, TopicPolicy

# Most log dirs are a broker's: the modules of tierd's own logs are imported where they are used.
if TYPE_CHECKING:
    from tierd.log import LogConfig, LogService, ServiceSettings, UnifiedLog

_FROM_TOTAL = -2
_NO_LIMIT = -1
_LONG_MAX = (1 << 63) - 1  # what Kafka takes for no limit
_KEY_MAP_BYTES = 128 << 20  # of all log dirs together, as a broker's log.cleaner.dedupe.buffer.size


@dataclass(frozen=True, slots=True)
class LocalLogs:
    """Logs in all log dirs.

    Attributes:
        offsets: of all of them.
        service: of tierd's own; None when every log dir is a broker's.
        config_for: the settings of one of tierd's own, by topic, as the policies have them now.
    """

    offsets: LogOffsets
    service: "LogService | None"
    config_for: "Callable[[str], LogConfig]"

    def cleaner_use(self) -> LogCleanerUse | None:
        """Return the use of the log cleaner; None when a broker owns every log dir."""
        if self.service is None:
            return None
        did = self.service.cleaner_statistics()
        return LogCleanerUse(
            rounds=did.rounds,
            aborted=did.aborted,
            failed=did.failed,
            bytes_read=did.bytes_read,
            bytes_written=did.bytes_written,
            max_dirty_ratio=did.max_dirty_ratio,
            uncleanable=len(self.service.uncleanable()),
        )

    def use(self) -> list[OwnLogUse]:
        """Return the use of each log that tierd owns; a log whose log dir is offline is left out."""
        return [] if self.service is None else [_use_of(log) for log in self.service.logs()]

    def facts(self) -> Mapping[str, JsonValue]:
        """Return the status of the logs that tierd owns; empty when a broker owns every log dir."""
        if self.service is None:
            return {}
        uncleanable = {str(partition): why for partition, why in sorted(self.service.uncleanable().items())}
        return {"cleaner": asdict(self.service.cleaner_statistics()), "uncleanable": uncleanable}

    async def follow_policies(self) -> None:
        """Apply the policies to the open logs; later rolls and expirations follow them."""
        if self.service is not None:
            await self.service.reconfigure(self.config_for)


@contextlib.asynccontextmanager
async def local_logs(
    log_dirs: Sequence[LogDirSettings],
    cleaner: LogCleanerSettings,
    *,
    topics: Callable[[], TopicsSettings],
    policies: Callable[[str], TopicPolicy],
    clock: Clock,
) -> AsyncIterator[LocalLogs]:
    """Open the logs in the log dirs that tierd owns; close them in an orderly way afterwards.

    Raises:
        LogError: another process owns a log dir, or a log cannot be loaded.
    """

    def config_for(topic: str) -> "LogConfig":
        settings = topics()
        return log_config(policies(topic), settings.for_topic(topic), is_tiered=settings.wants(topic))

    own = [log_dir.path for log_dir in log_dirs if log_dir.owner == "tierd"]
    if not own:
        yield LocalLogs(BrokerLogOffsets(), None, config_for)
        return
    manager = tierd.log.LogManager(own, tierd.log.LogManagerSettings(config_for=config_for, clock=clock))
    rewriting = tierd.pipeline.own_log_rewriting(memory_bytes=_KEY_MAP_BYTES // len(own), new_secret=new_hash_secret)
    async with tierd.log.LogService(
        manager, clock=clock, rewriting=rewriting, settings=service_settings(cleaner)
    ) as service:
        yield LocalLogs(OwnLogOffsets(service, own), service, config_for)


def service_settings(cleaner: LogCleanerSettings) -> "ServiceSettings":
    """Return the settings of the service for the section ``log_cleaner``; other settings keep their defaults."""
    return tierd.log.ServiceSettings(
        cleaner_interval_s=cleaner.backoff_ms / 1000, cleaner_bytes_per_s=cleaner.io_max_bytes_per_second
    )


def log_config(policy: TopicPolicy, settings: TopicDefaults, *, is_tiered: bool) -> "LogConfig":
    """Turn a policy, and what the file says of tierd's own logs, into the settings of a log (remote-tiering 17.1, 19).

    A policy without a cleanup policy, as while the brokers have not answered, has no limits and keeps everything. A
    local limit that is above the total limit counts as the total limit; so does every local limit where copies are off.
    """
    tiered = is_tiered and "compact" not in policy.cleanup_policy
    log, max_lag_s = settings.log, settings.max_compaction_lag_s
    return tierd.log.LogConfig(
        segment_bytes=policy.segment_bytes,
        retention_ms=policy.expires_ms,
        retention_bytes=policy.expires_bytes,
        local_retention_ms=_local(policy.local_retention_ms, policy.expires_ms, policy),
        local_retention_bytes=_local(policy.local_retention_bytes, policy.expires_bytes, policy),
        cleanup_policy=policy.cleanup_policy or frozenset({"delete"}),
        remote_storage_enable=tiered,
        remote_log_copy_disable=tiered and not policy.copy_enabled,
        delete_retention_ms=round(settings.delete_retention_s * 1000),
        min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=round(settings.min_compaction_lag_s * 1000),
        max_compaction_lag_ms=_LONG_MAX if max_lag_s is None else max(1, round(max_lag_s * 1000)),
        segment_ms=log.segment_ms,
        segment_jitter_ms=log.segment_jitter_ms,
        segment_index_bytes=log.segment_index_bytes,
        index_interval_bytes=log.index_interval_bytes,
        max_message_bytes=log.max_message_bytes,
        flush_messages=_or_never(log.flush_messages),
        flush_ms=_or_never(log.flush_ms),
        file_delete_delay_ms=log.file_delete_delay_ms,
        message_timestamp_type=tierd.log.TimestampType(log.message_timestamp_type),
        message_timestamp_before_max_ms=_or_never(log.message_timestamp_before_max_ms),
        message_timestamp_after_max_ms=_or_never(log.message_timestamp_after_max_ms),
        compression_type=log.compression_type,
        preallocate=log.preallocate,
        producer_id_expiration_ms=log.producer_id_expiration_ms,
        producer_id_expiration_check_interval_ms=log.producer_id_expiration_check_interval_ms,
    )


def _use_of(log: "UnifiedLog") -> OwnLogUse:
    now = log.statistics()
    return OwnLogUse(
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        segments=now.segment_count,
        log_start_offset=now.log_start_offset,
        log_end_offset=now.log_end_offset,
        size_bytes=now.size_bytes,
        refused=asdict(log.refused),
    )


def _or_never(limit: int) -> int:
    return _LONG_MAX if limit == _NO_LIMIT else limit


def _local(local: int, total: int, policy: TopicPolicy) -> int:
    above_total = total != _NO_LIMIT and (local == _NO_LIMIT or local > total)
    return _FROM_TOTAL if above_total or not policy.copy_enabled else local
