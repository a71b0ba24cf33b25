"""Pages of a real daemon: what it has copied is in the inventory and in the picture; outages are said in time."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.app.daemon.test_page_inventory import copied
from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.fakes.manual_clock import ManualClock
from tests.scenarios.installation import Installation
from tierd.app.daemon import daemon_pages
from tierd.app.daemon.daemon_pages import DaemonPages, copies_of
from tierd.app.daemon.daemon_push import DaemonPush
from tierd.app.daemon.page_inventory import PageInventory
from tierd.app.daemon.unprotected_watch import UnprotectedWatch
from tierd.app.engine.compose import Engine
from tierd.model import TopicPartition
from tierd.serve import CopyOnNode, HostInventory, StatusSnapshot

SHAPE = SegmentShape(batches=2, records_per_batch=4)
PUSH = {
    "node_id": 1,
    "leader": {
        "partitions": [
            {"partition": "other-0"},
            {
                "partition": "orders-0",
                "log_start_offset": 5,
                "standbys": [
                    {"node_id": 2, "log_end_offset": 90, "in_sync": True},
                    {"node_id": 3, "log_end_offset": 80, "lag_records": 1500, "why_not_pushed": "it lags"},
                ],
            },
        ]
    },
    "standby": {"partitions": [{"partition": "kept-0", "log_start_offset": 0, "log_end_offset": 7}]},
}


def test_copies_on_standbys_have_their_ends_and_their_reasons() -> None:
    assert copies_of(PUSH, TopicPartition("orders", 0)) == [  # type: ignore[arg-type] # JSON
        CopyOnNode(node_id=2, start_offset=5, end_offset=90),
        CopyOnNode(node_id=3, start_offset=5, end_offset=80, detail="1,500 records behind; it lags"),
    ]


def test_copy_on_this_host_is_one_and_a_host_without_push_has_none() -> None:
    assert copies_of(PUSH, TopicPartition("kept", 0)) == [  # type: ignore[arg-type] # JSON
        CopyOnNode(node_id=1, start_offset=0, end_offset=7, detail="the copy on this host")
    ]
    assert copies_of({}, TopicPartition("kept", 0)) == []
    assert copies_of({"leader": None}, TopicPartition("kept", 0)) == []


@pytest.fixture
def tierd(tmp_path: Path) -> Installation:
    log_dir = write_log_dir(tmp_path / "kafka", partitions=2, rolled_segments=3, shape=SHAPE)
    return Installation(tmp_path / "tierd", [log_dir.path])


@asynccontextmanager
async def sampling(folder: Path, clock: ManualClock) -> AsyncIterator[tuple[DaemonPages, Engine]]:
    """Take samples over a copied tier, on a clock that a test moves."""
    async with copied(folder) as lab:
        engine = replace(lab.engine, clock=clock)
        unprotected = UnprotectedWatch(lab.tiering.replicas, dict, clock=clock)
        settings = engine.settings.config
        pages = DaemonPages(
            engine,
            lab.tiering,
            push=DaemonPush(None),
            unprotected=unprotected,
            remote=settings.remote,
            price_file=settings.cost.price_file,
        )
        task = asyncio.create_task(pages.run())
        try:
            yield pages, engine
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_contents_of_the_tier_stay_known_while_a_look_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sampling(tmp_path, ManualClock()) as (pages, _):
        before = await pages.tier_facts()
        assert (before["partitions"], before["segments"]) == (1, 3)

        async def hang(_: PageInventory) -> HostInventory:
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(PageInventory, "inventory", hang)
        monkeypatch.setattr(daemon_pages, "INVENTORY_S", 0.01)
        assert await pages.tier_facts() == before


async def test_sample_that_fails_is_logged_and_the_next_ones_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with sampling(tmp_path, clock) as (pages, engine):
        await eventually(lambda: clock.sleeping == 1, what="the first sample")
        with capture_logs() as lines, monkeypatch.context() as broken:
            broken.setattr(engine.metrics, "totals", lambda: 1 // 0)
            clock.advance(60)
            await eventually(lambda: clock.sleeping == 1, what="the sample that fails")
        assert [line["event"] for line in lines] == ["sample_not_taken"]
        clock.advance(60)
        await eventually(lambda: clock.sleeping == 1, what="the next sample")

        async def status() -> StatusSnapshot:
            raise AssertionError("the series is asked alone")

        tier = pages.sources(status).tier
    assert tier is not None
    known = [math.isnan(value) for value in tier.rates.values("lag_bytes")[-3:]]
    assert known == [False, True, False]


def test_pages_of_a_daemon_show_what_it_has_copied_and_answer_while_the_store_is_away(tierd: Installation) -> None:
    with tierd.daemon() as daemon:
        daemon.wait_copied({"synthetic-0": 23, "synthetic-1": 23})
        topics = daemon.get("/topics")
        assert "6 segments" in topics
        tier = daemon.status()["tier"]
        assert (tier["partitions"], tier["segments"]) == (2, 6)
        assert tier["oldest_ms"] == tier["newest_ms"] > 0
        assert "in 2 partitions that this daemon leads" in topics
        assert 'href="/topics/synthetic"' in topics
        page = daemon.get("/topics/synthetic/1")
        for text in (
            "in the local log",
            "in the active segment",
            "in the tier",
            "3 segments",
            "What is where over time",
        ):
            assert text in page
        assert "gap: nowhere" not in page
        counted = daemon.get("/topics/synthetic/1?records=1")
        assert counted.count('<td class="n">8</td>') == 3
        assert "24 in 3 segments" in daemon.get("/topics")
        assert '<td class="n">24</td>' in daemon.get("/topics/synthetic")
        assert "Oldest segment to copy over the last day: now 0 s" in daemon.get("/")
        assert "No deletion" in daemon.get("/runs")
        assert "systemctl status tierd" in daemon.get("/help/operations")

        (tierd.store_dir).rename(tierd.store_dir.with_name("away"))
        began_s = time.monotonic()
        away = daemon.get("/topics/synthetic/0?records=1")
        assert time.monotonic() - began_s < 5 + 3  # of the client, and of the store
        assert "not all records are counted" in away
        assert "in the tier" in away
        tierd.store_dir.with_name("away").rename(tierd.store_dir)
