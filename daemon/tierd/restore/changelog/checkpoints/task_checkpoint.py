"""TaskCheckpoint: ``.checkpoint`` and ``.checkpoint.meta`` of one task's directory, kept in step."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.log import Disk, OsDisk
from tierd.model import TopicPartition
from tierd.restore.changelog.checkpoints.checkpoint_file import CHECKPOINT_FILE_NAME, CheckpointFile, OffsetSemantics
from tierd.restore.changelog.checkpoints.checkpoint_meta import (
    CheckpointMeta,
    read_checkpoint_metas,
    write_checkpoint_metas,
)

_META_SUFFIX: Final = ".meta"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointedOffset:
    """One changelog's entry, whatever the semantics of the file.

    Attributes:
        has_entry: ``.checkpoint`` has an entry, be it without an offset.
        last_applied: None where the entry has no offset, or where there is no entry.
        meta: None where the side file has no entry.
    """

    has_entry: bool
    last_applied: int | None
    meta: CheckpointMeta | None


NOT_CHECKPOINTED: Final = CheckpointedOffset(has_entry=False, last_applied=None, meta=None)


class TaskCheckpoint:
    """Checkpoint of one task. Calls block; one at a time.

    The order of the writes keeps every crash harmless: an offset without facts never appears where facts were written
    before, and facts are never newer than the offset that they stand beside.
    """

    def __init__(
        self, directory: Path, *, semantics: OffsetSemantics = OffsetSemantics.LAST_APPLIED, disk: Disk | None = None
    ) -> None:
        self._disk = disk or OsDisk()
        self._file = CheckpointFile(directory / CHECKPOINT_FILE_NAME, semantics=semantics, disk=self._disk)
        self._meta_path = directory / f"{CHECKPOINT_FILE_NAME}{_META_SUFFIX}"

    @property
    def semantics(self) -> OffsetSemantics:
        """Return the meaning of the offsets that are written."""
        return self._file.semantics

    def load(self) -> dict[TopicPartition, CheckpointedOffset]:
        """Return what both files have.

        The side file says with which semantics an offset was written, if it is about this very offset. Any other
        offset has the semantics of this object.

        Raises:
            CheckpointFileError: one of the files is damaged or cannot be read.
        """
        entries = self._file.read()
        metas = read_checkpoint_metas(self._disk, self._meta_path)
        loaded = {}
        for partition in entries.keys() | metas.keys():
            meta, entry = metas.get(partition), entries.get(partition)
            semantics = self.semantics
            if meta is not None and entry == meta.semantics.entry(meta.offset):
                semantics = meta.semantics
            loaded[partition] = CheckpointedOffset(
                has_entry=entry is not None,
                last_applied=None if entry is None else semantics.last_applied(entry),
                meta=meta,
            )
        return loaded

    def write(self, offsets: Mapping[TopicPartition, CheckpointedOffset]) -> None:
        """Replace both files, durably. Entries that are not in ``offsets`` go.

        Raises:
            CheckpointFileError: the disk is full or failing. Each file has its old content or its new one.
        """
        known = read_checkpoint_metas(self._disk, self._meta_path)
        metas = {partition: offset.meta for partition, offset in offsets.items() if offset.meta is not None}
        first = {**metas, **known}
        if first.keys() != known.keys():
            write_checkpoint_metas(self._disk, self._meta_path, first)
        self._file.write(
            {
                partition: self.semantics.entry(offset.last_applied)
                for partition, offset in offsets.items()
                if offset.has_entry
            }
        )
        if first != metas:
            write_checkpoint_metas(self._disk, self._meta_path, metas)

    def begin_processing(self, transactional: Collection[TopicPartition]) -> None:
        """Delete ``.checkpoint``, durably: from now on the stores change by other hands than a restore's.

        The side file keeps the facts about ``transactional`` changelogs, whose stores keep their own offsets.

        Raises:
            CheckpointFileError: the file cannot be removed; the stores must not be opened for processing.
        """
        self._file.delete()
        metas = read_checkpoint_metas(self._disk, self._meta_path)
        kept = {partition: meta for partition, meta in metas.items() if partition in transactional}
        if kept != metas:
            write_checkpoint_metas(self._disk, self._meta_path, kept)
