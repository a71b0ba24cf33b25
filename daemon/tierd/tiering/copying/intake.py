"""Intake: tells if new segments may be begun, of all partitions or of some."""

from collections.abc import Callable, Collection

from tierd.model import TopicPartition


class Intake:
    """Switch for new segments, open at first. A segment under way is copied to its end."""

    def __init__(self, *, on_stop: Callable[[], None] = lambda: None) -> None:
        """Begin open; ``on_stop`` is called when the intake is stopped for good."""
        self._on_stop = on_stop
        self._paused: set[TopicPartition] = set()
        self._all_paused = False
        self._stopping = False

    def pause(self, partitions: Collection[TopicPartition] | None) -> None:
        """Pause these partitions; None pauses all, also those that appear later."""
        if partitions is None:
            self._all_paused = True
        else:
            self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition] | None) -> None:
        """Resume these partitions; None resumes all. While all are paused, naming some resumes nothing."""
        if partitions is None:
            self._all_paused = False
            self._paused.clear()
        else:
            self._paused.difference_update(partitions)

    def stop(self) -> None:
        """Begin no segment any more: the daemon ends."""
        self._stopping = True
        self._on_stop()

    def is_paused(self, partition: TopicPartition) -> bool:
        """Return whether an operator has paused ``partition``."""
        return self._all_paused or (bool(self._paused) and partition in self._paused)  # asked of thousands

    def closed_because(self, partition: TopicPartition) -> str | None:
        """Return why no segment of ``partition`` is begun; None when segments may be begun."""
        if self._stopping:
            return "tierd is stopping"
        return "paused by an operator" if self.is_paused(partition) else None
