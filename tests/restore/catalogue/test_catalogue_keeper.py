"""CatalogueKeeper over a log dir and a store in memory."""

import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.log.dirs.test_node_files import write_snapshot
from tests.restore.catalogue.offsets_log import OffsetsLog, commit
from tierd.config import CatalogueSettings
from tierd.errors import KafkaUnreachableError, RemoteObjectRetainedError, RetriableRemoteStorageError
from tierd.model import TopicIdPartition, TopicPartition
from tierd.remote import (
    EMPTY_RING,
    Body,
    CatalogueNodeKey,
    CataloguePositionsKey,
    CatalogueTopicKey,
    ObjectKeyFactory,
)
from tierd.restore.catalogue.catalogue_keeper import CatalogueKeeper
from tierd.restore.catalogue.catalogue_objects import Positions
from tierd.restore.catalogue.catalogue_storage import CatalogueStorage
from tierd.restore.catalogue.local_partitions import LocalPartition, LocalPartitions
from tierd.restore.catalogue.topic_sources import LogDirTopics, TopicSurvey, observed_topics

NODE = 1
ORDERS = TopicPartition("orders", 0)


class Source(LogDirTopics):
    """Log dirs as the source, that fails when a test says so."""

    failure: KafkaUnreachableError | None = None

    async def survey(self, found: Mapping[TopicIdPartition, LocalPartition]) -> TopicSurvey:
        if self.failure is not None:
            raise self.failure
        return await super().survey(found)


class Store(MemoryObjectStore):
    """Store that refuses writes of some keys when a test says so, or lets another writer go first."""

    refused = "?"

    def __init__(self) -> None:
        super().__init__()
        self.retains = False
        self.refused_deletes = 0
        self.before_put: dict[str, Callable[[], Awaitable[None]]] = {}

    async def delete(self, key: str) -> None:
        if self.retains:
            self.refused_deletes += 1
            raise RemoteObjectRetainedError(f"{key} is retained")
        await super().delete(key)

    async def put(self, key: str, body: Body) -> None:
        for part in [part for part in self.before_put if part in key]:
            await self.before_put.pop(part)()
        if self.refused in key:
            raise RetriableRemoteStorageError("no route to the store")
        await super().put(key, body)


class Lab:
    """Keeper of one node with ``orders-0`` and a partition of ``__consumer_offsets``."""

    def __init__(self, folder: Path) -> None:
        self.log_dir = folder / "data"
        self.offsets = OffsetsLog(self.log_dir)
        self.orders = OffsetsLog(self.log_dir, name=ORDERS)
        (self.log_dir / "meta.properties").write_text("cluster.id=c\nnode.id=1\nversion=1\n")
        self.clock = FakeClock()
        self.store = Store()
        self.storage = CatalogueStorage(self.store, ObjectKeyFactory("", "c"), EMPTY_RING)
        self.source = Source(leads=lambda _: True, node_id=NODE, clock=self.clock)
        self.keeper = CatalogueKeeper(
            self.storage,
            local=LocalPartitions([self.log_dir], wants=lambda topic: topic == "orders"),
            topics=self.source,
            node_id=NODE,
            clock=self.clock,
            settings=CatalogueSettings(),
        )

    def append(self, *, commits: int = 0, records: int = 0) -> None:
        """Append commits of one group, and records of ``orders-0``."""
        for number in range(commits):
            self.offsets.commit(commit(number + 1))
        for _ in range(records):
            self.orders.commit(commit(1))
        self.offsets.watermark(self.offsets.next_offset, [(ORDERS, self.orders.next_offset)])

    async def pass_a_minute(self) -> None:
        self.clock.advance(60)
        await self.keeper.keep()

    async def positions(self) -> list[Positions]:
        return [await self.storage.read_positions(key) for key in await self.storage.list_positions()]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


async def test_positions_have_what_the_log_dir_has_and_are_written_when_that_changes(lab: Lab) -> None:
    lab.append(commits=3, records=5)
    await lab.pass_a_minute()
    await lab.pass_a_minute()
    (first,) = await lab.positions()
    ((partition, offsets),) = first.partitions.items()
    assert (partition.topic_partition, offsets.log_start_offset, offsets.log_end_offset) == (ORDERS, 0, 5)
    assert (offsets.high_watermark, offsets.leader_epoch) == (5, 0)
    assert first.groups["billing"][ORDERS].offset == 3
    lab.append(records=1)
    await lab.pass_a_minute()
    assert [each.taken_ms - first.taken_ms for each in await lab.positions()] == [0, 120_000]
    statistics = lab.keeper.statistics()
    assert (statistics.written["positions"], statistics.groups, statistics.problems) == (2, 1, {})
    assert statistics.positions_ms == lab.clock.now_ms()


