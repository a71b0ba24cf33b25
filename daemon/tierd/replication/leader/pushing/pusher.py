"""``Pusher``: the connections of one pusher. It carries out what ``PusherCore`` asks for, and reports what comes of it.

The shell decides nothing. Each connection, request and read is a task of the pusher, with a deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from tierd.errors import TierError
from tierd.replication.leader.pushing.push_actions import CloseLink, OpenLink, ReadChunk, SendAppend
from tierd.replication.leader.pushing.push_router import PushRouter
from tierd.replication.leader.pushing.session_slot import NEVER
from tierd.replication.model.messages import AppendRecordsRequest, AppendRecordsResponse
from tierd.replication.model.push_session import PeerNode
from tierd.tasks import run_to_end

log = structlog.get_logger()

_CLOSING_S: Final = 1.0
_LAST_WORDS_S: Final = 1.0
"""Longest wait of a shutdown for the answers of peers."""


class AppendChannel(Protocol):
    """Connection to the push listener of a peer, after its Hello."""

    @property
    def peer_process_epoch(self) -> int:
        """Process epoch that the peer's Hello named."""

    async def ask(self, request: AppendRecordsRequest, timeout_s: float) -> AppendRecordsResponse:
        """Send a request and return its answer; requests go out, and are answered, in the order of the calls.

        Raises:
            TierError: no answer, or none that can be read; the connection is of no use any more.
            OSError: the same, of the connection itself; ``TimeoutError`` after ``timeout_s``.
        """

    async def close(self) -> None:
        """Close the connection; outstanding calls of ``ask`` raise."""


OpenAppendChannel = Callable[[PeerNode], Awaitable[AppendChannel]]
"""Connects, and exchanges Hellos. Raises ``TierError`` or ``OSError``."""


class Pusher:
    """Shell of one pusher. ``changed`` is called after each event that was reported to the router."""

    def __init__(
        self,
        index: int,
        router: PushRouter,
        open_channel: OpenAppendChannel,
        *,
        now_s: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        """Begin without a connection."""
        self._index = index
        self._core = router.pushers[index]
        self._router = router
        self._open_channel = open_channel
        self._now_s = now_s
        self._changed = changed
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._channels: dict[int, AppendChannel] = {}
        self._unreachable: set[int] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at_s = 0.0
        self._finished: asyncio.Future[None] | None = None
        self._is_stopping = False

    async def run(self) -> None:
        """Work until ``stop``; a bug in the core or in a task ends it with that error."""
        self._finished = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self.arrange()
                await self._finished
        finally:
            self._tasks = None
            self._cancel_timers()
            await run_to_end(self._close_all(), name="push stop")

    def stop(self) -> None:
        """Finish once the connections are closed; peers that do not answer are left after a second."""
        self._is_stopping = True
        if self._tasks is not None:
            asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._abandon)
        self.arrange()

    def arrange(self) -> None:
        """Call the core when it has something to do next."""
        if self._soon is not None or (not self._core.slots.lanes and not self._is_stopping):
            return  # most pushers have no peer, and this is asked at each append
        if self._tasks is None or self._finished is None or self._finished.done():
            return
        if self._is_stopping and self._core.is_idle:
            self._finished.set_result(None)
            return
        at_s = self._core.deadline_s
        if at_s == NEVER:
            return
        now_s, loop = self._now_s(), asyncio.get_running_loop()
        if at_s <= now_s:
            self._soon = loop.call_soon(self._turn)
        elif self._timer is None or at_s < self._timer_at_s:
            self._cancel_timer()
            self._timer, self._timer_at_s = loop.call_later(at_s - now_s, self._fire), at_s

    def open_link(self, action: OpenLink) -> None:
        """Connect in a task."""
        self._connecting[action.link_id] = self._start(self._connect(action), f"push connect {action.link_id}")

    def close_link(self, action: CloseLink) -> None:
        """Close in a task, or stop connecting."""
        connecting = self._connecting.get(action.link_id)
        if connecting is not None:
            connecting.cancel()
        else:
            self._start(self._close(action.link_id), f"push close {action.link_id}")

    def send(self, action: SendAppend) -> None:
        """Send in a task."""
        channel = self._channels.get(action.link_id)
        if channel is not None:
            self._start(self._ask(channel, action), f"push request {action.request_id}")

    def read_chunk(self, action: ReadChunk) -> None:
        """Read in a task."""
        self._start(self._read(action), f"push read {action.chunk_id}")

    async def _connect(self, action: OpenLink) -> None:
        """Report the connection, or its failure: exactly one of both, also after a cancellation."""
        channel: AppendChannel | None = None
        try:
            async with asyncio.timeout(self._router.settings.request_timeout_s):
                channel = await self._open_channel(action.node)
        except (TierError, OSError) as error:
            if action.node.node_id not in self._unreachable:  # one line for an outage
                self._unreachable.add(action.node.node_id)
                log.info("push_connection_failed", peer=action.node.node_id, error=str(error))
        finally:
            del self._connecting[action.link_id]
            if channel is None:
                self._router.on_link_closed(self._index, action.link_id, self._now_s())
                self._changed()
        if channel is not None:
            self._unreachable.discard(action.node.node_id)
            self._channels[action.link_id] = channel
            self._router.on_link_opened(self._index, action.link_id, channel.peer_process_epoch, self._now_s())
            self._turn()

    async def _ask(self, channel: AppendChannel, action: SendAppend) -> None:
        try:
            response = await channel.ask(action.request, action.timeout_s)
        except (TierError, OSError) as error:
            log.info("push_request_failed", pusher=self._index, link=action.link_id, error=str(error))
            await self._close(action.link_id)
            return
        self._router.on_response(self._index, action.link_id, action.request_id, response, self._now_s())
        self._turn()

    async def _read(self, action: ReadChunk) -> None:
        data: bytes | None = None
        try:
            data = await action.file.read(action.position, action.max_bytes)
        except (TierError, OSError) as error:
            log.warning("push_file_unreadable", first_offset=action.file.first_offset, error=str(error))
        self._router.on_chunk_read(self._index, action.chunk_id, data, self._now_s())
        self._turn()

    async def _close(self, link_id: int) -> None:
        """Close a channel once, and report it."""
        channel = self._channels.pop(link_id, None)
        if channel is not None:
            await _close_quietly(channel)
            self._router.on_link_closed(self._index, link_id, self._now_s())
            self._turn()

    async def _close_all(self) -> None:
        while self._channels:
            link_id, channel = self._channels.popitem()
            await _close_quietly(channel)
            self._router.on_link_closed(self._index, link_id, self._now_s())

    def _turn(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        started_s = self._now_s()
        try:
            self._core.advance(started_s)
            self._changed()
        except Exception as error:  # a bug ends the pusher, and the manager with it
            if self._finished is None or self._finished.done():
                raise
            self._finished.set_exception(error)
        self._router.counters.processing_time_s.observe(self._now_s() - started_s)

    def _fire(self) -> None:
        self._timer = None
        self._turn()

    def _abandon(self) -> None:
        self._core.abandon(self._now_s())
        self._changed()

    def _start(self, work: "asyncio._CoroutineLike[None]", name: str) -> asyncio.Task[None]:
        assert self._tasks is not None
        return self._tasks.create_task(work, name=name)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cancel_timers(self) -> None:
        self._cancel_timer()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None


async def _close_quietly(channel: AppendChannel) -> None:
    try:
        async with asyncio.timeout(_CLOSING_S):
            await channel.close()
    except (TierError, OSError) as error:
        log.info("push_connection_lost", error=str(error))
