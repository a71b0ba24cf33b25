"""DaemonCatalogue: the keeper of the daemon, and nothing where the catalogue is switched off."""

import asyncio
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation, Settings
from tierd.app.daemon.daemon_catalogue import DaemonCatalogue
from tierd.app.engine.compose import compose
from tierd.app.engine.deployment import Deployment
from tierd.config import load_config
from tierd.tasks import end_tasks

KAFKA: Settings = {"leadership": {"kafka": {"bootstrap_servers": ["127.0.0.1:1"]}}}


def installed(tmp_path: Path, settings: Settings) -> Deployment:
    """Return a deployment with an empty log dir."""
    log_dir = LogDirWriter(tmp_path / "kafka")
    tierd = Installation(tmp_path / "tierd", [log_dir.path], settings=settings)
    config = load_config(tierd.config_file, {})
    config.state_dir.mkdir()
    return Deployment(config, tierd.config_file)


async def test_catalogue_that_is_switched_off_does_nothing(tmp_path: Path) -> None:
    deployment = installed(tmp_path, {"catalogue": {"enabled": False}})
    async with compose(deployment) as engine:
        catalogue = DaemonCatalogue(engine, deployment.config.catalogue, deployment.config.leadership)
        await catalogue.run(asyncio.Event().wait)
        assert (catalogue.facts(), catalogue.use()) == ({"enabled": False}, None)
        assert await engine.store.list_objects("") == []


@pytest.mark.parametrize("settings", [{}, KAFKA], ids=["log dirs", "brokers"])
async def test_catalogue_has_done_nothing_before_it_runs(tmp_path: Path, settings: Settings) -> None:
    deployment = installed(tmp_path, settings)
    async with compose(deployment) as engine:
        catalogue = DaemonCatalogue(engine, deployment.config.catalogue, deployment.config.leadership)
        assert catalogue.facts() == {
            "enabled": True,
            "written": {},
            "removed": 0,
            "failures": {},
            "positions_ms": None,
            "groups": 0,
            "problems": {},
        }
        use = catalogue.use()
        assert use is not None
        assert (use.positions_s, use.has_problem) == (None, False)


async def test_catalogue_is_kept_once_the_partitions_are_loaded(tmp_path: Path) -> None:
    deployment = installed(tmp_path, {})
    loaded = asyncio.Event()
    async with compose(deployment) as engine:
        catalogue = DaemonCatalogue(engine, deployment.config.catalogue, deployment.config.leadership)
        running = asyncio.create_task(catalogue.run(loaded.wait))
        try:
            for _ in range(100):
                await asyncio.sleep(0)
            assert catalogue.facts()["written"] == {}
            loaded.set()
            await eventually(lambda: bool(catalogue.facts()["written"]), what="the catalogue")
        finally:
            await end_tasks([running])


async def test_catalogue_is_kept_where_partitions_are_not_loaded_in_time(tmp_path: Path) -> None:
    deployment = installed(tmp_path, {})
    async with compose(deployment) as engine:
        catalogue = DaemonCatalogue(engine, deployment.config.catalogue, deployment.config.leadership)
        running = asyncio.create_task(catalogue.run(asyncio.Event().wait, patience_s=0))
        try:
            await eventually(lambda: bool(catalogue.facts()["written"]), what="the catalogue")
        finally:
            await end_tasks([running])