async def test_topic_and_node_are_written_once(lab: Lab) -> None:
    lab.append()
    for _ in range(3):
        await lab.pass_a_minute()
    assert lab.keeper.statistics().written == {"positions": 1, "topics": 1, "node": 1}
    stored = await lab.storage.read_topic(CatalogueTopicKey("orders", lab.orders.topic_id))
    assert stored is not None
    assert [each.partition_count for each in stored.versions] == [1]
    node = await lab.storage.read_node(NODE)
    assert node is not None
    assert node.meta_properties == {str(lab.log_dir): "cluster.id=c\nnode.id=1\nversion=1\n"}
    assert node.metadata_snapshot is None


async def test_node_is_written_again_with_a_newer_snapshot_of_the_cluster_metadata(lab: Lab) -> None:
    await lab.pass_a_minute()
    content = write_snapshot(lab.log_dir, 42)
    await lab.pass_a_minute()
    node = await lab.storage.read_node(NODE)
    assert node is not None
    assert (node.metadata_snapshot, node.metadata_snapshot_name) == (
        content,
        "00000000000000000042-0000000001.checkpoint",
    )


async def test_wiped_disk_takes_nothing_from_the_catalogue(lab: Lab) -> None:
    content = write_snapshot(lab.log_dir, 42)
    await lab.pass_a_minute()
    before = await lab.storage.read_node(NODE)
    (lab.log_dir / "meta.properties").unlink()
    shutil.rmtree(lab.log_dir / "__cluster_metadata-0")
    await lab.pass_a_minute()
    node = await lab.storage.read_node(NODE)
    assert node == before
    assert node is not None
    assert (node.metadata_snapshot, node.metadata_log_dir) == (content, str(lab.log_dir))
    assert node.meta_properties == {str(lab.log_dir): "cluster.id=c\nnode.id=1\nversion=1\n"}
    assert lab.keeper.statistics().problems == {}


async def test_older_snapshot_does_not_replace_that_of_the_catalogue_and_is_a_problem(lab: Lab) -> None:
    content = write_snapshot(lab.log_dir, 42)
    await lab.pass_a_minute()
    shutil.rmtree(lab.log_dir / "__cluster_metadata-0")
    write_snapshot(lab.log_dir, 7)
    for _ in range(2):
        await lab.pass_a_minute()
        node = await lab.storage.read_node(NODE)
        assert node is not None
        assert node.metadata_snapshot == content
        assert "is older than the snapshot in the catalogue" in lab.keeper.statistics().problems["node"]
    await lab.store.delete(ObjectKeyFactory("", "c").catalogue.key(CatalogueNodeKey(NODE)))
    await lab.pass_a_minute()
    node = await lab.storage.read_node(NODE)
    assert node is not None
    assert node.metadata_snapshot_name == "00000000000000000007-0000000001.checkpoint"
    assert lab.keeper.statistics().problems == {}


async def test_damaged_object_of_a_node_is_replaced_and_reported(lab: Lab) -> None:
    await lab.store.put(ObjectKeyFactory("", "c").catalogue.key(CatalogueNodeKey(NODE)), b"{")
    await lab.pass_a_minute()
    assert await lab.storage.read_node(NODE) is not None
    assert "is not JSON" in lab.keeper.statistics().problems["node"]
    await lab.pass_a_minute()
    assert lab.keeper.statistics().problems == {}


async def test_failed_part_is_counted_shown_and_tried_again_while_the_others_go_on(lab: Lab) -> None:
    lab.append(commits=1)
    lab.store.refused = "/positions/"
    await lab.pass_a_minute()
    await lab.pass_a_minute()
    statistics = lab.keeper.statistics()
    assert statistics.written == {"topics": 1, "node": 1}
    assert (statistics.failures, statistics.problems) == ({"positions": 2}, {"positions": "no route to the store"})
    lab.store.refused = "?"
    await lab.pass_a_minute()
    assert lab.keeper.statistics().problems == {}
    assert len(await lab.positions()) == 1


async def test_brokers_that_do_not_answer_are_a_problem_until_they_do(lab: Lab) -> None:
    lab.source.failure = KafkaUnreachableError("no broker answered")
    await lab.pass_a_minute()
    assert lab.keeper.statistics().problems == {"survey": "no broker answered"}
    assert await lab.positions() == []
    lab.source.failure = None
    await lab.pass_a_minute()
    assert lab.keeper.statistics().problems == {}
    assert len(await lab.positions()) == 1


async def test_positions_of_a_log_dir_that_went_offline_stay_as_they_were(lab: Lab) -> None:
    lab.append(commits=2, records=4)
    await lab.pass_a_minute()
    lab.log_dir.rename(lab.log_dir.with_name("gone"))
    await lab.pass_a_minute()
    assert len(await lab.positions()) == 1
    assert "survey" in lab.keeper.statistics().problems
    lab.log_dir.with_name("gone").rename(lab.log_dir)
    await lab.pass_a_minute()
    assert lab.keeper.statistics().problems == {}
    assert len(await lab.positions()) == 1


