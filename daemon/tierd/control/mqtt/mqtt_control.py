"""MqttControl: the running control plane. It connects, reconnects, publishes, listens and answers.

::

                 ┌──────────── backoff ◄──────────────┐
    connect ──► subscribe ──► echo ──► presence ──► publish, listen ──► connection lost
                          │                             └── identity taken: the daemon ends
            retained state arrives before the echo

No part of the daemon waits for the MQTT broker (push-replication 4.1): announcements go into a bounded queue.
"""

import asyncio
import contextlib
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from pydantic import JsonValue

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.config import MqttSettings
from tierd.control.mqtt.control_messages import CORRELATION_BYTES, PeerReply, encode
from tierd.control.mqtt.control_state import ControlIdentity, ControlState, ReceivedReply, ReceivedRequest
from tierd.control.mqtt.control_view import ControlViewCounts
from tierd.control.mqtt.mqtt_connection import MAX_IN_FLIGHT, MqttConnection, identity_taken, open_connection
from tierd.control.mqtt.peer_requests import PeerAnswers, PeerHandler, PendingRequests
from tierd.control.mqtt.publish_queue import OutgoingMessage, PublishCounts
from tierd.errors import (
    ControlPlaneError,
    ControlPlaneUnreachableError,
    IdentityTakenError,
    TierError,
    TierErrorCode,
)
from tierd.tasks import end_tasks

log = structlog.get_logger()

BACKOFF: Final = Backoff(base_s=0.5, cap_s=30.0)
_FAREWELL_TIMEOUT_S: Final = 2.0
_STEADY_S: Final = 30.0  # a connection that lasted so long begins a new series of failures


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttStatistics:
    """State of the control plane.

    Attributes:
        problem, remedy: why there is no connection; empty while there is one.
        connects: connections since start; each after the first one is a reconnect.
        damaged: messages that could not be used.
        overflowed: messages that came faster than they were read.
        denied: messages that the broker did not take for lack of a right.
    """

    address: str
    is_connected: bool
    problem: str
    remedy: str
    connects: int
    damaged: int
    overflowed: int
    denied: int
    dropped_replies: int
    refused_requests: int
    view: ControlViewCounts
    queue: PublishCounts

    @property
    def reconnects(self) -> int:
        """Return the number of connections after the first one."""
        return max(0, self.connects - 1)

    @property
    def publish_dropped(self) -> int:
        """Return the number of messages that were not sent: too large, or the queue was full."""
        return self.queue.too_large + self.queue.queue_full


