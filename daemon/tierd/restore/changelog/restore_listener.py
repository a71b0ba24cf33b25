"""RestoreListener: callbacks of a restore (changelog-restore 3.8)."""

from enum import StrEnum

from tierd.model import TopicPartition


class SuspendReason(StrEnum):
    """Reason why a standby's updates end."""

    MIGRATED = "migrated"  # the task goes to another instance
    PROMOTED = "promoted"  # the task becomes active here


class RestoreListener:
    """Callbacks of a restore, all of which do nothing: override those of interest.

    Order for each changelog: start, any number of batches, then exactly one of end and suspended. The callbacks run on
    the event loop and must be quick. An exception is fatal for the changelog.
    """

    def on_restore_start(
        self, partition: TopicPartition, store: str, *, starting_offset: int, ending_offset: int
    ) -> None:
        """Note that an active restore begins: offsets from ``starting_offset`` to ``ending_offset``, exclusive."""

    def on_batch_restored(
        self, partition: TopicPartition, store: str, *, batch_end_offset: int, num_restored: int
    ) -> None:
        """Note that records up to ``batch_end_offset``, inclusive, are in the store."""

    def on_restore_end(self, partition: TopicPartition, store: str, *, total_restored: int) -> None:
        """Note that the store is complete."""

    def on_restore_suspended(self, partition: TopicPartition, store: str, *, total_restored: int) -> None:
        """Note that the restore ended before the store was complete."""

    def on_update_start(self, partition: TopicPartition, store: str, *, starting_offset: int) -> None:
        """Note that a standby begins to follow its changelog."""

    def on_batch_loaded(
        self,
        partition: TopicPartition,
        store: str,
        *,
        batch_end_offset: int,
        batch_size: int,
        current_end_offset: int,
    ) -> None:
        """Note that a standby has the records up to ``batch_end_offset``, inclusive.

        ``current_end_offset`` is the changelog's end as last seen, exclusive.
        """

    def on_update_suspended(
        self,
        partition: TopicPartition,
        store: str,
        *,
        store_offset: int,
        current_end_offset: int,
        reason: SuspendReason,
    ) -> None:
        """Note that a standby ended; both offsets are -1 where they are not known."""
