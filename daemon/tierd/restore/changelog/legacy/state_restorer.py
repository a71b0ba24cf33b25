"""StateRestorer: the restore of one store in the old reader: limit, checkpoint, callbacks (changelog-restore 1.1)."""

from typing import Final

from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_source import ChangelogRecords, converted
from tierd.restore.changelog.restore_listener import RestoreListener
from tierd.restore.changelog.restore_store import RestoreStore

NO_CHECKPOINT: Final = -1
"""Checkpoint of a store that has none."""
NO_OFFSET_LIMIT: Final = 2**63 - 1
"""Limit of a changelog that is no source topic."""


class StateRestorer:
    """Restore of one store. An exception of a listener or of the store passes through.

    Attributes:
        checkpoint: next offset to read, as an earlier run left it; ``NO_CHECKPOINT`` without one.
        offset_limit: exclusive; fixed.
        store_listener: callbacks of the store itself, after those of the user.
    """

    def __init__(
        self,
        partition: TopicPartition,
        store: RestoreStore,
        *,
        checkpoint: int | None = None,
        offset_limit: int = NO_OFFSET_LIMIT,
        store_listener: RestoreListener | None = None,
    ) -> None:
        self.partition = partition
        self.store = store
        self.checkpoint = NO_CHECKPOINT if checkpoint is None else checkpoint
        self.offset_limit = offset_limit
        self._listeners = [] if store_listener is None else [store_listener]
        self._starting_offset = 0
        self._ending_offset = 0
        self._restored_offset = 0

    @property
    def starting_offset(self) -> int:
        """Return the first offset that the restore reads, at most the limit."""
        return self._starting_offset

    @starting_offset.setter
    def starting_offset(self, offset: int) -> None:
        self._starting_offset = min(self.offset_limit, offset)

    @property
    def ending_offset(self) -> int:
        """Return the exclusive end of the restore, at most the limit."""
        return self._ending_offset

    @ending_offset.setter
    def ending_offset(self, offset: int) -> None:
        self._ending_offset = min(self.offset_limit, offset)

    @property
    def restored_offset(self) -> int:
        """Return the next offset that the store needs, at most the limit; 0 before the restore has begun."""
        return self._restored_offset

    @restored_offset.setter
    def restored_offset(self, offset: int) -> None:
        self._restored_offset = min(self.offset_limit, offset)

    @property
    def restored_num_records(self) -> int:
        """Return the distance between the starting and the restored offset: more than records were applied."""
        return self._restored_offset - self._starting_offset

    def set_user_listener(self, listener: RestoreListener) -> None:
        """Call ``listener`` before that of the store."""
        self._listeners.insert(0, listener)

    def has_completed(self, position: int, end_offset: int) -> bool:
        """Return True if a restore at ``position`` has reached the end or the limit."""
        return end_offset == 0 or position >= min(end_offset, self.offset_limit)

    async def restore(self, records: ChangelogRecords) -> None:
        """Hand records with keys to the store."""
        await self.store.restore_batch(converted(records, timestamped=self.store.timestamped), records.offsets[-1])

    def restore_started(self) -> None:
        """Tell the listeners that the restore begins."""
        for listener in self._listeners:
            listener.on_restore_start(
                self.partition,
                self.store.name,
                starting_offset=self.starting_offset,
                ending_offset=self.ending_offset,
            )

    def restore_batch_completed(self, *, batch_end_offset: int, polled: int) -> None:
        """Tell the listeners of a batch: its last applied offset, and the number of records polled."""
        for listener in self._listeners:
            listener.on_batch_restored(
                self.partition, self.store.name, batch_end_offset=batch_end_offset, num_restored=polled
            )

    def restore_done(self) -> None:
        """Tell the listeners that the restore is complete."""
        for listener in self._listeners:
            listener.on_restore_end(self.partition, self.store.name, total_restored=self.restored_num_records)
