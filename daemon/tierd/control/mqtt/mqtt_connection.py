"""MqttConnection: one connection to the MQTT broker. The only module that imports aiomqtt and paho.

aiomqtt connects in a thread, does not reconnect, and has no bound on what it receives unless it is told so
(push-replication 4.3). A connection that failed is abandoned: its socket is closed, and its tasks have ended.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import aiomqtt
from aiomqtt.types import PahoSocket
from paho.mqtt.client import Client as PahoClient
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from tierd.config import MqttSettings, MqttTlsSettings
from tierd.control.mqtt.publish_queue import OutgoingMessage
from tierd.errors import ControlPlaneError, ControlPlaneUnreachableError, IdentityTakenError
from tierd.masking import Masking
from tierd.tasks import run_to_end

MAX_QUEUED: Final = 4_000
MAX_IN_FLIGHT: Final = 8
_MAX_PACKET_BYTES: Final = 8 * 1024  # the broker keeps larger messages from us
_SESSION_TAKEN_OVER: Final = 142
_REFUSED_LOGIN: Final = frozenset({133, 134, 135, 138, 140})
_CLOSE_TIMEOUT_S: Final = 1.0
_CHECK_INTERVAL_S: Final = 1.0
_LOGGER: Final = logging.getLogger("tierd.mqtt")
_LOGGER.setLevel(logging.CRITICAL)  # failures are raised, and what is dropped is counted
_Value = TypeVar("_Value", str, bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """A message from the MQTT broker."""

    topic: str
    payload: bytes
    response_topic: str = ""
    correlation: bytes = b""


class MqttConnection:
    """An open connection; every failure of it is a ``ControlPlaneError``."""

    def __init__(self, client: "_Client", address: str) -> None:
        self._client = client
        self._address = address

    @property
    def dropped(self) -> int:
        """Return the number of messages that came while the queue of received messages was full."""
        return self._client.received.dropped

    @property
    def denied(self) -> int:
        """Return the number of messages that the broker refused to take, for lack of a right."""
        return self._client.denied

    async def subscribe(self, filters: tuple[str, ...]) -> None:
        """Subscribe to topics with QoS 1; the broker then sends its retained state.

        Raises:
            ControlPlaneError: the broker refused, or the connection is lost.
        """
        with self._failures():
            granted = await self._client.subscribe([(each, 1) for each in filters])
            refused = [name for name, code in zip(filters, granted, strict=False) if _value(code) >= 128]
            if refused:
                raise ControlPlaneError(
                    f"the MQTT broker {self._address} refused the subscription to {', '.join(refused)}",
                    remedy="allow it in the access list of the broker (docs/control-plane.md)",
                )

    async def publish(self, message: OutgoingMessage) -> None:
        """Publish with QoS 1 and wait until the broker has the message.

        Raises:
            ControlPlaneError: the connection is lost, or the broker did not answer in time.
        """
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call] # paho
        if message.expiry_s is not None:
            properties.MessageExpiryInterval = message.expiry_s
        if message.response_topic:
            properties.ResponseTopic = message.response_topic
        if message.correlation:
            properties.CorrelationData = message.correlation
        with self._failures():
            await self._client.publish(
                message.topic, message.payload, qos=1, retain=message.retain, properties=properties
            )

    async def messages(self) -> AsyncIterator[IncomingMessage]:
        """Yield what the broker sends. One consumer.

        Raises:
            IdentityTakenError: another process connected with the same client id.
            ControlPlaneUnreachableError: the connection is lost.
        """
        with self._failures():
            async for message in self._client.messages:
                payload = message.payload
                yield IncomingMessage(
                    topic=str(message.topic),
                    payload=bytes(payload) if isinstance(payload, bytes | bytearray) else b"",
                    response_topic=_property(message.properties, "ResponseTopic", ""),
                    correlation=_property(message.properties, "CorrelationData", b""),
                )

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except aiomqtt.MqttError as error:
            raise _failure(self._client.lost_by() or error, self._address) from error


@contextlib.asynccontextmanager
async def open_connection(
    settings: MqttSettings, client_id: str, will: OutgoingMessage
) -> AsyncIterator[MqttConnection]:
    """Connect as ``client_id`` and disconnect afterwards, so that the broker does not publish ``will``.

    After a failure or a cancellation the socket is closed without a farewell; the broker then publishes the will.

    Raises:
        ControlPlaneError: the broker cannot be reached, or refuses.
    """
    address = settings.address or ""
    context = await asyncio.to_thread(_tls_context, settings.tls)
    client = _new_client(settings, client_id, will, context)
    try:
        await _connect(client, address)
        yield MqttConnection(client, address)
        with contextlib.suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)
    finally:
        await client.abandon()


async def _connect(client: "_Client", address: str) -> None:
    try:
        # The thread that connects cannot be cancelled; it has a deadline of its own.
        await run_to_end(client.__aenter__())
    except aiomqtt.MqttError as error:
        raise _failure(error, address) from None


class _TlsContext(ssl.SSLContext):
    """Context that remembers its socket, which paho forgets where the handshake fails."""

    wrapped: ssl.SSLSocket | None = None

    def wrap_socket(self, *args: Any, **named: Any) -> ssl.SSLSocket:  # noqa: ANN401 - those of ssl
        """Wrap a socket as ssl does."""
        self.wrapped = super().wrap_socket(*args, **named)
        return self.wrapped


class _CountingQueue(asyncio.Queue[aiomqtt.Message]):
    """Queue that counts what it has no room for, instead of a line in the log for each message of a flood."""

    dropped = 0

    def put_nowait(self, item: aiomqtt.Message) -> None:
        if self.full():
            self.dropped += 1
        else:
            super().put_nowait(item)


class _Client(aiomqtt.Client):
    """aiomqtt's client, which also tells what was refused, and can be abandoned."""

    received: _CountingQueue

    def __init__(self, *args: Any, tls_context: _TlsContext | None, **named: Any) -> None:  # noqa: ANN401 - aiomqtt's
        super().__init__(*args, tls_context=tls_context, queue_type=_CountingQueue, **named)
        self._context = tls_context
        assert isinstance(self._queue, _CountingQueue)
        self.received = self._queue
        self.denied = 0
        self._is_open = False
        self._closed = asyncio.Event()

    def lost_by(self) -> BaseException | None:
        """Return the failure that ended the connection; None while it is open."""
        done = self._disconnected.done() and not self._disconnected.cancelled()
        return self._disconnected.exception() if done else None

    async def abandon(self) -> None:
        """Close the socket, and wait until the tasks of the connection have ended."""
        channel = self._client.socket()
        if self._context is not None and self._context.wrapped is not None and not self._is_open:
            self._context.wrapped.close()
        if channel is not None and self._is_open:
            with contextlib.suppress(OSError):
                assert isinstance(channel, socket.socket)
                channel.shutdown(socket.SHUT_RDWR)  # paho notices the end of the stream, and closes
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._closed.wait()
        if self._misc_task is not None:
            self._misc_task.cancel()
            await asyncio.wait({self._misc_task})
        self.lost_by()  # else asyncio reports an exception that was never retrieved

    def _on_publish(
        self, client: PahoClient, userdata: object, mid: int, reason_code: ReasonCode, properties: Properties
    ) -> None:
        self.denied += _value(reason_code) >= 128
        super()._on_publish(client, userdata, mid, reason_code, properties)

    async def _misc_loop(self) -> None:
        """Keep the connection alive, and read once a second although nothing says that there is something to read.

        libuv takes a descriptor whose connection was reset out of its loop without a word to the reader; the reset
        would be noticed after twice the keepalive only.
        """
        while self._client.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            self._guarded(self._client.loop_read)

    def _on_socket_register_write(self, client: PahoClient, userdata: object, sock: PahoSocket) -> None:
        self._loop.call_soon_threadsafe(self._add_writer, sock.fileno(), client)

    def _add_writer(self, descriptor: int, client: PahoClient) -> None:
        """Write as soon as the socket takes something; one that was reset or closed meanwhile takes nothing."""
        if descriptor >= 0:
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                self._loop.add_writer(descriptor, self._guarded, client.loop_write)

    def _guarded(self, call: Callable[[], object]) -> None:
        """Read or write; a failure of it is the end of the connection."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - paho and ssl raise what they like, and all of it means the same
            if not self._disconnected.done():
                self._disconnected.set_exception(error)

    def _on_socket_open(self, client: PahoClient, userdata: object, sock: PahoSocket) -> None:
        self._is_open = True
        super()._on_socket_open(client, userdata, sock)

    def _on_socket_close(self, client: PahoClient, userdata: object, sock: PahoSocket) -> None:
        super()._on_socket_close(client, userdata, sock)
        self._loop.call_soon_threadsafe(self._closed.set)


def _new_client(settings: MqttSettings, client_id: str, will: OutgoingMessage, context: _TlsContext | None) -> _Client:
    host, _, port = (settings.address or "").rpartition(":")
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho
    properties.SessionExpiryInterval = round(settings.session_expiry_s)  # without it the session ends at once
    properties.MaximumPacketSize = _MAX_PACKET_BYTES
    will_properties = Properties(PacketTypes.WILLMESSAGE)  # type: ignore[no-untyped-call] # paho
    will_properties.WillDelayInterval = round(settings.will_delay_s)
    return _Client(
        hostname=host.strip("[]"),
        port=int(port),
        logger=_LOGGER,
        identifier=client_id,
        username=settings.username,
        password=settings.password.get_secret_value() if settings.password is not None else None,
        protocol=aiomqtt.ProtocolVersion.V5,
        will=aiomqtt.Will(will.topic, will.payload, qos=1, retain=True, properties=will_properties),
        clean_start=False,
        keepalive=max(1, round(settings.keepalive_s)),
        timeout=settings.connect_timeout_s,
        properties=properties,
        tls_context=context,
        max_queued_incoming_messages=MAX_QUEUED,
        max_inflight_messages=MAX_IN_FLIGHT,
        max_queued_outgoing_messages=4 * MAX_IN_FLIGHT,
    )


def _tls_context(settings: MqttTlsSettings) -> _TlsContext | None:
    """Read the certificates; None where the connection is not encrypted. Blocking.

    Raises:
        ControlPlaneError: a file is missing, is no PEM, or its key does not open with the password.
    """
    if settings.ca_file is None:
        return None
    context = _TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a password of ours OpenSSL would ask for one on the terminal.
    secret = settings.key_password.get_secret_value() if settings.key_password is not None else ""
    try:
        context.load_verify_locations(cafile=settings.ca_file)
        if settings.certificate_file is not None and settings.key_file is not None:
            context.load_cert_chain(settings.certificate_file, settings.key_file, password=lambda: secret)
    except (OSError, ssl.SSLError, ValueError) as error:
        failure = Masking(secret).error(error)
        raise ControlPlaneError(
            f"the certificates of control.mqtt.tls cannot be used: {failure}",
            remedy="let ca_file, certificate_file and key_file name readable PEM files that belong together",
        ) from failure
    return context


def identity_taken(address: str) -> IdentityTakenError:
    """Return the error for a second process with the identity of this daemon."""
    return IdentityTakenError(
        f"another process connected to the MQTT broker {address} with the identity of this daemon",
        remedy="give each daemon a node_id of its own, and run one daemon for each node_id (docs/control-plane.md)",
    )


def _failure(error: BaseException, address: str) -> ControlPlaneError:
    """Return the error of tierd for a failure of the connection."""
    code = _value(error.rc) if isinstance(error, aiomqtt.MqttCodeError) else -1
    text = Masking().error(error).text or type(error).__name__
    if code == _SESSION_TAKEN_OVER:
        return identity_taken(address)
    if code in _REFUSED_LOGIN:
        return ControlPlaneError(
            f"the MQTT broker {address} refused this daemon: {text}",
            remedy="compare control.mqtt.username, password and tls with the users and access list of the broker",
        )
    return ControlPlaneUnreachableError(
        f"MQTT broker {address}: {text}", remedy="check control.mqtt.address and that the MQTT broker runs"
    )


def _value(code: object) -> int:
    """Return the number of a reason code of MQTT; the number itself of an older kind."""
    return code.value if isinstance(code, ReasonCode) else code if isinstance(code, int) else -1


def _property(properties: Properties | None, name: str, default: _Value) -> _Value:
    found = getattr(properties, name, default) if properties is not None else default
    return found if isinstance(found, type(default)) else default
