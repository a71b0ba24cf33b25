"""EndpointPeers: the other endpoints of the cluster, and which of them are alive."""

import asyncio
import contextlib
import errno
import socket
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
_OF_THIS_HOST: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, socket.EAI_AGAIN, socket.EAI_MEMORY, socket.EAI_SYSTEM)
)


class EndpointPeers:
    """Peers by configuration. A peer is alive while its address takes connections.

    While this host has no descriptor left, or the name service does not answer, nothing new is known of a peer: each
    daemon would else take itself for the only one, and all groups and partitions for its own.
    """

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
        if is_there is None:
            return
        before = self._failures[peer.node_id]
        after = 0 if is_there else min(before + 1, _FAILURES)
        self._failures[peer.node_id] = after
        if (before < _FAILURES) != (after < _FAILURES):
            self.revision += 1
            log.info("endpoint_peer_alive" if is_there else "endpoint_peer_lost", peer=peer.node_id, host=host)


async def _is_listening(host: str, port: int) -> bool | None:
    """Return True if the address takes connections; None where this host cannot find that out now."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        return None
    except (OSError, ValueError, OverflowError) as error:
        return _without_answer(error)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _connects([str(address[0]) for *_, address in found], port)
    except (OSError, TimeoutError, ValueError, OverflowError) as error:
        return _without_answer(error)


async def _connects(addresses: Sequence[str], port: int) -> bool:
    """Connect to one of the addresses; raise the error of the last one where none takes a connection."""
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return await _connects([address], port)
    _, writer = await asyncio.open_connection(addresses[-1], port)
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _without_answer(error: Exception) -> bool | None:
    return None if isinstance(error, OSError) and error.errno in _OF_THIS_HOST else False
