"""Settings of a ``LogManager``, and the rules for logs that must not be in a log dir any more."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from tierd.clock import Clock, SystemClock
from tierd.log.files.clean_shutdown import NO_BROKER_EPOCH
from tierd.log.loading.log_recovery import random_int
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.log_config import LogConfig

Replicas = Callable[[UUID, int], Collection[int] | None]
"""The nodes that hold a partition of a topic; None when the cluster knows no such topic id or partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerSettings:
    """Settings of one manager, the same for each of its log dirs.

    Attributes:
        config_for: returns the settings of a topic.
        clock: the clock for all that is stamped or due.
        is_stray: called for every current log at the start; a stray log is renamed and set aside.
        random_int: source of jitter.
        new_id: returns 32 hex digits, different ones at each call.
        recovery_threads_per_dir: number of logs of a log dir that are loaded at the same time.
        file_delete_delay_ms: time for which a ``-delete`` directory is kept.
        broker_epoch: written into the clean marker.
    """

    config_for: Callable[[str], LogConfig]
    clock: Clock = field(default_factory=SystemClock)
    is_stray: Callable[[UnifiedLog], bool] = lambda _: False
    random_int: Callable[[], int] = random_int
    new_id: Callable[[], str] = lambda: uuid4().hex
    recovery_threads_per_dir: int = 1
    file_delete_delay_ms: int = 60_000
    broker_epoch: int = NO_BROKER_EPOCH


def lacks_topic_id(each: UnifiedLog) -> bool:
    """Return True if the log has no topic id, so that its topic is unknown; needs no cluster metadata."""
    return each.topic_id is None


def is_stray(each: UnifiedLog, *, node_id: int, replicas: Replicas) -> bool:
    """Return True if the log has no topic id, or the cluster's metadata places no such replica on this node.

    Kafka: LogManager.isStrayKraftReplica.
    """
    if each.topic_id is None:
        return True
    nodes = replicas(each.topic_id, each.topic_partition.partition)
    return nodes is None or node_id not in nodes