class MqttControl:
    """The control plane of one daemon, over ``ControlState``."""

    def __init__(
        self,
        settings: MqttSettings,
        identity: ControlIdentity,
        *,
        clock: Clock,
        random: Callable[[], float],
        backoff: Backoff = BACKOFF,
    ) -> None:
        """Connect to nothing yet; announcements are taken from now on, and sent once there is a connection."""
        self.state = ControlState(identity, clock=clock, rate_per_s=settings.publish_rate)
        self._settings = settings
        self._clock = clock
        self._random = random
        self._backoff = backoff
        self._pending = PendingRequests()
        self._answers = PeerAnswers(self.state, {}, timeout_s=settings.request_timeout_s, on_reply=self.wake)
        self._wake = asyncio.Event()
        self._synced = asyncio.Event()
        self._connection: MqttConnection | None = None
        self._problem: ControlPlaneError | None = None
        self._connects = 0
        self._failures = 0
        self._overflowed = self._denied = 0  # of connections that have ended

    @property
    def is_connected(self) -> bool:
        """Return True while there is a connection to the MQTT broker."""
        return self._connection is not None

    @property
    def has_heard(self) -> bool:
        """Return True once the retained state of the MQTT broker was read completely."""
        return self._synced.is_set()

    def wake(self) -> None:
        """Have the queue looked at: ``state`` has new announcements."""
        self._wake.set()

    async def wait_until_heard(self, timeout_s: float) -> bool:
        """Wait until the retained state was read once; return False if that takes longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._synced.wait()
        return self.has_heard

    async def run(self, handlers: Mapping[str, PeerHandler]) -> None:
        """Stay connected until cancelled, and answer the requests that ``handlers`` knows, by verb.

        Raises:
            IdentityTakenError: another process connected with this daemon's identity.
        """
        allowed: frozenset[str] = frozenset(self._settings.requests)
        self._answers = PeerAnswers(
            self.state,
            {verb: handler for verb, handler in handlers.items() if verb in allowed},
            timeout_s=self._settings.request_timeout_s,
            on_reply=self.wake,
        )
        while True:
            began_s = self._clock.monotonic_s()
            try:
                await self._connected()
            except IdentityTakenError:
                log.error("control_identity_taken", client_id=self.state.identity.client_id)  # noqa: TRY400 - no bug
                raise
            except ControlPlaneError as error:
                self._note_failure(error, lasted_s=self._clock.monotonic_s() - began_s)
            await self._clock.sleep(self._backoff.delay_s(max(1, self._failures), random=self._random))

    async def ask(
        self, node_id: int, verb: str, *, partitions: Sequence[str] = (), options: dict[str, JsonValue] | None = None
    ) -> JsonValue:
        """Ask the daemon of a node and return its answer.

        Raises:
            ControlPlaneUnreachableError: there is no connection, or no answer in time.
            ControlPlaneError: the request is too large, or too many requests wait.
            TierError: the peer refused; message and remedy are its own.
        """
        timeout_s = self._settings.request_timeout_s
        if not self.is_connected:
            raise self._problem or ControlPlaneUnreachableError(
                "there is no connection to the MQTT broker", remedy="look at tierd status"
            )
        correlation = secrets.token_bytes(CORRELATION_BYTES)
        future = self._pending.register(correlation, node_id)
        try:
            if not self.state.request(
                node_id,
                verb,
                correlation=correlation,
                partitions=partitions,
                options=options or {},
                expiry_s=math.ceil(timeout_s),
            ):
                raise ControlPlaneError(
                    f"the request {verb} to node {node_id} was not sent: it is larger than 4 KiB, or too many wait",
                    remedy="name fewer partitions, or try again later",
                )
            self.wake()
            async with asyncio.timeout(timeout_s):
                return _answer_of(await future)
        except TimeoutError as error:
            raise ControlPlaneUnreachableError(
                f"node {node_id} did not answer {verb} within {timeout_s:g} s",
                remedy="look at tierd peers: the daemon may be offline, or may not answer this request",
            ) from error
        finally:
            self._pending.forget(correlation)

    def statistics(self) -> MqttStatistics:
        """Return the present state."""
        connection, problem = self._connection, self._problem
        return MqttStatistics(
            address=self._settings.address or "",
            is_connected=connection is not None,
            problem=str(problem) if problem is not None else "",
            remedy=problem.remedy if problem is not None else "",
            connects=self._connects,
            damaged=self.state.damaged,
            overflowed=self._overflowed + (connection.dropped if connection is not None else 0),
            denied=self._denied + (connection.denied if connection is not None else 0),
            dropped_replies=self._pending.dropped_replies,
            refused_requests=self._answers.refused,
            view=self.state.view.counts(),
            queue=self.state.queue.counts(),
        )

    # ---------------------------------------------------------------- one connection

    async def _connected(self) -> None:
        """Connect, and work until the connection is lost.

        Raises:
            ControlPlaneError: the connection cannot be made, or was lost.
        """
        will = self.state.begin_connection()
        async with open_connection(self._settings, self.state.identity.client_id, will) as connection:
            work = [
                asyncio.create_task(self._listen(connection), name="control listen"),
                asyncio.create_task(self._speak(connection), name="control publish"),
            ]
            try:
                await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._connection = None
                self._overflowed += connection.dropped
                self._denied += connection.denied
                await end_tasks(work)
                if _failure_of(work) is None:
                    await self._say_farewell(connection)
            failure = _failure_of(work)
            if failure is not None:
                raise failure

    async def _listen(self, connection: MqttConnection) -> None:
        async with self._answers.answering() as answers:
            async for message in connection.messages():
                received = self.state.receive(
                    message.topic,
                    message.payload,
                    response_topic=message.response_topic,
                    correlation=message.correlation,
                )
                if self.state.is_identity_taken:
                    raise identity_taken(self._settings.address or "")
                match received:
                    case ReceivedReply(reply, correlation):
                        self._pending.reply(correlation, reply)
                    case ReceivedRequest():
                        answers(received)
                self.wake()

    async def _speak(self, connection: MqttConnection) -> None:
        subscriptions = self.state.topics.subscriptions(self.state.identity.node_id, self.state.identity.instance)
        await connection.subscribe(subscriptions)
        await self._hear_echo(connection)
        self.state.on_connected()
        self._note_connected(connection)
        slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        async with asyncio.TaskGroup() as group:
            while True:
                message = await self._next_message()
                await slots.acquire()
                group.create_task(_publish(connection, message, slots), name="control message")

    async def _hear_echo(self, connection: MqttConnection) -> None:
        """Wait for a message to itself: the broker sends the retained state that it has before that.

        A leader that is announced elsewhere with a higher epoch is known then, before an old one is announced again.
        """
        correlation = secrets.token_bytes(CORRELATION_BYTES)
        echo = self._pending.register(correlation, self.state.identity.node_id)
        try:
            await connection.publish(self._echo(correlation))
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await echo
        except TimeoutError as error:
            raise ControlPlaneUnreachableError(
                f"MQTT broker {self._settings.address}: no echo of a message to this daemon",
                remedy="let the access list of the broker allow its own node/ID/rpc-reply/# (docs/control-plane.md)",
            ) from error
        finally:
            self._pending.forget(correlation)

    def _echo(self, correlation: bytes) -> OutgoingMessage:
        return OutgoingMessage(
            topic=self.state.reply_topic,
            payload=encode(self.state.echo()),
            expiry_s=math.ceil(self._settings.connect_timeout_s),
            correlation=correlation,
        )

    async def _next_message(self) -> OutgoingMessage:
        """Wait for the message that is to be sent next."""
        while True:
            self._wake.clear()
            found = self.state.queue.next(self._clock.monotonic_s())
            if isinstance(found, OutgoingMessage):
                return found
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(found):  # seconds, or None while the queue is empty
                    await self._wake.wait()

    async def _say_farewell(self, connection: MqttConnection) -> None:
        """Publish that this daemon is offline; without that the retained presence would stay until the next start."""
        with contextlib.suppress(ControlPlaneError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_TIMEOUT_S):
                await connection.publish(self.state.farewell())

    # ---------------------------------------------------------------- notes

    def _note_connected(self, connection: MqttConnection) -> None:
        self._connection = connection
        self._connects += 1
        self._synced.set()
        if self._problem is not None:
            log.info("control_plane_recovered", broker=self._settings.address, failures=self._failures)
        else:
            log.info("control_plane_connected", broker=self._settings.address)
        self._problem = None

    def _note_failure(self, error: ControlPlaneError, *, lasted_s: float) -> None:
        self._failures = 1 if lasted_s >= _STEADY_S else self._failures + 1
        if self._problem is None or str(self._problem) != str(error):  # once per change, not at every retry
            log.warning("control_plane_unreachable", problem=str(error), remedy=error.remedy)
        self._problem = error


async def _publish(connection: MqttConnection, message: OutgoingMessage, slots: asyncio.Semaphore) -> None:
    try:
        await connection.publish(message)
    finally:
        slots.release()


def _failure_of(tasks: Sequence[asyncio.Task[None]]) -> BaseException | None:
    """Return the failure of the connection; a taken identity is the one that counts.

    Raises:
        BaseExceptionGroup: a task ended with another error, which is a bug.
    """
    found = [failure for task in tasks if not task.cancelled() for failure in _leaves(task.exception())]
    other = [failure for failure in found if not isinstance(failure, ControlPlaneError)]
    if other:
        raise BaseExceptionGroup("control plane", other)
    found.sort(key=lambda failure: not isinstance(failure, IdentityTakenError))
    return found[0] if found else None


def _leaves(failure: BaseException | None) -> list[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        return [leaf for each in failure.exceptions for leaf in _leaves(each)]
    return [failure] if failure is not None else []


def _answer_of(reply: PeerReply) -> JsonValue:
    if not reply.ok:
        raise TierError(f"node {reply.node}: {reply.error}", remedy=reply.remedy, code=TierErrorCode.CONTROL)
    return reply.answer
