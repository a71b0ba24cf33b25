"""RestorerBench: a ``ChangelogRestorer`` over changelogs and stores in memory, with a clock that stands still."""

from pathlib import Path

from tests.fakes.clock import FakeClock
from tests.fakes.memory_changelog import MemoryChangelogs
from tests.fakes.memory_store import MemoryStore
from tests.restore.changelog.recorded_callbacks import RecordedCallbacks
from tierd.model import TopicPartition
from tierd.restore.changelog.reader.changelog_restorer import ChangelogRestorer
from tierd.restore.changelog.reader.restore_limits import RestorerSettings
from tierd.restore.changelog.reader.restore_progress import ProgressReporter
from tierd.restore.changelog.reader.restore_task import RestoreTask, TaskType

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))
Values = list[tuple[int, bytes | None, bytes | None]]


def values(first: int, last: int) -> Values:
    """Return (offset, key, value) for each offset from ``first`` to ``last``, inclusive."""
    return [(offset, b"k%d" % offset, b"v%d" % offset) for offset in range(first, last + 1)]


class RestorerBench:
    """Reader under test with its collaborators. Each changelog has one task, named as the changelog."""

    def __init__(self, directory: Path, settings: RestorerSettings | None = None) -> None:
        self.directory = directory
        self.settings = settings or RestorerSettings()
        self.clock = FakeClock()
        self.source = MemoryChangelogs()
        self.callbacks = RecordedCallbacks()
        self.stores: dict[TopicPartition, MemoryStore] = {}
        self.tasks: dict[TopicPartition, RestoreTask] = {}
        self.start()

    def start(self) -> None:
        """Make a new reader, as after a start of the process."""
        self.progress = ProgressReporter(clock=self.clock)
        self.restorer = ChangelogRestorer(
            self.source, clock=self.clock, settings=self.settings, listener=self.callbacks, progress=self.progress
        )

    def task(
        self, partition: TopicPartition = T0, *, kind: TaskType = TaskType.ACTIVE, exactly_once: bool = False
    ) -> RestoreTask:
        """Return a task with the store of one changelog; the store is made unless there is one."""
        store = self.stores.setdefault(partition, MemoryStore(f"store {partition}"))
        directory = self.directory / str(partition)
        directory.mkdir(exist_ok=True)
        task = RestoreTask(str(partition), directory, {partition: store}, type=kind, exactly_once=exactly_once)
        self.tasks[partition] = task
        return task

    def register(
        self,
        partition: TopicPartition = T0,
        *,
        kind: TaskType = TaskType.ACTIVE,
        exactly_once: bool = False,
        limit_group: str | None = None,
    ) -> None:
        """Register a changelog with a task of its own."""
        task = self.task(partition, kind=kind, exactly_once=exactly_once)
        self.restorer.register(partition, task, limit_group=limit_group)

    def checkpoint(self, partition: TopicPartition, offset: int) -> None:
        """Write a checkpoint without facts, as Kafka Streams does, and let the store have a key."""
        directory = self.directory / str(partition)
        directory.mkdir(exist_ok=True)
        (directory / ".checkpoint").write_text(f"0\n1\n{partition.topic} {partition.partition} {offset}\n")
        self.stores.setdefault(partition, MemoryStore(f"store {partition}")).put(before=b"1")

    def checkpointed(self, partition: TopicPartition = T0) -> str:
        """Return the checkpoint of the task of a changelog; empty if there is none."""
        file = self.directory / str(partition) / ".checkpoint"
        return file.read_text() if file.exists() else ""

    def after_crash(self) -> None:
        """Start again with what a crash leaves of the stores."""
        self.stores = {partition: store.after_crash() for partition, store in self.stores.items()}
        self.start()
