"""Intake: whether new segments may be begun, for everything or for some partitions."""

from collections.abc import Collection

from tierd.model import TopicPartition


class Intake:
    """Open at first. A segment under way always goes on to its end."""

    def __init__(self) -> None:
        self._paused: set[TopicPartition] = set()
        self._all_paused = False
        self._stopping = False

    def pause(self, partitions: Collection[TopicPartition] | None) -> None:
        """Pause some partitions; None pauses all, those that appear later included."""
        if partitions is None:
            self._all_paused = True
        else:
            self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition] | None) -> None:
        """Resume some partitions; None resumes all. While all are paused, naming some resumes nothing."""
        if partitions is None:
            self._all_paused = False
            self._paused.clear()
        else:
            self._paused.difference_update(partitions)

    def stop(self) -> None:
        """Begin nothing any more: the daemon ends."""
        self._stopping = True

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether an operator has paused ``partition``."""
        return self._all_paused or partition in self._paused

    def closed_because(self, partition: TopicPartition) -> str | None:
        """Why nothing new is begun for ``partition``, None when it may be."""
        if self._stopping:
            return "tierd is stopping"
        return "paused by an operator" if self.is_paused(partition) else None


class PartitionGate:
    """The intake as one partition's task sees it."""

    def __init__(self, intake: Intake, partition: TopicPartition) -> None:
        self._intake = intake
        self._partition = partition

    def closed_because(self) -> str | None:
        """Why nothing new is begun, None when it may be."""
        return self._intake.closed_because(self._partition)
