"""``PushManager``: sessions of push replication on the leader's side (push-replication 1.2 to 1.4).

The methods are plain calls on the event loop, and the order of the calls is the order of the events: they never wait,
and completion is seen in the callbacks of the sessions only. ``PushRouter`` decides, the pushers send. The caller, the
replicator of a partition, changes the state of a replica before it calls ``start_push`` or ``stop_push``.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from types import TracebackType
from typing import Final, Self

import structlog

from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.leader_log import FileRecords
from tierd.replication.leader.logs.record_memory import MemoryRecords
from tierd.replication.leader.pushing.push_actions import (
    CloseLink,
    LeadershipDoubted,
    OpenLink,
    PushAction,
    PushLeader,
    PushSessionEnded,
    ReadChunk,
    RecordsAcknowledged,
    ReleaseFile,
    SendAppend,
)
from tierd.replication.leader.pushing.push_counters import PushStatistics
from tierd.replication.leader.pushing.push_router import PushRouter
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.pushing.push_statistics import push_statistics
from tierd.replication.leader.pushing.pusher import OpenAppendChannel, Pusher
from tierd.replication.leader.pushing.session_callbacks import SessionCallbacks
from tierd.replication.model.push_session import PushSession, PushSessionEndReason, PushSessionIdentity

log = structlog.get_logger()

_SOFT_MARK_LINE_S: Final = 60.0

OnLeadershipDoubted = Callable[[TopicIdPartition, int], None]
"""Takes a partition and the leader epoch that was refused: the leader has to check if it still leads."""


OnSession = Callable[[PushSessionIdentity, PushSessionEndReason | None], None]
"""Takes a session that began, without a reason, or that ended, with its reason."""


class PushManagerStoppedError(RuntimeError):
    """Use of a push manager after its shutdown: a bug of the caller."""


class _ManagerState(Enum):
    NEW = "new"
    ACTIVE = "active"
    STOPPED = "stopped"


class PushManager:
    """Manager of all push sessions of this process. Made on the event loop, which it then belongs to.

    ``startup``, ``shutdown``, ``is_active`` and ``is_push_replication_supported`` may be called on any thread.
    """

    def __init__(
        self,
        settings: PushSettings,
        leader: PushLeader,
        open_channel: OpenAppendChannel,
        *,
        on_leadership_doubted: OnLeadershipDoubted,
        on_session: OnSession = lambda _identity, _reason: None,
        now_s: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Begin without a session.

        Args:
            settings: of push replication.
            leader: this process, as its requests name it.
            open_channel: connects to a peer.
            on_leadership_doubted: called when a follower refused a leader epoch as too old.
            on_session: called when a session begins or ends, for announcements.
            now_s: monotonic time.
            jitter: number in [0, 1) for waits.
        """
        self._settings = settings
        self._is_enabled = settings.is_enabled
        self._router = PushRouter(settings, leader, random=jitter)
        self._pushers = [
            Pusher(index, self._router, open_channel, now_s=now_s, changed=self._settle)
            for index in range(settings.max_pushers)
        ]
        self._callbacks = SessionCallbacks(self._router, now_s)
        self._on_leadership_doubted = on_leadership_doubted
        self._on_session = on_session
        self._now_s = now_s
        self._state = _ManagerState.NEW
        self._state_lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._runner: asyncio.Task[None] | None = None
        self._is_settling = False
        self._soft_mark_line_at_s = -_SOFT_MARK_LINE_S

    async def __aenter__(self) -> Self:
        """Start."""
        self.startup()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Shut down, and wait for the end."""
        self.shutdown()
        await self.wait_closed()

    @property
    def is_active(self) -> bool:
        """Return True between ``startup`` and ``shutdown``."""
        return self._state is _ManagerState.ACTIVE

    @property
    def has_room_for_sessions(self) -> bool:
        """Return True if the buffer is empty enough for a transition from pull to push."""
        return (
            self._router.budget.used_bytes < self._settings.transition_memory_fraction * self._settings.buffer_max_bytes
        )

    def startup(self) -> bool:
        """Begin to send what was queued; False, without effect, unless the manager is new."""
        if not self._change(_ManagerState.NEW, _ManagerState.ACTIVE):
            return False
        self._on_loop(self._start)
        return True

    def shutdown(self) -> bool:
        """End all sessions with ``BROKER_SHUTDOWN``; False, without effect, unless the manager is active.

        Connected peers are told once. ``wait_closed`` returns after that.
        """
        if not self._change(_ManagerState.ACTIVE, _ManagerState.STOPPED):
            return False
        self._on_loop(self._stop)
        return True

    async def wait_closed(self) -> None:
        """Wait until the manager is shut down and has no task, connection or record left; raise what a bug raised."""
        if self._runner is not None:
            await asyncio.shield(self._runner)

    def is_push_replication_supported(self, *, is_internal_topic: bool, is_cluster_link_destination: bool) -> bool:
        """Return True if partitions of such a topic may be pushed."""
        if is_cluster_link_destination or (is_internal_topic and not self._settings.sends_internal_topics):
            return False
        return self._is_enabled

    def enable(self, is_enabled: bool) -> None:
        """Allow sessions to begin, or forbid it from now on; sessions that there are go on."""
        self._is_enabled = is_enabled

    def record_follower_not_caught_up(self, partition: TopicIdPartition, replica_id: int) -> None:
        """Count a replica that lacks nothing for a transition but the newest records."""
        self._router.counters.awaiting_transition += 1

    def start_push(self, session: PushSession) -> None:
        """Begin a session. Its first append event has to be the file range from the follower's log end on.

        A session of the same partition replica that is older ends with ``SUPERSEDED``. The same one again, or an older
        one, is ignored.

        Raises:
            PushManagerStoppedError: after ``shutdown``.
        """
        self._require_not_stopped()
        counters = self._router.counters
        starts = counters.session_starts
        self._router.start_push(session, self._now_s())
        if counters.session_starts > starts:
            self._callbacks.guard(partial(self._on_session, session.identity, None))
        self._settle()

    def on_leader_append(
        self,
        partition: TopicIdPartition,
        replica_ids: Iterable[int],
        append_offset: int,
        records: MemoryRecords | FileRecords,
        *,
        last_epoch: int = -1,
    ) -> None:
        """Queue an append for those of the replicas that have a session. Memory is never waited for.

        Args:
            partition: of the append.
            replica_ids: replicas to send it to.
            append_offset: log end offset of the leader before the append.
            records: whole batches of magic 2. A file range is for one replica, as the first event of its session, and
                belongs to the manager from now on; it may be empty.
            last_epoch: leader epoch of the record before ``append_offset``, -1 for none; needed for the first event of
                a session.

        Raises:
            PushManagerStoppedError: after ``shutdown``.
        """
        self._require_not_stopped()
        self._router.on_leader_append(
            partition, replica_ids, append_offset, records, last_epoch=last_epoch, now_s=self._now_s()
        )
        self._settle()

    def on_high_watermark_update(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], high_watermark: int
    ) -> None:
        """Queue a high watermark for the replicas; a lower one than before is ignored.

        Raises:
            PushManagerStoppedError: after ``shutdown``.
        """
        self._require_not_stopped()
        self._router.on_high_watermark_update(partition, replica_ids, high_watermark, self._now_s())
        self._settle()

    def on_log_start_offset_update(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], log_start_offset: int
    ) -> None:
        """Queue a log start offset for the replicas; a lower one than before is ignored.

        Raises:
            PushManagerStoppedError: after ``shutdown``.
        """
        self._require_not_stopped()
        self._router.on_log_start_offset_update(partition, replica_ids, log_start_offset, self._now_s())
        self._settle()

    def stop_push(self, partition: TopicIdPartition, replica_ids: Iterable[int], reason: PushSessionEndReason) -> None:
        """End the sessions of the replicas at once; their followers are told if ``reason`` says so.

        Raises:
            PushManagerStoppedError: after ``shutdown``.
        """
        self._require_not_stopped()
        self._router.stop_push(partition, replica_ids, reason, self._now_s())
        self._settle()

    def statistics(self) -> PushStatistics:
        """Return the present state and the counters."""
        return push_statistics(self._router, self._now_s())

    def _change(self, before: _ManagerState, after: _ManagerState) -> bool:
        with self._state_lock:
            if self._state is not before:
                return False
            self._state = after
            return True

    def _require_not_stopped(self) -> None:
        if self._state is _ManagerState.STOPPED:
            raise PushManagerStoppedError("the push manager is shut down")

    def _on_loop(self, work: Callable[[], None]) -> None:
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            work()
        else:
            self._loop.call_soon_threadsafe(work)

    def _start(self) -> None:
        self._runner = self._loop.create_task(self._run(), name="push manager")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for index, pusher in enumerate(self._pushers):
                tasks.create_task(pusher.run(), name=f"pusher {index}")

    def _stop(self) -> None:
        self._router.shut_down(self._now_s())
        self._settle()
        for pusher in self._pushers:
            pusher.stop()

    def _settle(self) -> None:
        """Carry out the actions of the router. A callback that calls the manager adds to them."""
        if self._is_settling:
            return
        self._is_settling = True
        try:
            while self._router.has_actions:
                actions = self._router.take_actions()
                # First what peers wait for: a callback may wake a producer whose appends take longer than a request.
                for action in sorted(actions, key=lambda each: not isinstance(each, SendAppend)):
                    self._perform(action)
        finally:
            self._is_settling = False
        self._warn_of_memory()
        for pusher in self._pushers:
            pusher.arrange()

    def _perform(self, action: PushAction) -> None:
        match action:
            case SendAppend():
                self._pushers[action.pusher].send(action)
            case RecordsAcknowledged():
                self._callbacks.acknowledge(action)
            case PushSessionEnded():
                self._callbacks.end(action)
                self._callbacks.guard(partial(self._on_session, action.session.identity, action.reason))
            case OpenLink():
                self._pushers[action.pusher].open_link(action)
            case CloseLink():
                self._pushers[action.pusher].close_link(action)
            case ReadChunk():
                self._pushers[action.pusher].read_chunk(action)
            case ReleaseFile():
                self._callbacks.guard(action.file.close)
            case LeadershipDoubted():
                self._callbacks.guard(partial(self._on_leadership_doubted, action.partition, action.leader_epoch))

    def _warn_of_memory(self) -> None:
        budget = self._router.budget
        if budget.is_above_soft_mark:
            now_s = self._now_s()
            if now_s - self._soft_mark_line_at_s >= _SOFT_MARK_LINE_S:
                self._soft_mark_line_at_s = now_s
                log.warning("push_memory_above_soft_mark", used_bytes=budget.used_bytes, cap_bytes=budget.cap_bytes)
