"""PendingRequests: the requests to peers that wait for a reply, and the requests of peers that are being answered.

A request is registered before it is published. A reply that is late, or that no request waits for, is dropped
(push-replication 4.3).
"""

import asyncio
import json
from typing import Final

from pydantic import JsonValue

from tierd.control.mqtt.control_messages import MAX_PAYLOAD_BYTES, PeerReply
from tierd.errors import ControlPlaneError

MAX_PENDING: Final = 64
_MAX_ERROR_CHARS: Final = 400
_ENVELOPE_BYTES: Final = 1024


class PendingRequests:
    """Requests of this daemon that wait for a reply, by their correlation; at most ``MAX_PENDING``."""

    def __init__(self, *, max_pending: int = MAX_PENDING) -> None:
        self._max_pending = max_pending
        self._waiting: dict[bytes, tuple[int, asyncio.Future[PeerReply]]] = {}
        self.dropped_replies = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def register(self, correlation: bytes, node_id: int) -> asyncio.Future[PeerReply]:
        """Return the future of the reply of ``node_id``.

        Raises:
            ControlPlaneError: too many requests wait already.
        """
        if len(self._waiting) >= self._max_pending:
            raise ControlPlaneError(f"{len(self._waiting)} requests to peers wait already", remedy="try again later")
        future: asyncio.Future[PeerReply] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = (node_id, future)
        return future

    def forget(self, correlation: bytes) -> None:
        """Stop waiting for a reply."""
        self._waiting.pop(correlation, None)

    def reply(self, correlation: bytes, message: PeerReply) -> None:
        """Hand a reply to its request; drop it if no request waits for it, or if another node sent it."""
        waiting = self._waiting.get(correlation)
        if waiting is None or waiting[0] != message.node or waiting[1].done():
            self.dropped_replies += 1
            return
        waiting[1].set_result(message)


def shortened(text: str) -> str:
    """Return an error for a reply, cut where it is long."""
    return text if len(text) <= _MAX_ERROR_CHARS else f"{text[:_MAX_ERROR_CHARS]} …"


def fits_reply(answer: JsonValue) -> bool:
    """Return True if ``answer`` fits into one reply beside the fields of the message."""
    return len(json.dumps(answer, ensure_ascii=False).encode()) <= MAX_PAYLOAD_BYTES - _ENVELOPE_BYTES
