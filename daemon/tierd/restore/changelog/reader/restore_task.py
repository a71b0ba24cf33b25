"""RestoreTask: a task of the stream application, as far as the reader needs it: its stores and its checkpoint."""

import asyncio
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from tierd.log import Disk
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import IllegalRestoreError
from tierd.restore.changelog.checkpoints.checkpoint_file import CHECKPOINT_FILE_NAME, OffsetSemantics
from tierd.restore.changelog.checkpoints.task_checkpoint import NOT_CHECKPOINTED, CheckpointedOffset, TaskCheckpoint
from tierd.restore.changelog.restore_store import RestoreStore
from tierd.tasks import in_thread


class TaskType(Enum):
    """Use of the stores of a task."""

    ACTIVE = "active"  # restored up to the end of the changelog, then processed
    STANDBY = "standby"  # follows the changelog


class RestoreTask:
    """One task: its stores, open, and the checkpoint in its directory.

    Attributes:
        task_id: as in Kafka Streams, ``<subtopology>_<partition>``.
        stores: the store of each changelog.
        exactly_once: only committed records are read, and no checkpoint outlives the start of processing.
        exclusive: held while the offsets of stores are made durable, or a store and its offset are abandoned.
    """

    def __init__(
        self,
        task_id: str,
        directory: Path,
        stores: Mapping[TopicPartition, RestoreStore],
        *,
        type: TaskType = TaskType.ACTIVE,  # noqa: A002 - Kafka's word
        exactly_once: bool = False,
        semantics: OffsetSemantics = OffsetSemantics.LAST_APPLIED,
        disk: Disk | None = None,
    ) -> None:
        for store in stores.values():
            if store.name == CHECKPOINT_FILE_NAME:
                raise IllegalRestoreError(f"task {task_id}: a store cannot have the name {CHECKPOINT_FILE_NAME}")
        self.task_id = task_id
        self.stores = dict(stores)
        self.type = type
        self.exactly_once = exactly_once
        self.exclusive = asyncio.Lock()
        self._checkpoint = TaskCheckpoint(directory, semantics=semantics, disk=disk)
        self._offsets: dict[TopicPartition, CheckpointedOffset] | None = None
        self._is_processing = False
        self._writing = asyncio.Lock()

    @property
    def semantics(self) -> OffsetSemantics:
        """Return the meaning of the offsets in ``.checkpoint``."""
        return self._checkpoint.semantics

    async def checkpointed(self, partition: TopicPartition) -> CheckpointedOffset:
        """Return the checkpoint of a changelog; both files are read once.

        Raises:
            CheckpointFileError: a file is damaged or cannot be read.
        """
        return (await self._loaded()).get(partition, NOT_CHECKPOINTED)

    async def write_checkpoint(self, changed: Mapping[TopicPartition, CheckpointedOffset | None]) -> None:
        """Replace entries, durably; None removes one. Other entries stay.

        Once an exactly-once task processes, entries are only removed: an offset beside a store that a transaction may
        have changed would be trusted after a crash (changelog-restore 2.4).

        Raises:
            CheckpointFileError: the disk is full or failing; what was written before counts.
        """
        async with self._writing:
            offsets = dict(await self._loaded())
            for partition, entry in changed.items():
                offsets.pop(partition, None)
                if entry is not None and not (self._is_processing and self.exactly_once):
                    offsets[partition] = entry
            await in_thread(self._checkpoint.write, offsets)
            self._offsets = offsets

    async def begin_processing(self) -> None:
        """Delete the checkpoint of an exactly-once task, durably, before its stores are opened for processing.

        Raises:
            CheckpointFileError: the file cannot be removed; the task must not process.
        """
        async with self._writing:
            if self.exactly_once:
                transactional = {partition for partition, store in self.stores.items() if store.transactional}
                await in_thread(self._checkpoint.begin_processing, transactional)
                self._offsets = None
            self._is_processing = True

    async def _loaded(self) -> dict[TopicPartition, CheckpointedOffset]:
        if self._offsets is None:
            self._offsets = await asyncio.to_thread(self._checkpoint.load)
        return self._offsets
