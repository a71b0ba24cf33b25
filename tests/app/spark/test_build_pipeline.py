"""Pipeline of an engine."""

import threading
from pathlib import Path
from uuid import uuid4

import pytest

from tests.app.engine.test_compose import _config
from tests.fakes.clock import FakeClock
from tests.fakes.log_dirs import LogDirWriter
from tierd.app.engine import compose as compose_module
from tierd.app.engine.compose import compose, standing_in
from tierd.app.engine.deployment import Deployment
from tierd.app.spark.build_pipeline import build_pipeline
from tierd.pipeline import Candidate, new_request
from tierd.pipeline.erasing.erase_request import ErasePhase
from tierd.pipeline.planning import Chain
from tierd.tiering import PassiveSupervisor

YEAR_MS = 365 * 86_400_000
REQUESTS = 20


async def test_run_ignores_a_recent_leap_of_the_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run removes tombstones and expired records by their age, as expiration removes segments."""
    clock = FakeClock()
    monkeypatch.setattr(compose_module, "SystemClock", lambda: clock)
    async with compose(Deployment(_config(tmp_path), tmp_path / "tierd.yaml")) as engine:
        run = build_pipeline(engine, engine.new_tiering(PassiveSupervisor())).run
        began_ms = (await run.plan(None)).order.now_ms
        clock.advance(60)
        clock.step_wall_clock(10 * YEAR_MS)
        assert (await run.plan(None)).order.now_ms == began_ms + 60_000


async def test_a_plan_writes_no_metadata(tmp_path: Path) -> None:
    async with compose(Deployment(_config(tmp_path), tmp_path / "tierd.yaml")) as engine:
        await build_pipeline(engine, engine.new_tiering(PassiveSupervisor())).run.plan(None)
        assert await engine.rows.get(engine.metadata.keys.key_secret_key) is None


async def test_many_requests_to_erase_do_not_hold_up_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of a request surveys the segments of its own partition only."""
    config = _config(tmp_path)
    (tmp_path / "kafka").rmdir()
    log_dir = LogDirWriter(tmp_path / "kafka")
    partition = log_dir.add_partition("orders")
    for _ in range(3):
        partition.append([b"value"])
        partition.roll()
    log_dir.write_checkpoints()
    looking: list[threading.Thread] = []
    chain = Candidate.chain

    def looked(self: Candidate) -> Chain:
        looking.append(threading.current_thread())
        return chain(self)

    async with standing_in(Deployment(config, tmp_path / "tierd.yaml")) as (engine, tiering):
        await tiering.manager.copy_once()
        pipeline = build_pipeline(engine, tiering)
        (candidate,) = await pipeline.candidates.find(None)
        for number in range(REQUESTS):
            filed = new_request(
                uuid4(),
                candidate.partition,
                [b"key %d" % number],
                now_ms=0,
                requested_by="someone",
                reason="",
                tier_end_offset=3,
                log_end_offset=None,
                at_once=False,
            )
            await pipeline.erase_requests.file(filed)
        monkeypatch.setattr(Candidate, "chain", looked)
        stepped = await pipeline.erasures.step_all()
        assert [request.phase for request in stepped] == [ErasePhase.SEARCHING] * REQUESTS
        assert REQUESTS <= len(looking) <= 2 * REQUESTS
        assert threading.current_thread() not in looking
