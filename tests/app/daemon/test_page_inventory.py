"""Inventory of the pages, over a tier that was copied and the views in memory."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.scenarios.installation import Installation
from tierd.app.daemon import page_inventory
from tierd.app.daemon.bounded_jobs import BoundedJobs
from tierd.app.daemon.page_inventory import PageInventory
from tierd.app.engine.compose import Engine, compose
from tierd.app.engine.deployment import Deployment
from tierd.config import load_config
from tierd.metadata import PartitionView
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition
from tierd.remote import SegmentManifest
from tierd.serve import CopyOnNode
from tierd.tiering import PassiveSupervisor, Tiering, partition_inventory

LED, FOLLOWED = TopicPartition("synthetic", 0), TopicPartition("synthetic", 1)
SHAPE = SegmentShape(batches=2, records_per_batch=4)


@dataclass
class Copied:
    """A tier with three segments of ``LED``, and the parts that have copied them."""

    engine: Engine
    tiering: Tiering
    pages: PageInventory


@asynccontextmanager
async def copied(folder: Path) -> AsyncIterator[Copied]:
    log_dir = write_log_dir(folder / "kafka", partitions=2, rolled_segments=3, shape=SHAPE)
    installation = Installation(folder / "tierd", [log_dir.path])
    installation.configure({"leadership": {"partitions": [str(LED)]}})
    installation.state_dir.mkdir(mode=0o700)
    deployment = Deployment(load_config(installation.config_file, {}), installation.config_file)
    async with compose(deployment) as engine:
        tiering = engine.new_tiering(PassiveSupervisor())
        await tiering.manager.copy_once()
        standby = (CopyOnNode(node_id=9, start_offset=0, end_offset=4),)
        pages = PageInventory(
            tiering,
            engine.metadata,
            engine.storage,
            lambda name: standby if name == TopicPartition("elsewhere", 0) else (),
            jobs=BoundedJobs(),
            clock=engine.clock,
        )
        yield Copied(engine, tiering, pages)


async def test_led_partition_is_counted_and_the_other_is_not_with_the_reason(tmp_path: Path) -> None:
    async with copied(tmp_path) as lab:
        held = await lab.pages.inventory()
    assert [(str(each.partition), each.contents.segments, each.contents.offsets) for each in held.partitions] == [
        ("synthetic-0", 3, 24)
    ]
    assert held.elsewhere == {FOLLOWED: "another broker leads it: ask the daemon there"}


async def test_contents_are_computed_once_for_each_change_of_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []

    def counted(partition: TopicIdPartition, *arguments: object) -> object:
        computed.append(1)
        return partition_inventory(partition, *arguments)  # type: ignore[arg-type] # as they were given

    monkeypatch.setattr(page_inventory, "partition_inventory", counted)
    async with copied(tmp_path) as lab:
        first = await lab.pages.inventory()
        assert await lab.pages.inventory() == first
        assert len(computed) == 1
        (partition,) = [each.partition for each in first.partitions]
        await lab.engine.metadata.advance_log_start_offset(partition, 8)
        await lab.pages.inventory()
        assert len(computed) == 2


async def test_partition_has_its_rows_its_local_segments_and_its_status(tmp_path: Path) -> None:
    async with copied(tmp_path) as lab:
        layout = await lab.pages.partition(LED)
        followed = await lab.pages.partition(FOLLOWED)
        unknown = await lab.pages.partition(TopicPartition("none", 0))
        elsewhere = await lab.pages.partition(TopicPartition("elsewhere", 0))
    assert layout is not None
    assert len(layout.rows) == 3
    assert [piece.base_offset for piece in layout.local] == [0, 8, 16, 24]
    assert layout.local[-1].next_base_offset is None
    assert all(piece.size_bytes for piece in layout.local)
    assert layout.status is not None
    assert layout.status.copied_through == 23
    assert layout.tier_problem == ""
    assert followed is not None
    assert followed.rows == ()
    assert unknown is None
    assert elsewhere is not None
    assert [copy.node_id for copy in elsewhere.standbys] == [9]


async def test_manifests_are_read_once_and_known_to_the_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with copied(tmp_path) as lab:
        layout = await lab.pages.partition(LED)
        assert layout is not None
        read, problem = await lab.pages.manifests(layout.rows[:2])
        assert problem == ""
        assert [facts.record_count for facts in read.values()] == [8, 8]
        (held,) = (await lab.pages.inventory()).partitions
        assert held.contents.facts is not None
        assert (held.contents.facts.manifests, held.contents.facts.record_count) == (2, 16)

        async def gone(_: RemoteLogSegmentMetadata) -> SegmentManifest:
            raise AssertionError("the manifest is known")

        monkeypatch.setattr(lab.engine.storage, "read_manifest", gone)
        assert (await lab.pages.manifests(layout.rows[:2]))[0] == read


async def test_store_that_hangs_is_waited_for_three_seconds_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: RemoteLogSegmentMetadata) -> SegmentManifest:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("the store does not answer")

    monkeypatch.setattr(page_inventory, "_STORE_TIMEOUT_S", 0.05)
    async with copied(tmp_path) as lab:
        layout = await lab.pages.partition(LED)
        assert layout is not None
        monkeypatch.setattr(lab.engine.storage, "read_manifest", hang)
        began_s = time.monotonic()
        read, problem = await lab.pages.manifests(layout.rows)
        assert time.monotonic() - began_s < 3
    assert read == {}
    assert problem.startswith("the object store did not answer within")


async def test_metadata_store_that_hangs_leaves_the_local_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: TopicIdPartition) -> PartitionView:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("the store does not answer")

    monkeypatch.setattr(page_inventory, "_METADATA_TIMEOUT_S", 0.05)
    async with copied(tmp_path) as lab:
        monkeypatch.setattr(lab.engine.metadata, "read_view", hang)
        layout = await lab.pages.partition(LED)
    assert layout is not None
    assert layout.tier_problem.startswith("the metadata store did not answer within")
    assert len(layout.local) == 4
