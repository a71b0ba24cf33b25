"""ListedReplicas: the log dirs of a host without a daemon."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.fakes.manual_clock import ManualClock
from tierd.app.endpoint.listed_replicas import ListedReplicas
from tierd.model import TopicIdPartition

ORDERS = TopicIdPartition(UUID(int=7), "orders", 0)


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDirWriter:
    written = LogDirWriter(tmp_path / "kafka")
    written.add_partition("orders", topic_id=ORDERS.topic_id, leader_epoch=3).fill(
        rolled_segments=1, shape=SegmentShape()
    )
    written.add_partition("secrets", topic_id=UUID(int=8)).append([b"x"])
    written.write_checkpoints()
    return written


def listing(
    log_dir: LogDirWriter,
    *,
    is_led: Callable[[TopicIdPartition], bool] = lambda _: True,
    missing: tuple[Path, ...] = (),
) -> ListedReplicas:
    return ListedReplicas(
        [*missing, log_dir.path], broker_id=5, is_led=is_led, wants=lambda topic: topic == "orders", clock=ManualClock()
    )


async def test_replicas_of_wanted_topics_are_known_with_epoch_and_leader(log_dir: LogDirWriter) -> None:
    replicas = listing(log_dir)
    await replicas.refresh()
    (known,) = replicas.known()
    assert (known.partition, known.leader_epoch, known.broker_id) == (ORDERS, 3, 5)
    found = replicas.find(ORDERS)
    assert found is not None
    assert found.is_leader
    assert len(found.scan.segments) == 2


async def test_leader_of_a_partition_that_the_configuration_does_not_lead_is_not_known(log_dir: LogDirWriter) -> None:
    replicas = listing(log_dir, is_led=lambda _: False)
    await replicas.refresh()
    (known,) = replicas.known()
    assert known.broker_id is None
    found = replicas.find(ORDERS)
    assert found is not None
    assert not found.is_leader


async def test_listing_that_finds_no_change_is_the_same_revision(log_dir: LogDirWriter) -> None:
    replicas = listing(log_dir)
    await replicas.refresh()
    await asyncio.sleep(0.15)  # the stamp of a directory counts when it has settled
    await replicas.refresh()
    before, scan = replicas.revision, replicas.find(ORDERS)
    await replicas.refresh()
    assert replicas.revision == before
    found = replicas.find(ORDERS)
    assert found is not None
    assert scan is not None
    assert found.scan is scan.scan


async def test_log_dir_that_is_not_there_leaves_the_others(log_dir: LogDirWriter, tmp_path: Path) -> None:
    replicas = listing(log_dir, missing=(tmp_path / "unmounted",))
    await replicas.refresh()
    assert replicas.find(ORDERS) is not None


async def test_replica_that_left_is_not_found_any_more(log_dir: LogDirWriter) -> None:
    replicas = listing(log_dir)
    await replicas.refresh()
    shutil.rmtree(log_dir.path / "orders-0")
    await replicas.refresh()
    assert replicas.find(ORDERS) is None
    assert not list(replicas.known())


async def test_watch_hears_of_segments_and_of_watermarks(log_dir: LogDirWriter) -> None:
    clock = ManualClock()
    replicas = ListedReplicas([log_dir.path], broker_id=5, is_led=lambda _: True, wants=lambda _: True, clock=clock)
    await replicas.refresh()
    written = list[Path]()
    watch = asyncio.create_task(replicas.watch(written.append))
    try:
        await eventually(lambda: clock.sleeping > 0, what="the loops")

        def has_heard() -> bool:
            log_dir.write_checkpoints()
            return log_dir.path in written

        await eventually(has_heard, what="watermarks")
        log_dir.add_partition("later", topic_id=UUID(int=9)).append([b"x"])

        def has_found() -> bool:
            clock.advance(1)
            return replicas.find(TopicIdPartition(UUID(int=9), "later", 0)) is not None

        await eventually(has_found, what="the new partition")
    finally:
        watch.cancel()
        await asyncio.wait({watch})


async def test_host_without_log_dirs_has_nothing_to_watch() -> None:
    replicas = ListedReplicas([], broker_id=5, is_led=lambda _: True, wants=lambda _: True, clock=ManualClock())
    async with asyncio.timeout(10):
        await replicas.watch(lambda _: None)
