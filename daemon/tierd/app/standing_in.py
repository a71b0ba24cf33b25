"""Standing in: what a daemon would have at hand, for one command while none runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tierd.app.compose import Engine, compose
from tierd.app.instance_lock import instance_lock, make_state_dir
from tierd.config import TierdConfig
from tierd.tiering import PassiveSupervisor, RemoteLogManager


@contextlib.asynccontextmanager
async def standing_in(config: TierdConfig, config_file: Path) -> AsyncIterator[tuple[Engine, RemoteLogManager]]:
    """Do what a daemon would, for one command: own the state directory and the tier, and find what is led."""
    await asyncio.to_thread(make_state_dir, config.state_dir)
    with instance_lock(config.state_dir):
        async with compose(config, config_file) as engine:
            await engine.store.own()
            manager = engine.new_manager(PassiveSupervisor())
            await manager.discover_once()
            engine.control.require_heard()
            if engine.control.topic_configs is not None:  # who leads what was found says of which topics to ask
                await engine.control.topic_configs.refresh()
            yield engine, manager
