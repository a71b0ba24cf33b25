"""PartitionMetadataFile: the topic id in a partition directory, written when it is first needed (log-format 1.5)."""

from pathlib import Path
from typing import Final
from uuid import UUID

from tierd.errors import LogError, TierErrorCode
from tierd.log.files.checkpoints import PARTITION_METADATA, encode_topic_id, parse_topic_id
from tierd.log.files.disk import Disk, read_file, replace_file
from tierd.log.log_errors import CheckpointError

_LIMIT_BYTES = 4096


class PartitionMetadataFile:
    """The ``partition.metadata`` of a log that tierd owns (Kafka: PartitionMetadataFile).

    ``record`` keeps an id in memory, and ``maybe_flush`` writes it: before the first append reaches the disk, when the
    log is closed, and before its directory is renamed. Blocking; errors of the disk are ``OSError``.

    Attributes:
        path: the path of the file, which may not exist yet.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self.path: Final = directory / PARTITION_METADATA
        self._unwritten: UUID | None = None

    @property
    def exists(self) -> bool:
        """Return True if the file exists."""
        return self._disk.status(self.path) is not None

    @property
    def is_pending(self) -> bool:
        """Return True if a topic id has yet to be written."""
        return self._unwritten is not None

    def record(self, topic_id: UUID) -> None:
        """Keep ``topic_id`` until ``maybe_flush`` writes it.

        Raises:
            ValueError: the all-zero id, which is no valid id.
            LogError: another id waits to be written.
        """
        if not topic_id.int:
            raise ValueError(f"{self.path}: the all-zero id is no topic's")
        if self._unwritten is not None and self._unwritten != topic_id:
            raise LogError(
                f"{self.path}: of topic id {self._unwritten}, not {topic_id}",
                remedy="the topic was deleted and made again: remove the partition directory, or give the right id",
                code=TierErrorCode.INCONSISTENT_TOPIC_ID,
            )
        self._unwritten = topic_id

    def maybe_flush(self) -> None:
        """Write the recorded id, durably, unless it is written already."""
        if self._unwritten is not None:
            replace_file(self._disk, self.path, encode_topic_id(self._unwritten))
            self._unwritten = None

    def read(self) -> UUID:
        """Return the id in the file.

        Raises:
            CheckpointError: wrong content.
            OSError: the file does not exist or cannot be read.
        """
        status = self._disk.status(self.path)
        if status is not None and status.size_bytes > _LIMIT_BYTES:
            raise CheckpointError(f"{self.path}: {status.size_bytes} bytes are too many", remedy="restore the file")
        return parse_topic_id(read_file(self._disk, self.path), name=str(self.path))
