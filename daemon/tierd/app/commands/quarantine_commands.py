"""``tierd endpoint release | hold``: by the daemon, else by this process in the daemon's state directory."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tierd.app.engine.instance_lock import owned_state_dir
from tierd.clock import SystemClock
from tierd.config import EndpointQuarantineSettings
from tierd.serve import (
    HOLD_ENDPOINT,
    RELEASE_ENDPOINT,
    ControlVerb,
    QuarantineAnswer,
    QuarantineRequest,
    ask_or_run,
    open_quarantine,
)

LoadQuarantine = Callable[[], EndpointQuarantineSettings]
"""Reads the settings of the quarantine. Not called where a daemon answers, which has read its own."""


async def release_endpoint(state_dir: Path, load: LoadQuarantine, *, by: str) -> QuarantineAnswer:
    """Let the clients of the read endpoint go that are held back; return those that were held.

    Raises:
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        RefusedError: the daemon has no read endpoint.
        StateDirError: the release cannot be written; the clients are still held.
    """
    return await _ask(state_dir, RELEASE_ENDPOINT, load, by)


async def hold_endpoint(state_dir: Path, load: LoadQuarantine, *, by: str) -> QuarantineAnswer:
    """Hold the clients of the read endpoint back that the file names; return those that are held now.

    Raises:
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        RefusedError: the daemon has no read endpoint.
        StateDirError: the change cannot be written; nothing has changed.
    """
    return await _ask(state_dir, HOLD_ENDPOINT, load, by)


async def _ask(
    state_dir: Path, verb: ControlVerb[QuarantineRequest, QuarantineAnswer], load: LoadQuarantine, by: str
) -> QuarantineAnswer:
    async def run_here() -> QuarantineAnswer:
        settings = await asyncio.to_thread(load)
        async with owned_state_dir(state_dir):
            quarantine = await open_quarantine(lambda: settings, state_dir=state_dir, clock=SystemClock())
            clients = await quarantine.release(by=by) if verb is RELEASE_ENDPOINT else await quarantine.hold()
        return QuarantineAnswer(listeners=clients.listeners, principals=clients.principals)

    return await ask_or_run(state_dir, verb, QuarantineRequest(by=by), run_here)
