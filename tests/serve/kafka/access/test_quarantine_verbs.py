"""The verbs of the quarantine over a real control socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.clock import FakeClock
from tierd.clock import SystemClock
from tierd.config import EndpointQuarantineSettings
from tierd.ports import ConnectionGate, ConnectionLimits
from tierd.serve import (
    HOLD_ENDPOINT,
    RELEASE_ENDPOINT,
    ControlServer,
    QuarantineAnswer,
    QuarantineRequest,
    ask,
    open_quarantine,
    quarantine_handlers,
)
from tierd.serve.kafka.access.quarantine import Quarantine, read_release

SETTINGS = EndpointQuarantineSettings(listeners=("RESTORED",))
HELD = QuarantineAnswer(listeners=("RESTORED",), principals=())


@asynccontextmanager
async def serving(state_dir: Path, quarantine: Quarantine) -> AsyncIterator[None]:
    gate = ConnectionGate(ConnectionLimits(connections=4, per_peer=4), clock=SystemClock(), is_short=lambda: False)
    server = ControlServer(state_dir, quarantine_handlers(quarantine), gate=gate, clock=SystemClock())
    async with asyncio.TaskGroup() as group, server.listening(group):
        yield


async def opened(state_dir: Path) -> Quarantine:
    return await open_quarantine(lambda: SETTINGS, state_dir=state_dir, clock=FakeClock())


async def test_person_lets_clients_go_and_holds_them_again(tmp_path: Path) -> None:
    quarantine = await opened(tmp_path)
    async with serving(tmp_path, quarantine):
        assert await ask(tmp_path, RELEASE_ENDPOINT, QuarantineRequest(by="ops")) == HELD
        assert not quarantine.held
        assert read_release(tmp_path / "endpoint-quarantine.json").by == "ops"
        assert await ask(tmp_path, HOLD_ENDPOINT, QuarantineRequest()) == HELD
        assert quarantine.held
