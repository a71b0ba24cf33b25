"""``tierd groups`` at the real command line, over a catalogue that a test wrote."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.log_dirs import CLUSTER_ID
from tests.scenarios.installation import Installation
from tierd.app import Deployment
from tierd.clock import SystemClock
from tierd.config import load_config
from tierd.model import TopicIdPartition, TopicPartition
from tierd.remote import EMPTY_RING, CataloguePositionsKey, ObjectKeyFactory
from tierd.restore import CatalogueStorage
from tierd.restore.catalogue.catalogue_objects import (
    CommittedPosition,
    CoordinatedGroups,
    PartitionPositions,
    Positions,
)

HOUR_MS = 3_600_000
NOON_MS = 1_700_049_600_000  # 2023-11-15 12:00 UTC
KEYS = ObjectKeyFactory("", CLUSTER_ID)


def positions(taken_ms: int, offset: int, *, high_watermark: int = 10) -> Positions:
    """Return positions of node 1: group ``billing`` at ``offset`` of ``orders-0``, and at 7 of a topic elsewhere."""
    orders = TopicIdPartition(UUID(int=1), "orders", 0)
    offsets = PartitionPositions(
        log_start_offset=0, log_end_offset=high_watermark, high_watermark=high_watermark, leader_epoch=0
    )
    commits = {
        partition: CommittedPosition(offset=number, leader_epoch=-1, metadata="", committed_ms=taken_ms - HOUR_MS)
        for partition, number in ((orders.topic_partition, offset), (TopicPartition("other", 0), 7))
    }
    return Positions(
        node_id=1,
        taken_ms=taken_ms,
        partitions={orders: offsets},
        coordinated={0: CoordinatedGroups(leader_epoch=0, groups={"billing": commits})},
    )


async def _write(tierd: Installation, written: list[Positions], damaged: list[CataloguePositionsKey]) -> None:
    deployment = Deployment(load_config(tierd.config_file, {}), tierd.config_file)
    async with deployment.object_store(clock=SystemClock()) as store:
        for each in written:
            await CatalogueStorage(store, KEYS, EMPTY_RING).write_positions(each)
        for key in damaged:
            await store.put(KEYS.catalogue.key(key), b"?")


def write(tierd: Installation, *written: Positions, damaged: tuple[CataloguePositionsKey, ...] = ()) -> None:
    """Write positions into the store of the installation."""
    asyncio.run(_write(tierd, list(written), list(damaged)))


@pytest.fixture
def catalogued(tierd: Installation) -> Installation:
    write(tierd, positions(NOON_MS, 4), positions(NOON_MS + HOUR_MS, 12))
    return tierd


def test_newest_positions_are_shown_with_the_lag_where_it_is_known(catalogued: Installation) -> None:
    shown = catalogued.tierd("groups")
    assert shown.exit_code == 0, shown.output
    assert [line.split() for line in shown.output.splitlines()] == [
        ["group", "partition", "offset", "high", "watermark", "lag", "committed"],
        ["billing", "orders-0", "12", "10", "0", "2023-11-15", "12:00:00", "UTC"],
        ["billing", "other-0", "7", "-", "-", "2023-11-15", "12:00:00", "UTC"],
        ["node", "1:", "positions", "of", "2023-11-15", "13:00:00", "UTC"],
    ]


def test_positions_of_an_earlier_moment_are_shown(catalogued: Installation) -> None:
    shown = catalogued.tierd("groups", "billing", "--at", "2023-11-15T12:30:00Z", "--json")
    assert [(row["topic"], row["offset"], row["lag"], row["taken_ms"]) for row in shown.json()] == [
        ("orders", 4, 6, NOON_MS),
        ("other", 7, None, NOON_MS),
    ]


def test_offset_that_a_restore_sets_is_not_above_the_high_watermark(catalogued: Installation) -> None:
    (orders, other) = catalogued.tierd("groups", "--json").json()
    assert (orders["offset"], orders["restored_offset"]) == (12, 10)
    assert (other["offset"], other["restored_offset"], other["high_watermark"]) == (7, 7, None)


def test_group_that_is_not_in_the_catalogue_is_named_with_a_next_step(catalogued: Installation) -> None:
    shown = catalogued.tierd("groups", "billing", "nobody")
    assert shown.exit_code == 1
    assert "nobody: no committed offset in the catalogue at that moment" in shown.output
    assert "tierd groups without a name lists all groups" in shown.output


def test_empty_catalogue_has_no_groups(tierd: Installation) -> None:
    assert tierd.tierd("groups").output == "no group has a committed offset in the catalogue at that moment\n"
    assert tierd.tierd("groups", "--json").json() == []


def test_earlier_positions_stand_in_for_a_damaged_object_and_a_line_says_so(catalogued: Installation) -> None:
    write(catalogued, damaged=(CataloguePositionsKey(NOON_MS + 2 * HOUR_MS, 1),))
    shown = catalogued.tierd("groups")
    assert shown.exit_code == 0, shown.output
    assert "no frame of zstd" in shown.output
    assert "positions of 2023-11-15 13:00:00 UTC" in shown.output


def test_unknown_cluster_is_a_fault_of_the_file(tierd: Installation, tmp_path: Path) -> None:
    tierd.settings["log_dirs"] = [{"path": str(tmp_path / "none"), "owner": "kafka"}]
    tierd.configure({})
    shown = tierd.tierd("groups")
    assert shown.exit_code == 2
    assert "set cluster_id" in shown.output
