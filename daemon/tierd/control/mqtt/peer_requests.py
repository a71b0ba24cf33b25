"""Requests between daemons: those of this daemon that wait for a reply, and its answers to those of peers.

A request is registered before it is published. A reply that is late, or that no request waits for, is dropped
(push-replication 4.3). A few requests of peers are answered at a time, each within a deadline.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final

import structlog
from pydantic import JsonValue

from tierd.control.mqtt.control_messages import MAX_PAYLOAD_BYTES, PeerReply, PeerRequest
from tierd.control.mqtt.control_state import ControlState, ReceivedRequest
from tierd.errors import ControlPlaneError, TierError
from tierd.masking import Masking

log = structlog.get_logger()

PeerHandler = Callable[[PeerRequest], Awaitable[JsonValue]]
"""Carries out a request of a peer and returns the answer, of at most about 3 KiB."""

MAX_ANSWERING: Final = 8
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


class PeerAnswers:
    """Answers by the handlers of the daemon; a verb without a handler is refused.

    Attributes:
        refused: requests that were answered with an error.
    """

    def __init__(
        self,
        state: ControlState,
        handlers: Mapping[str, PeerHandler],
        *,
        timeout_s: float,
        on_reply: Callable[[], None],
    ) -> None:
        """Reply through the queue of ``state``; ``on_reply`` is called when a reply waits in it."""
        self._state = state
        self._handlers = handlers
        self._timeout_s = timeout_s
        self._on_reply = on_reply
        self.refused = 0

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncIterator[Callable[[ReceivedRequest], None]]:
        """Yield a call that begins to answer a request; answers that are not ready at the end are abandoned."""
        under_way: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:

            def begin(request: ReceivedRequest) -> None:
                if len(under_way) >= MAX_ANSWERING:
                    self._refuse(request, "the daemon answers other requests", remedy="try again later")
                    return
                task = group.create_task(self._answer(request), name=f"control {request.verb}")
                under_way.add(task)
                task.add_done_callback(under_way.discard)

            try:
                yield begin
            finally:
                for task in under_way:
                    task.cancel()

    async def _answer(self, request: ReceivedRequest) -> None:
        handler = self._handlers.get(request.verb)
        if handler is None:
            known = f"answered: {', '.join(sorted(self._handlers))}"
            self._refuse(request, f"no request {request.verb!r}", remedy=known)
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await handler(request.message)
        except TierError as error:
            self._refuse(request, str(error), remedy=error.remedy)
        except TimeoutError:
            self._refuse(request, f"{request.verb} took above {self._timeout_s:g} s")
        except Exception as error:
            log.exception("control_request_failed", verb=request.verb, peer=request.message.node)
            self._refuse(request, f"internal error: {Masking().error(error).named}", remedy="see the daemon's log")
        else:
            self._reply(request, answer)

    def _reply(self, request: ReceivedRequest, answer: JsonValue) -> None:
        if len(json.dumps(answer, ensure_ascii=False).encode()) > MAX_PAYLOAD_BYTES - _ENVELOPE_BYTES:
            self._refuse(request, "the answer does not fit into one message", remedy="name fewer partitions")
            return
        self._state.reply(request, answer=answer)
        self._on_reply()

    def _refuse(self, request: ReceivedRequest, error: str, *, remedy: str = "") -> None:
        self.refused += 1
        self._state.reply(request, error=_shortened(error), remedy=_shortened(remedy))
        self._on_reply()


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_ERROR_CHARS else f"{text[:_MAX_ERROR_CHARS]} …"
