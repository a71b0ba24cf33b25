"""LogOffsets: the link to the owner of a log, a broker or tierd: offsets of the log, and reports about the tier."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tierd.model import TopicIdPartition, TopicPartition
from tierd.tiering.copy_plan import CopiedThrough
from tierd.tiering.local.broker_state import BrokerCheckpoints, BrokerOffsets

if TYPE_CHECKING:  # at run time only where tierd owns logs
    from tierd.log import LogService


class LogOffsets(Protocol):
    """Offsets of any local log, and reports to its owner."""

    async def offsets(self, log_dir: Path, partition: TopicIdPartition) -> BrokerOffsets:
        """Return the high watermark and the log start.

        Raises:
            TierError: they are unknown now.
        """

    async def high_watermarks(self, log_dir: Path) -> Mapping[TopicPartition, int]:
        """Return the high watermark of every partition of ``log_dir`` that has one.

        Raises:
            TierError: the checkpoint cannot be read or understood now.
        """

    async def copied_through(self, log_dir: Path, partition: TopicIdPartition, copied: CopiedThrough) -> None:
        """Report that the tier has the log through ``copied``, durably; the report counts until the next leader epoch.

        Raises:
            TierError: it was not noted; repeat the call.
        """

    async def raise_log_start(self, log_dir: Path, partition: TopicIdPartition, offset: int) -> None:
        """Raise the log start to ``offset``: what lies below leaves the tier and is no longer read.

        Raises:
            TierError: the log refuses it, or it was not noted.
        """


class BrokerLogOffsets:
    """Offsets of log dirs that a Kafka broker owns: read from its checkpoints; the broker takes no notice of tierd."""

    def __init__(self) -> None:
        self._checkpoints = BrokerCheckpoints()

    async def offsets(self, log_dir: Path, partition: TopicIdPartition) -> BrokerOffsets:
        """Return the offsets in the broker's checkpoints, up to some seconds old."""
        return await self._checkpoints.offsets(log_dir, partition.topic_partition)

    async def high_watermarks(self, log_dir: Path) -> Mapping[TopicPartition, int]:
        """Return the high watermarks in the broker's checkpoint, up to some seconds old."""
        return await self._checkpoints.high_watermarks(log_dir)

    async def copied_through(self, log_dir: Path, partition: TopicIdPartition, copied: CopiedThrough) -> None:
        """Do nothing: the broker's retention does not ask tierd, which is why tierd holds segments."""

    async def raise_log_start(self, log_dir: Path, partition: TopicIdPartition, offset: int) -> None:
        """Do nothing: a broker's log start is the broker's own."""


class OwnLogOffsets:
    """Offsets of log dirs that tierd owns, from the logs themselves; of all others, from the broker.

    Retention of tierd's own logs deletes only what was reported with ``copied_through`` (remote-tiering 17.1).
    """

    def __init__(self, logs: "LogService", log_dirs: Collection[Path]) -> None:
        self._logs = logs
        self._own = frozenset(log_dirs)
        self._broker = BrokerLogOffsets()

    async def offsets(self, log_dir: Path, partition: TopicIdPartition) -> BrokerOffsets:
        """Return the offsets of this moment; of a broker's log dir, those of its checkpoints.

        Raises:
            UnknownPartitionError: the log is not open: it is being deleted, or its disk has failed.
        """
        if log_dir not in self._own:
            return await self._broker.offsets(log_dir, partition)
        log = self._logs.log(partition.topic_partition)
        return BrokerOffsets(high_watermark=log.high_watermark, log_start_offset=log.log_start_offset)

    async def high_watermarks(self, log_dir: Path) -> Mapping[TopicPartition, int]:
        """Return the high watermarks of this moment; of a broker's log dir, those of its checkpoint."""
        if log_dir not in self._own:
            return await self._broker.high_watermarks(log_dir)
        return {log.topic_partition: log.high_watermark for log in self._logs.logs() if log.directory.parent == log_dir}

    async def copied_through(self, log_dir: Path, partition: TopicIdPartition, copied: CopiedThrough) -> None:
        """Let retention delete through ``copied``. A log that was truncated meanwhile ignores the report.

        Raises:
            UnknownPartitionError: the log is not open.
            LogError: its disk has failed.
        """
        if log_dir in self._own:
            await self._logs.writer(partition.topic_partition).run(
                lambda log: log.replace_highest_remote_offset(copied.offset, epoch=copied.epoch)
            )

    async def raise_log_start(self, log_dir: Path, partition: TopicIdPartition, offset: int) -> None:
        """Raise the log start, so that it is still raised after a crash.

        Raises:
            UnknownPartitionError: the log is not open.
            OffsetOutOfRangeError: above its high watermark.
            LogError: its disk has failed.
        """
        if log_dir in self._own:
            await self._logs.writer(partition.topic_partition).run(
                lambda log: log.update_log_start_from_remote_tier(offset)
            )
