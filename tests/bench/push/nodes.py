"""Sides of push replication, each on a port of its own, for the programs of the benchmark."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop

from tests.log.cleaning.cleaners import own_log_rules
from tierd.app import tune_memory
from tierd.clock import Clock, SystemClock
from tierd.log import LogConfig, LogManager, LogManagerSettings, LogService
from tierd.ports import ConnectionGate, ConnectionLimits
from tierd.replication.links.link_identity import LinkIdentity
from tierd.replication.links.peer_connector import PeerConnector
from tierd.replication.links.push_listener import PushListener, PushListenPlan
from tierd.replication.links.served_link import LinkHandler
from tierd.tasks import end_tasks

LEADER: Final = LinkIdentity(cluster_id="bench", node_id=1, process_epoch=1, software_version="bench")
STANDBY: Final = LinkIdentity(cluster_id="bench", node_id=2, process_epoch=2, software_version="bench")
_CONNECTIONS: Final = 64

Answer = dict[str, float]
Verb = Callable[..., Awaitable[Answer]]


def connector(me: LinkIdentity) -> PeerConnector:
    """Return the connector of a node, without TLS: all nodes are on this host."""
    return PeerConnector(me, certificates=None)


@asynccontextmanager
async def listening(
    me: LinkIdentity, port: int, handlers: Mapping[type, LinkHandler], *, clock: Clock
) -> AsyncIterator[None]:
    """Answer on a port of this host inside the block."""
    limits = ConnectionLimits(connections=_CONNECTIONS, per_peer=_CONNECTIONS)
    gate = ConnectionGate(limits, clock=clock, is_short=lambda: False)
    listener = PushListener(
        PushListenPlan(host="127.0.0.1", port=port, certificates=None), me, handlers, gate, clock=clock
    )
    await listener.bind()
    task = asyncio.create_task(listener.run(), name="listener")
    try:
        yield
    finally:
        await end_tasks([task])


def log_service(log_dir: Path, config_for: Callable[[str], LogConfig], *, clock: Clock) -> LogService:
    """Return the service of the logs in one log dir, which is made."""
    log_dir.mkdir(parents=True)
    manager = LogManager([log_dir], LogManagerSettings(config_for=config_for, clock=clock))
    return LogService(manager, clock=clock, rewriting=own_log_rules())


def serve_verbs(node: Callable[[Clock], Any]) -> None:
    """Run a node, and answer the verbs that come as lines of JSON until the end of the input.

    ``node(clock)`` is an asynchronous context manager whose value maps names to verbs. A line is the name and the
    keyword arguments of a verb; its answer is a line too.
    """
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(30), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    tune_memory()  # as the daemon does; the collector would stop the node in the middle of a measurement
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the event loop of the daemon
        runner.run(_serve_verbs(node))


async def _serve_verbs(node: Callable[[Clock], Any]) -> None:
    async with node(SystemClock()) as verbs:
        print(json.dumps({}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, arguments = json.loads(line)
            print(json.dumps(await verbs[name](**arguments)), flush=True)
