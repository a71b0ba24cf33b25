"""PeerLink: connection of this daemon to the push listener of a peer, on which it asks and gets answers in order.

::

    connect ──► TLS ──► Hello ──► ready ──► asking, asking, ... ──► closed
                                    │         │
                                    └─────────┴── timeout, cancellation, damaged or unexpected answer ──► closed
"""

import asyncio
import itertools
from collections import deque
from typing import Final, cast, overload

from tierd.errors import DamagedMessageError
from tierd.replication.links.frame_connection import FrameConnection
from tierd.replication.links.link_errors import PushLinkError, PushLinkLostError, PushLinkTimeoutError
from tierd.replication.links.link_limits import HELLO_FRAME_BYTES, LinkLimits
from tierd.replication.model.messages import (
    AppendRecordsRequest,
    AppendRecordsResponse,
    AssignmentsRequest,
    AssignmentsResponse,
    EpochEndOffsetsRequest,
    EpochEndOffsetsResponse,
    FetchRecordsRequest,
    FetchRecordsResponse,
    HelloMessage,
    LogBoundsRequest,
    LogBoundsResponse,
    PushApi,
)
from tierd.replication.model.push_session import PeerIdentity
from tierd.replication.wire.message_schemas import PushRequest, PushResponse
from tierd.replication.wire.push_frames import VERSION, api_of, decode_push_response, encode_push_request

_CLIENT_ID: Final = "tierd"


class PeerLink:
    """One connection. Every failure ends it: a late answer is never read as the answer to another request."""

    def __init__(self, peer: str, *, limits: LinkLimits) -> None:
        """Make a link to ``peer``, as messages name it; ``connection`` then gets its transport."""
        self._peer = peer
        self._limits = limits
        self._answers: deque[asyncio.Future[memoryview]] = deque()
        self._correlation_ids = itertools.count()
        self._hello: HelloMessage | None = None
        self.connection = FrameConnection(self, max_frame_bytes=HELLO_FRAME_BYTES)

    @property
    def identity(self) -> PeerIdentity:
        """Return the process at the other end."""
        assert self._hello is not None, "the Hellos were exchanged"
        return PeerIdentity(self._hello.node_id, self._hello.process_epoch)

    @property
    def peer_process_epoch(self) -> int:
        """Return the process epoch that the peer's Hello named."""
        return self.identity.process_epoch

    @property
    def is_open(self) -> bool:
        """Return True if the next request may reach the peer."""
        return self.connection.is_open

    async def exchange_hellos(self, mine: HelloMessage) -> HelloMessage:
        """Send the first request of the connection, and return the answer; the identity in it is not checked.

        Raises:
            PushLinkError: no answer, or one with an error.
        """
        answer = cast("HelloMessage", await self._exchange(mine, self._limits.hello_timeout_s))
        self._hello = answer
        self.connection.max_frame_bytes = self._limits.frame_bytes
        return answer

    @overload
    async def ask(self, request: AppendRecordsRequest, timeout_s: float) -> AppendRecordsResponse: ...
    @overload
    async def ask(self, request: FetchRecordsRequest, timeout_s: float) -> FetchRecordsResponse: ...
    @overload
    async def ask(self, request: EpochEndOffsetsRequest, timeout_s: float) -> EpochEndOffsetsResponse: ...
    @overload
    async def ask(self, request: LogBoundsRequest, timeout_s: float) -> LogBoundsResponse: ...
    @overload
    async def ask(self, request: AssignmentsRequest, timeout_s: float) -> AssignmentsResponse: ...
    async def ask(self, request: PushRequest, timeout_s: float) -> PushResponse:
        """Send a request and return its answer; requests go out, and are answered, in the order of the calls.

        The record bytes of ``request`` stay in use until the answer, or until ``close`` returns. After an error or a
        cancellation the link is closed.

        Raises:
            PushLinkTimeoutError: no answer within ``timeout_s``.
            PushLinkLostError: the connection ended.
            PushLinkError: the peer has no such API, answers something else, or too many requests have no answer.
        """
        api = api_of(request)
        if not self._understands(api):
            raise PushLinkError(f"{self._peer} does not know {api.name}", remedy="install the same tierd on both hosts")
        return await self._exchange(request, timeout_s)

    async def close(self) -> None:
        """Close the connection at once; outstanding calls of ``ask`` raise."""
        self.connection.abort()
        await self.connection.wait_closed()

    def on_frame(self, frame: memoryview) -> None:
        """Give a frame to the oldest request."""
        if not self._answers:
            self.connection.fail(PushLinkError(f"{self._peer} sent an answer without a question"))
            return
        answer = self._answers.popleft()
        if not answer.done():
            answer.set_result(frame)

    def on_end(self) -> None:
        """End the requests that have no answer."""
        failure = self.connection.failure
        while self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_exception(self._ended(failure))

    def _understands(self, api: PushApi) -> bool:
        apis = self._hello.apis if self._hello is not None else ()
        return any(each.api_key == api and each.min_version <= VERSION <= each.max_version for each in apis)

    async def _exchange(self, request: PushRequest, timeout_s: float) -> PushResponse:
        api, correlation_id = api_of(request), next(self._correlation_ids) & 0x7FFFFFFF
        is_answered = False
        try:
            async with asyncio.timeout(timeout_s):
                frame = await self._send(request, correlation_id)
            found_id, response = decode_push_response(api, frame)
            is_answered = found_id == correlation_id
        except TimeoutError as error:
            raise PushLinkTimeoutError(f"{self._peer} did not answer {api.name} within {timeout_s:g} s") from error
        except DamagedMessageError as error:
            raise PushLinkError(f"{self._peer} sent a damaged answer: {error}") from error
        finally:
            if not is_answered:
                self.connection.abort()
        if not is_answered:
            raise PushLinkError(f"{self._peer} answered request {found_id} in place of {correlation_id}")
        return response

    def _send(self, request: PushRequest, correlation_id: int) -> asyncio.Future[memoryview]:
        if len(self._answers) >= self._limits.outstanding:
            raise PushLinkError(f"{self._peer} has not answered {len(self._answers)} requests")
        self.connection.send(encode_push_request(request, correlation_id=correlation_id, client_id=_CLIENT_ID))
        answer = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return answer

    def _ended(self, failure: Exception | None) -> PushLinkError:
        if isinstance(failure, PushLinkError):
            return failure
        if isinstance(failure, DamagedMessageError):
            return PushLinkError(f"{self._peer} sent something else than an answer: {failure}")
        cause = f": {str(failure) or type(failure).__name__}" if failure is not None else " by the peer"
        return PushLinkLostError(f"the connection to {self._peer} was closed{cause}")
