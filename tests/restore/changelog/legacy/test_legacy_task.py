from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_changelog import MemoryChangelogs
from tests.fakes.memory_store import MemoryStore
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import IllegalRestoreError
from tierd.restore.changelog.checkpoints.checkpoint_file import CheckpointFile, OffsetSemantics
from tierd.restore.changelog.legacy.legacy_reader import LegacyReader
from tierd.restore.changelog.legacy.legacy_task import LegacyTask
from tierd.restore.changelog.legacy.restore_consumer import RestoreConsumer

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Bench:
    """One task with two stores of ten records each."""

    def __init__(self, directory: Path) -> None:
        clock = FakeClock()
        self.source = MemoryChangelogs()
        for partition in (T0, T1):
            self.source.add(partition, [(offset, b"k%d" % offset, b"v") for offset in range(10)])
        self.reader = LegacyReader(RestoreConsumer(self.source, clock=clock), clock=clock)
        self.file = CheckpointFile(directory / ".checkpoint", semantics=OffsetSemantics.NEXT)
        self.stores = {partition: MemoryStore(str(partition)) for partition in (T0, T1)}

    async def open(self, *, exactly_once: bool = False) -> LegacyTask:
        return await LegacyTask.open(
            "0_0", self.reader, self.file, stores=self.stores, exactly_once=exactly_once, limits={T1: 8}
        )

    async def restore(self, task: LegacyTask) -> set[TopicPartition]:
        return set(await self.reader.restore(dict.fromkeys(task.partitions, task)))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_checkpoint_has_next_offsets_and_is_read_by_the_next_task(bench: Bench) -> None:
    task = await bench.open()
    assert await bench.restore(task) == {T0, T1}
    await task.checkpoint({T0: 14})
    assert bench.file.read() == {T0: 15, T1: 8}
    bench.reader.reset()
    bench.source.add(T0, [(offset, b"k%d" % offset, b"v") for offset in range(17)])
    again = await bench.open()
    assert await bench.restore(again) == {T0, T1}
    assert bench.stores[T0].batches == [10, 2]
    assert bench.stores[T1].batches == [8]


async def test_checkpoint_before_a_restore_keeps_what_was_loaded(bench: Bench) -> None:
    bench.file.write({T0: 4})
    task = await bench.open()
    await task.checkpoint({})
    assert bench.file.read() == {T0: 4}


async def test_exactly_once_deletes_the_checkpoint_after_it_was_read(bench: Bench) -> None:
    bench.file.write({T0: 4, T1: 8})
    task = await bench.open(exactly_once=True)
    assert not bench.file.path.exists()
    assert await bench.restore(task) == {T0, T1}
    assert bench.stores[T0].batches == [6]
    await task.checkpoint({T0: 12})
    assert not bench.file.path.exists()
    await task.close({T0: 12}, clean=True)
    assert bench.file.read() == {T0: 13, T1: 8}


async def test_unclean_end_with_exactly_once_leaves_no_checkpoint_and_wipes_the_stores_next_time(bench: Bench) -> None:
    task = await bench.open(exactly_once=True)
    await bench.restore(task)
    await bench.restore(task)
    await task.close({}, clean=False)
    assert not bench.file.path.exists()
    bench.reader.reset()
    bench.stores[T0].put(aborted=b"1")
    again = await bench.open(exactly_once=True)
    assert await bench.restore(again) == set()
    assert await bench.restore(again) == {T0, T1}
    assert b"aborted" not in bench.stores[T0].content


async def test_invalid_offset_wipes_one_store_and_takes_its_offset_out_of_the_checkpoint(bench: Bench) -> None:
    bench.file.write({T0: 2, T1: 4})
    bench.source.logs[T0].earliest = 5
    bench.stores[T0].put(k1=b"old")
    task = await bench.open()
    await bench.restore(task)
    assert bench.file.read() == {T1: 4}
    assert bench.stores[T0].content == {}
    while await bench.restore(task) != {T0, T1}:
        assert bench.source.calls["read"] < 10
    assert sorted(bench.stores[T0].content) == [b"k5", b"k6", b"k7", b"k8", b"k9"]
    assert bench.stores[T1].calls == ["restore_batch"]


async def test_invalid_offset_with_exactly_once_writes_no_checkpoint(bench: Bench) -> None:
    bench.file.write({T0: 2, T1: 4})
    bench.source.logs[T0].earliest = 5
    task = await bench.open(exactly_once=True)
    await bench.restore(task)
    assert bench.stores[T0].calls == ["wipe"]
    assert not bench.file.path.exists()


async def test_file_of_last_applied_offsets_is_refused(bench: Bench) -> None:
    bench.file.semantics = OffsetSemantics.LAST_APPLIED
    with pytest.raises(IllegalRestoreError, match="next offsets"):
        await bench.open()
