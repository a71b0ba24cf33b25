"""What the pipeline of an engine is made of."""

from pathlib import Path

import pytest

from tests.app.test_compose import _config
from tests.fakes.clock import FakeClock
from tierd.app import compose as compose_module
from tierd.app.compose import compose
from tierd.app.pipeline import build_pipeline
from tierd.tiering import PassiveSupervisor

YEAR_MS = 365 * 86_400_000


async def test_no_run_believes_a_wall_clock_that_has_just_leapt_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run takes tombstones and expired records away by age, as expiration takes segments."""
    clock = FakeClock()
    monkeypatch.setattr(compose_module, "SystemClock", lambda: clock)
    async with compose(_config(tmp_path), tmp_path / "tierd.yaml") as engine:
        run = build_pipeline(engine, engine.new_manager(PassiveSupervisor()), tmp_path / "tierd.yaml").run
        began_ms = (await run.plan(None)).order.now_ms
        clock.advance(60)
        clock.step_wall_clock(10 * YEAR_MS)
        assert (await run.plan(None)).order.now_ms == began_ms + 60_000
