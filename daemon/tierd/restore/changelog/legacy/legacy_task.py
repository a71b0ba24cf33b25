"""LegacyTask: an active task around the old reader: its stores and its checkpoint (changelog-restore 1.2, 1.7, 1.9).

The checkpoint has the next offset to read. With exactly-once it is deleted as soon as it was read: after a crash its
absence says that the stores may have data of an aborted transaction.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Self

from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import IllegalRestoreError
from tierd.restore.changelog.checkpoints.checkpoint_file import CheckpointFile, OffsetSemantics
from tierd.restore.changelog.legacy.legacy_reader import LegacyReader
from tierd.restore.changelog.legacy.state_restorer import NO_OFFSET_LIMIT, StateRestorer
from tierd.restore.changelog.restore_store import RestoreStore
from tierd.tasks import in_thread, run_to_end


class LegacyTask:
    """Active task whose stores the old reader restores. The stores are open."""

    def __init__(
        self, task_id: str, reader: LegacyReader, file: CheckpointFile, loaded: dict[TopicPartition, int], *, eos: bool
    ) -> None:
        self.task_id = task_id
        self.exactly_once = eos
        self._reader = reader
        self._file = file
        self._loaded = loaded
        self._restorers: dict[TopicPartition, StateRestorer] = {}

    @classmethod
    async def open(
        cls,
        task_id: str,
        reader: LegacyReader,
        file: CheckpointFile,
        *,
        stores: Mapping[TopicPartition, RestoreStore],
        exactly_once: bool,
        limits: Mapping[TopicPartition, int] | None = None,
    ) -> Self:
        """Read the checkpoint and register every store.

        Args:
            task_id: of the task.
            reader: restores the stores.
            file: with the semantics ``NEXT``.
            stores: by changelog.
            exactly_once: the checkpoint is deleted after it was read.
            limits: committed offsets of those changelogs that are source topics.

        Raises:
            IllegalRestoreError: the semantics of the file are others.
            CheckpointFileError: the file is damaged, or cannot be read or deleted.
        """
        if file.semantics is not OffsetSemantics.NEXT:
            raise IllegalRestoreError(f"{file.path}: the old reader keeps next offsets, not {file.semantics}")
        loaded = await asyncio.to_thread(file.read)
        task = cls(task_id, reader, file, loaded, eos=exactly_once)
        if exactly_once:
            await in_thread(file.delete)
        for partition, store in stores.items():
            checkpoint = loaded.get(partition) if store.persistent else None
            is_known = checkpoint is not None and checkpoint >= 0
            task._restorers[partition] = StateRestorer(
                partition,
                store,
                checkpoint=checkpoint if is_known else None,
                offset_limit=(limits or {}).get(partition, NO_OFFSET_LIMIT),
            )
            reader.register(task._restorers[partition])
        return task

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Return the changelogs of the task."""
        return frozenset(self._restorers)

    async def reinitialize_state_stores(self, partitions: Iterable[TopicPartition]) -> None:
        """Wipe the stores of these changelogs, no others, and register them again.

        Without exactly-once the checkpoint is rewritten first, without them.

        Raises:
            StoreFailedError: a store cannot be wiped.
            CheckpointFileError: the checkpoint cannot be written.
        """
        wiped = sorted(partitions)
        for partition in wiped:
            self._loaded.pop(partition, None)
        if not self.exactly_once:
            await self._write({each: offset for each, offset in self._loaded.items() if each not in wiped})
        for partition in wiped:
            await run_to_end(self._restorers[partition].store.wipe(), name=f"wipe {partition}")
            self._reader.register(self._restorers[partition])

    async def checkpoint(self, processed: Mapping[TopicPartition, int]) -> None:
        """Write the checkpoint, after the stores were flushed; with exactly-once nothing is written while it runs.

        Args:
            processed: the last offset that the task itself has written to each changelog.

        Raises:
            StoreFailedError: a store cannot be flushed.
            CheckpointFileError: the disk is full or failing; the old checkpoint counts.
        """
        if not self.exactly_once:
            await self._write_next_offsets(processed)

    async def close(self, processed: Mapping[TopicPartition, int], *, clean: bool) -> None:
        """Write the last checkpoint; after an unclean end of an exactly-once task there is none.

        Raises:
            StoreFailedError: a store cannot be flushed.
            CheckpointFileError: the checkpoint cannot be written or deleted.
        """
        if clean:
            await self._write_next_offsets(processed)
        elif self.exactly_once:
            await in_thread(self._file.delete)

    async def _write_next_offsets(self, processed: Mapping[TopicPartition, int]) -> None:
        restored = self._reader.restored_offsets()
        offsets = {}
        for partition, restorer in self._restorers.items():
            if not restorer.store.persistent:
                continue
            if partition in processed:
                offset = processed[partition] + 1
            else:  # a restorer that was not met yet reports 0
                offset = restored.get(partition) or self._loaded.get(partition, 0)
            if offset > 0:
                offsets[partition] = offset
            await restorer.store.flush()
        self._loaded = offsets
        await self._write(offsets)

    async def _write(self, offsets: Mapping[TopicPartition, int]) -> None:
        await in_thread(self._file.write, dict(offsets))
