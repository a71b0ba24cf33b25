"""Standing in for the daemon: one command has the daemon's parts while no daemon runs."""

import contextlib
from collections.abc import AsyncIterator

from tierd.app.engine.compose import Engine, compose
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.instance_lock import owned_state_dir
from tierd.tiering import PassiveSupervisor, Tiering


@contextlib.asynccontextmanager
async def standing_in(deployment: Deployment) -> AsyncIterator[tuple[Engine, Tiering]]:
    """Own the state directory and the tier, find what is led, and give the parts of the daemon to one command."""
    async with owned_state_dir(deployment.state_dir), compose(deployment) as engine:
        await engine.store.own()
        tiering = engine.new_tiering(PassiveSupervisor())
        async with engine.control.heard():
            await tiering.manager.discover_once()
            engine.control.require_heard()
        if engine.control.topic_configs is not None:
            await engine.control.topic_configs.refresh()
        yield engine, tiering
