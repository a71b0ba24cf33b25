"""LeaderLogs: opens the logs of led partitions: in tail mode beside a broker, or over a log that tierd owns."""

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tierd.errors import TierError
from tierd.log import LogService
from tierd.model import TopicIdPartition
from tierd.replication import LeaderLog, OpenSegments, OwnedLeaderLog, TailFollower


class OpenedLog(NamedTuple):
    """Log of a led partition.

    Attributes:
        raise_high_watermark: sets the watermark of an owned log; None where a broker does that.
    """

    log: LeaderLog
    raise_high_watermark: Callable[[int], None] | None = None


class LeaderLogs:
    """The open logs. For one event loop."""

    def __init__(self, tail: TailFollower, service: LogService | None, own_log_dirs: Collection[Path]) -> None:
        """Open nothing yet.

        Args:
            tail: follows the logs of brokers; it runs while logs are opened.
            service: of the logs that tierd owns; None without one.
            own_log_dirs: log dirs that tierd owns.
        """
        self._tail = tail
        self._service = service
        self._own_log_dirs = frozenset(own_log_dirs)
        self._segments = OpenSegments()
        self._owned: dict[TopicIdPartition, OwnedLeaderLog] = {}

    async def open(self, partition: TopicIdPartition, log_dir: Path, *, leader_epoch: int) -> OpenedLog:
        """Return the log of a partition; the same one until ``close``, with the newer leader epoch.

        Raises:
            TierError: the log cannot be read now.
        """
        if log_dir not in self._own_log_dirs or self._service is None:
            return OpenedLog(await self._tail.follow(partition, leader_epoch=leader_epoch))
        owned = self._owned.get(partition)
        if owned is None:
            writer = self._service.writer(partition.topic_partition)
            owned = await OwnedLeaderLog.open(partition, writer, self._segments, leader_epoch=leader_epoch)
            self._owned[partition] = owned
        owned.begin_leadership(leader_epoch)
        return OpenedLog(owned, owned.raise_high_watermark)

    async def close(self, partition: TopicIdPartition) -> None:
        """Stop reading the log of a partition; one that is not open is no error."""
        self._tail.unfollow(partition)
        owned = self._owned.pop(partition, None)
        if owned is not None:
            with suppress(TierError):  # the log was deleted, or its disk has failed: its writer reports nothing more
                await owned.close()

    async def close_all(self) -> None:
        """Stop reading all logs."""
        for partition in list(self._owned):
            await self.close(partition)
        self._segments.close()
