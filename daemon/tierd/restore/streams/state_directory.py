"""StreamsStateDirectory: where a Kafka Streams application keeps its stores, locked as Streams locks it.

::

    <state.dir>/                                  the setting state.dir of the application
      <application id>/
        .lock                                     held by the one process that uses the directory
        kafka-streams-process-metadata            id of the process; Streams makes a new one if it is missing
        0_3/                                      task: subtopology, partition
          .checkpoint                             <changelog> <partition> <offset of the last record applied>
          rocksdb/<store>/                        key-value and versioned stores
          <store>/<store>.<start of segment>/     window and session stores, start in milliseconds
          <store>.position                        offsets of the input; of no use beside another store
      .tierd-restore/<application id>/0_3/<store>/  what a restore builds, moved to its place at the end

Streams 4.3 keeps offsets in a column family ``offsets`` of every store. It takes those of ``.checkpoint`` over when it
starts, and removes the file. So tierd writes ``.checkpoint``, which every version reads. With exactly-once, a store
that has no offset there costs the whole task its stores.
"""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, Self

from tierd.errors import LogDirLockedError, RefusedError
from tierd.log import LogDirLock, OsDisk
from tierd.model import TopicPartition
from tierd.restore.changelog.checkpoints.checkpoint_file import CHECKPOINT_FILE_NAME, CheckpointFile, OffsetSemantics
from tierd.restore.streams.streams_store import StreamsStore, is_streams_name

_STAGE: Final = ".tierd-restore"
_DIRECTORY_MODE: Final = 0o750  # Streams: StateDirectory.configurePermissions


class StreamsStateDirectory:
    """State directory of one application, locked from ``open`` to ``close``. Calls block; any thread may call.

    Raises, from every call:
        OSError: the disk is full or failing.
        CheckpointFileError: the file ``.checkpoint`` of a task is damaged, or cannot be read or written.
    """

    def __init__(self, path: Path, application_id: str, lock: LogDirLock) -> None:
        self.path = path
        self.application_id = application_id
        self._lock = lock
        self._disk = OsDisk()
        self._checkpoints = Lock()  # a task has one file for all its stores

    @classmethod
    def open(cls, state_dir: Path, application_id: str) -> Self:
        """Lock the directory of an application below ``state_dir``; both are made if they are missing.

        Raises:
            RefusedError: the application runs, the directory belongs to another user, or the id cannot be one.
        """
        if not is_streams_name(application_id):
            raise RefusedError(f"{application_id!r} cannot be an application id", remedy="give that of the application")
        directory = state_dir / application_id
        directory.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)
        if (owner := directory.stat().st_uid) != os.geteuid():
            raise RefusedError(
                f"{directory} belongs to user id {owner}, and this process runs as user id {os.geteuid()}",
                remedy="run the restore as the user of the application, so that it can open the files",
            )
        try:
            lock = LogDirLock.acquire(directory)
        except LogDirLockedError as error:
            raise RefusedError(
                f"{directory} is in use: .lock is locked", remedy="stop the application, then restore again"
            ) from error
        OsDisk().sync_directory(state_dir)
        return cls(state_dir, application_id, lock)

    def close(self) -> None:
        """Give the lock back; a second time does nothing."""
        self._lock.release()

    def stage_directory(self, store: StreamsStore, partition: int) -> Path:
        """Return the directory in which a restore builds the store; the calling code creates it."""
        return self.path / _STAGE / self.application_id / store.task(partition) / store.name

    def store_directory(self, store: StreamsStore, partition: int) -> Path:
        """Return the place of the store."""
        return streams_store_directory(self.path, self.application_id, store, partition)

    def install(self, store: StreamsStore, partition: int, built: Path) -> Path | None:
        """Move the directory ``built`` to the place of the store; return where the store that was there is now.

        The offset of the store leaves ``.checkpoint`` first, so that Streams never takes an old offset for a new store.
        ``built`` that does not exist was moved by an earlier call.
        """
        if not built.exists():
            return None
        self._forget_offset(store, partition)
        target = self.store_directory(store, partition)
        replaced = self._move_aside(store, partition, target)
        target.parent.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)
        self._disk.rename(built, target)
        for directory in (built.parent, target.parent, target.parent.parent, self._task(store, partition).parent):
            self._disk.sync_directory(directory)
        return replaced

    def record_offset(self, store: StreamsStore, partition: int, offset: int | None) -> None:
        """Write the offset of the last applied record of an installed store, durably; None if there was no record.

        An offset that is there already is newer: Streams ran, and wrote it.
        """
        changelog = TopicPartition(store.changelog, partition)
        with self._checkpoints:
            checkpoint = self._checkpoint(store, partition)
            offsets = checkpoint.read()
            if changelog not in offsets:
                checkpoint.write(offsets | {changelog: OffsetSemantics.LAST_APPLIED.entry(offset)})

    def _forget_offset(self, store: StreamsStore, partition: int) -> None:
        changelog = TopicPartition(store.changelog, partition)
        with self._checkpoints:
            checkpoint = self._checkpoint(store, partition)
            offsets = checkpoint.read()
            if offsets.pop(changelog, None) is not None:
                checkpoint.write(offsets)

    def _checkpoint(self, store: StreamsStore, partition: int) -> CheckpointFile:
        return CheckpointFile(self._task(store, partition) / CHECKPOINT_FILE_NAME)

    def _task(self, store: StreamsStore, partition: int) -> Path:
        return self.path / self.application_id / store.task(partition)

    def _move_aside(self, store: StreamsStore, partition: int, target: Path) -> Path | None:
        """Move a store that is in the way into the stage, under a name that is free."""
        position = self._task(store, partition) / f"{store.name}.position"
        if not target.exists() and not position.exists():
            return None
        stage = self.stage_directory(store, partition)
        number = 1
        while (aside := stage.with_name(f"{stage.name}.replaced-{number}")).exists():
            number += 1
        aside.mkdir()
        for name in (target, position):
            with suppress(FileNotFoundError):
                self._disk.rename(name, aside / name.name)
        for directory in (aside, stage.parent, target.parent, position.parent):
            self._disk.sync_directory(directory)
        return aside


def streams_store_directory(state_dir: Path, application_id: str, store: StreamsStore, partition: int) -> Path:
    """Return the place of a store of an application below its ``state.dir``."""
    return state_dir / application_id / store.task(partition) / store.directory
