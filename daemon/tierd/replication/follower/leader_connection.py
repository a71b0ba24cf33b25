"""LeaderConnection: a connection to a leader that is opened when it is needed and closed after every error."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tierd.errors import TierError
from tierd.replication.follower.leader_refusals import refusal_text
from tierd.replication.model.messages import (
    AssignmentsRequest,
    EpochEndOffsetsRequest,
    FetchRecordsRequest,
    LogBoundsRequest,
)

FollowerRequest = FetchRecordsRequest | EpochEndOffsetsRequest | LogBoundsRequest | AssignmentsRequest

_R = TypeVar("_R")


class LeaderAnswerError(TierError):
    """A leader does not answer, answers another question, or refuses a request as a whole."""


class LeaderChannel(Protocol):
    """Connection to the push listener of a leader, after its Hello."""

    async def ask(self, request: FollowerRequest, timeout_s: float) -> object:
        """Send a request and return its answer.

        Raises:
            TierError: no answer, or none that can be read; the connection is of no use any more.
            OSError: the same, of the connection itself; ``TimeoutError`` after ``timeout_s``.
        """

    async def close(self) -> None:
        """Close the connection."""


OpenLeaderChannel = Callable[[int], Awaitable[LeaderChannel]]
"""Connects to a node by its id, and exchanges Hellos. Raises ``TierError`` or ``OSError``."""


class LeaderConnection:
    """Connection to one leader for one task, which asks one thing at a time."""

    def __init__(self, leader_id: int, open_channel: OpenLeaderChannel) -> None:
        """Prepare; nothing is opened before the first request."""
        self._leader_id = leader_id
        self._open = open_channel
        self._channel: LeaderChannel | None = None

    @property
    def is_open(self) -> bool:
        """Return True if the next request goes to the process that answered the last one."""
        return self._channel is not None

    async def ask(self, request: FollowerRequest, kind: type[_R], timeout_s: float) -> _R:
        """Return the answer to a request; after an error or a cancellation the connection is closed.

        Raises:
            LeaderAnswerError: no answer of ``kind`` in time, or one with an error for the whole request.
            TierError: an error of the channel.
        """
        is_done = False
        try:
            if self._channel is None:
                self._channel = await self._open(self._leader_id)
            response = await self._channel.ask(request, timeout_s)
            is_done = isinstance(response, kind)
        except OSError as error:
            cause = str(error) or type(error).__name__
            raise LeaderAnswerError(f"node {self._leader_id} cannot be asked: {cause}") from error
        finally:
            if not is_done:
                await self.close()
        if not isinstance(response, kind):
            raise LeaderAnswerError(f"node {self._leader_id} answered with {type(response).__name__}")
        code = getattr(response, "error_code", 0)
        if code:
            raise LeaderAnswerError(f"node {self._leader_id} refused a request with {refusal_text(code)}")
        return response

    async def close(self) -> None:
        """Close the connection, if there is one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