async def test_old_positions_are_thinned_once_an_hour(lab: Lab) -> None:
    now_ms, minute_ms, day_ms = lab.clock.now_ms(), 60_000, 86_400_000
    hour_ms = (now_ms - 2 * day_ms) // 3_600_000 * 3_600_000
    for taken_ms in (hour_ms, hour_ms + minute_ms, now_ms - minute_ms):
        empty = Positions(node_id=NODE, taken_ms=taken_ms, partitions={}, coordinated={})
        await lab.storage.write_positions(empty)
    await lab.pass_a_minute()
    assert CataloguePositionsKey(hour_ms, NODE) not in await lab.storage.list_positions()
    assert CataloguePositionsKey(hour_ms + minute_ms, NODE) in await lab.storage.list_positions()
    assert lab.keeper.statistics().removed == 1


async def test_positions_that_the_store_retains_are_no_problem_and_are_asked_for_a_few_times_only(lab: Lab) -> None:
    hour_ms = (lab.clock.now_ms() - 2 * 86_400_000) // 3_600_000 * 3_600_000
    for minute in range(30):
        empty = Positions(node_id=NODE, taken_ms=hour_ms + minute * 60_000, partitions={}, coordinated={})
        await lab.storage.write_positions(empty)
    lab.store.retains = True
    await lab.pass_a_minute()
    assert lab.store.refused_deletes == 10
    assert lab.keeper.statistics().problems == {}
    lab.store.retains = False
    lab.clock.advance(3600)
    await lab.pass_a_minute()
    assert lab.keeper.statistics().removed == 29


async def test_damaged_object_of_a_topic_is_replaced_and_reported(lab: Lab) -> None:
    key = CatalogueTopicKey("orders", lab.orders.topic_id)
    await lab.store.put(ObjectKeyFactory("", "c").catalogue.key(key), b"{")
    lab.append()
    await lab.pass_a_minute()
    stored = await lab.storage.read_topic(key)
    assert stored is not None
    assert len(stored.versions) == 1
    assert "is not JSON" in lab.keeper.statistics().problems["topics"]
    await lab.pass_a_minute()
    assert lab.keeper.statistics().problems == {}


async def test_topic_is_added_to_what_another_node_wrote_at_the_same_moment(lab: Lab) -> None:
    key = CatalogueTopicKey("orders", lab.orders.topic_id)
    lab.append()
    (other,) = observed_topics([TopicIdPartition(key.topic_id, "orders", 7)], 2, now_ms=lab.clock.now_ms())

    async def write_first() -> None:
        await lab.storage.write_topic([other], previous=None)

    lab.store.before_put = {"/topics/": write_first}
    await lab.pass_a_minute()
    stored = await lab.storage.read_topic(key)
    assert stored is not None
    assert stored.versions[-1].assignment == {0: (NODE,), 7: (2,)}
    assert lab.keeper.statistics().problems == {}


async def test_damaged_partition_of_offsets_is_a_problem_and_its_groups_stay_as_they_were(lab: Lab) -> None:
    lab.append(commits=1, records=1)
    await lab.pass_a_minute()
    lab.append(commits=1, records=1)
    lab.offsets.damage(position=-5)
    await lab.pass_a_minute()
    before, after = await lab.positions()
    assert after.coordinated == before.coordinated
    assert next(iter(after.partitions.values())).high_watermark == 2
    assert "__consumer_offsets-0" in lab.keeper.statistics().problems["positions"]


async def test_damaged_partition_is_a_problem_and_its_offsets_stay_as_they_were(lab: Lab) -> None:
    lab.append(commits=1, records=1)
    await lab.pass_a_minute()
    (segment,) = lab.orders.directory.glob("*.log")
    segment.write_bytes(segment.read_bytes() + b"\x00" * 8 + b"\xff" * 60)
    lab.append(commits=2)
    await lab.pass_a_minute()
    before, after = await lab.positions()
    assert after.partitions == before.partitions
    assert after.groups["billing"][ORDERS].offset == 2
    assert segment.name in lab.keeper.statistics().problems["survey"]


async def test_partition_whose_segments_the_cleaner_replaces_keeps_its_positions(lab: Lab) -> None:
    lab.append(commits=1, records=2)
    await lab.pass_a_minute()
    (lab.orders.directory / f"{0:020d}.log.swap").touch()
    lab.append(commits=2)
    await lab.pass_a_minute()
    before, after = await lab.positions()
    assert after.partitions == before.partitions
    assert lab.keeper.statistics().problems == {}
