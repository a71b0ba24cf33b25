"""RecordedCallbacks: a ``RestoreListener`` that keeps what it was told, and fails where a test says so."""

from tierd.model import TopicPartition
from tierd.restore.changelog.restore_listener import RestoreListener, SuspendReason

Call = tuple[object, ...]


class RecordedCallbacks(RestoreListener):
    """Listener of a test.

    Attributes:
        calls: (name, partition, numbers …) of each callback, in order.
        failing: name of the callback that fails; empty for none.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.failing = ""

    def of(self, partition: TopicPartition) -> list[Call]:
        """Return the calls about one changelog, without its name."""
        return [(name, *numbers) for name, each, *numbers in self.calls if each == partition]

    def on_restore_start(
        self, partition: TopicPartition, store: str, *, starting_offset: int, ending_offset: int
    ) -> None:
        self._call("start", partition, starting_offset, ending_offset)

    def on_batch_restored(
        self, partition: TopicPartition, store: str, *, batch_end_offset: int, num_restored: int
    ) -> None:
        self._call("batch", partition, batch_end_offset, num_restored)

    def on_restore_end(self, partition: TopicPartition, store: str, *, total_restored: int) -> None:
        self._call("end", partition, total_restored)

    def on_restore_suspended(self, partition: TopicPartition, store: str, *, total_restored: int) -> None:
        self._call("suspended", partition, total_restored)

    def on_update_start(self, partition: TopicPartition, store: str, *, starting_offset: int) -> None:
        self._call("update start", partition, starting_offset)

    def on_batch_loaded(
        self,
        partition: TopicPartition,
        store: str,
        *,
        batch_end_offset: int,
        batch_size: int,
        current_end_offset: int,
    ) -> None:
        self._call("loaded", partition, batch_end_offset, batch_size, current_end_offset)

    def on_update_suspended(
        self,
        partition: TopicPartition,
        store: str,
        *,
        store_offset: int,
        current_end_offset: int,
        reason: SuspendReason,
    ) -> None:
        self._call("update suspended", partition, store_offset, current_end_offset, reason.value)

    def _call(self, name: str, *numbers: object) -> None:
        self.calls.append((name, *numbers))
        if name == self.failing:
            raise ValueError(f"{name} fails")
