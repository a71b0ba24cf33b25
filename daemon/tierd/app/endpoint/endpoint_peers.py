"""EndpointPeers: the other endpoints of the cluster, and which of them are alive."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.config import EndpointPeerSettings
from tierd.serve import EndpointNode

log = structlog.get_logger()

_INTERVAL_S: Final = 2.0
_TIMEOUT_S: Final = 1.0
_FAILURES: Final = 2  # in a row: one lost packet does not move groups


class EndpointPeers:
    """Peers by configuration. A peer is alive while its address takes connections."""

    def __init__(self, peers: Sequence[EndpointPeerSettings], *, listener: str, clock: Clock) -> None:
        """Connect to no peer yet; ``listener`` names the address of each peer that is tried."""
        self._peers = tuple(peers)
        self._listener = listener
        self._clock = clock
        self._failures = dict.fromkeys((peer.node_id for peer in peers), 0)
        self.revision = 0
        """Grows whenever a peer comes or goes."""

    @property
    def live_ids(self) -> frozenset[int]:
        """Return the node ids of the peers that are alive, as far as it is known."""
        return frozenset(node_id for node_id, failures in self._failures.items() if failures < _FAILURES)

    def nodes(self, listener: str) -> list[EndpointNode]:
        """Return the live peers at their addresses for ``listener``."""
        live = self.live_ids
        return [
            EndpointNode(peer.node_id, *peer.address_for(listener), rack=peer.rack)
            for peer in self._peers
            if peer.node_id in live
        ]

    async def watch(self) -> None:
        """Try all peers at intervals, until cancelled."""
        while self._peers:
            await self.refresh()
            await self._clock.sleep(_INTERVAL_S)

    async def refresh(self) -> None:
        """Try all peers once, all at the same time."""
        async with asyncio.TaskGroup() as group:
            for peer in self._peers:
                group.create_task(self._try(peer), name=f"peer {peer.node_id}")

    async def _try(self, peer: EndpointPeerSettings) -> None:
        host, port = peer.address_for(self._listener)
        is_there = await _is_listening(host, port)
        before = self._failures[peer.node_id]
        after = 0 if is_there else min(before + 1, _FAILURES)
        self._failures[peer.node_id] = after
        if (before < _FAILURES) != (after < _FAILURES):
            self.revision += 1
            log.info("endpoint_peer_alive" if is_there else "endpoint_peer_lost", peer=peer.node_id, host=host)


async def _is_listening(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError, ValueError, OverflowError):
        return False
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
