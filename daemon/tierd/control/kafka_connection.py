"""KafkaConnection: one framed connection to one broker, with TLS, login and a deadline on every wait.

::

    connect ─► TLS ─► ApiVersions ─► SaslHandshake, SaslAuthenticate ─► ready ─► call ─► call ... ─► closed
       └────────┴──────────┴──────────────┴── any failure, deadline or cancellation ─────┴───────────►
"""

import asyncio
import contextlib
import secrets
import ssl
import struct
from collections.abc import Coroutine, Iterator
from typing import Final, Self, TypeVar

from pydantic import SecretStr

from tierd import __version__
from tierd.config import KafkaConnectionSettings
from tierd.control.cluster_metadata import BrokerAddress
from tierd.control.kafka_framing import Request
from tierd.control.kafka_messages import (
    SaslStep,
    api_versions,
    missing_versions,
    sasl_authenticate,
    sasl_handshake,
)
from tierd.control.kafka_tls import certificate_refused, handshake_error, tls_context
from tierd.control.sasl import ScramClient, is_scram, plain_message
from tierd.errors import KafkaError, KafkaUnreachableError, TierErrorCode
from tierd.masking import Masking
from tierd.streams import write

A = TypeVar("A")

MAX_FRAME_BYTES: Final = 32 * 1024 * 1024
"""Longest answer that is read: half a million partitions."""
_TLS_RECORD: Final = (0x15, 0x16)  # alert, handshake: the first byte of a TLS record


class KafkaConnection:
    """A ready connection. After a failed or cancelled exchange the connection is closed.

    One ``call`` at a time, or one task that uses ``send`` and one that uses ``receive``.
    """

    def __init__(
        self,
        address: BrokerAddress,
        settings: KafkaConnectionSettings,
        streams: "tuple[asyncio.StreamReader, asyncio.StreamWriter]",
    ) -> None:
        """Take the streams of a connection; call ``open`` instead."""
        self.address = address
        self._settings = settings
        self._reader, self._writer = streams
        self._correlation_id = 0
        self._answered = False
        self._logged_in = not settings.security_protocol.startswith("sasl")
        self._login_ends_s = float("inf")

    @classmethod
    async def open(cls, address: BrokerAddress, settings: KafkaConnectionSettings) -> Self:
        """Connect, agree on versions and log in, within ``connect_timeout_s``; a cancellation leaves nothing open.

        Raises:
            KafkaUnreachableError: no connection, or no answer in time.
            KafkaError: a certificate, or TLS on one side only; a refused login; not a broker, or too old a one.
        """
        context = await asyncio.to_thread(tls_context, settings)
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                connection = cls(address, settings, await _connect(address, context))
                try:
                    await connection.prepare()
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError as error:
            raise KafkaUnreachableError(
                f"{address}: no answer within connect_timeout, {settings.connect_timeout_s:g} s",
                remedy="check that the broker is up and that no firewall drops the connection",
            ) from error
        return connection

    async def call(self, request: Request[A]) -> A:
        """Send ``request`` and return its answer; any failure closes the connection, a cancellation too.

        Raises:
            KafkaUnreachableError: the connection broke, or no answer within ``request_timeout_s``.
            KafkaError: the answer cannot be understood.
        """
        return await self._within(self._settings.request_timeout_s, request.name, self._exchange(request))

    async def send(self, request: Request[A]) -> int:
        """Send ``request`` without a wait for its answer; return its number for ``receive``.

        Requests may be sent while answers are awaited by another task. A broker answers in the order of the requests.
        A failure or a cancellation closes the connection.

        Raises:
            KafkaUnreachableError: the connection broke, or took no bytes within ``request_timeout_s``.
        """
        return await self._within(self._settings.request_timeout_s, request.name, self._send(request))

    async def receive(self, request: Request[A], number: int, *, timeout_s: float) -> A:
        """Return the next answer, that of the request which ``send`` gave ``number``.

        A failure or a cancellation closes the connection.

        Raises:
            KafkaUnreachableError: the connection broke, or no answer within ``timeout_s``.
            KafkaError: the answer cannot be understood.
        """
        return await self._within(timeout_s, request.name, self._receive(request, number))

    @property
    def is_open(self) -> bool:
        """Return True if a call can be tried; a login that is about to end counts as closed (KIP-368)."""
        ended = asyncio.get_running_loop().time() >= self._login_ends_s
        return not (ended or self._writer.is_closing() or self._reader.at_eof())

    @property
    def tls_version(self) -> str | None:
        """Return the version of TLS that was agreed on; None for a connection in the clear."""
        tls = self._writer.get_extra_info("ssl_object")
        return tls.version() if isinstance(tls, ssl.SSLObject) else None

    def close(self) -> None:
        """Drop the connection at once; nothing that was sent needs an answer."""
        self._writer.transport.abort()

    # ---------------------------------------------------------------- one exchange

    async def _within(self, timeout_s: float, request_name: str, exchange: Coroutine[None, None, A]) -> A:
        try:
            async with asyncio.timeout(timeout_s):
                return await exchange
        except TimeoutError as error:
            self.close()
            raise KafkaUnreachableError(
                f"{self.address}: no answer to {request_name} within {timeout_s:g} s",
                remedy="look at that broker: it may hang, or be too busy; other brokers are asked meanwhile",
            ) from error
        except BaseException:
            self.close()
            raise

    async def _exchange(self, request: Request[A]) -> A:
        return await self._receive(request, await self._send(request))

    async def _send(self, request: Request[A]) -> int:
        """Write a request; return its correlation id."""
        self._correlation_id = self._correlation_id % (2**31 - 1) + 1
        sent = self._correlation_id
        with self._explained(request.name):
            write(self._writer, request.frame(sent))
            await self._writer.drain()
        return sent

    async def _receive(self, request: Request[A], correlation_id: int) -> A:
        """Read the next answer, which must be that of ``request``."""
        with self._explained(request.name):
            content = await self._read_frame()
        if int.from_bytes(content[:4], "big") != correlation_id:
            raise _not_kafka(self.address, f"it answered {request.name} with another request's number")
        self._answered = True
        return request.answer(content[4:])

    @contextlib.contextmanager
    def _explained(self, request_name: str) -> Iterator[None]:
        """Translate the errors of the streams."""
        try:
            yield
        except ssl.SSLError as error:
            raise certificate_refused(str(self.address), error) from error
        except asyncio.IncompleteReadError as error:
            raise self._ended(request_name) from error
        except OSError as error:
            raise KafkaUnreachableError(
                f"{self.address}: connection lost at {request_name}: {error}",
                remedy="look at that broker's log; other brokers are asked meanwhile",
            ) from error

    async def _read_frame(self) -> bytes:
        head = await self._reader.readexactly(4)
        (size,) = struct.unpack(">i", head)
        if not 4 <= size <= MAX_FRAME_BYTES:
            raise self._strange_answer(head)
        return await self._reader.readexactly(size)

    def _strange_answer(self, head: bytes) -> KafkaError:
        if head[0] in _TLS_RECORD and head[1] == 3 and not self._answered:
            return KafkaError(
                f"{self.address}: the listener speaks TLS, and we do not",
                remedy="set security_protocol to ssl or sasl_ssl, or name the port of a listener without TLS",
                code=TierErrorCode.KAFKA_TLS,
            )
        return _not_kafka(self.address, f"it answered {head!r}")

    def _ended(self, request_name: str) -> KafkaError:
        if not self._answered:
            return KafkaUnreachableError(
                f"{self.address}: the connection was closed at the first request",
                remedy="check that this is a broker's client port, and security_protocol that of its listener",
            )
        if self._settings.security_protocol in {"plaintext", "ssl"} and request_name == "Metadata":
            return KafkaUnreachableError(
                f"{self.address}: the broker closed the connection at {request_name}",
                remedy="if the listener asks for a login set security_protocol to sasl_plaintext or sasl_ssl; "
                "else look at that broker's log",
            )
        return KafkaUnreachableError(
            f"{self.address}: the broker closed the connection at {request_name}",
            remedy="look at that broker's log; other brokers are asked meanwhile",
        )

    # ---------------------------------------------------------------- the way to ready

    async def prepare(self) -> None:
        """Agree on versions and log in; ``open`` calls this."""
        offered = await self.call(api_versions(version=__version__))
        if not self._logged_in:
            await self._log_in()
        if missing := missing_versions(offered):
            raise KafkaError(
                f"{self.address}: the broker does not speak {missing}",
                remedy="upgrade the brokers to Kafka 3.1 or newer, or set leadership.source to static",
                code=TierErrorCode.KAFKA_PROTOCOL,
            )

    async def _log_in(self) -> None:
        settings = self._settings
        mechanism = settings.sasl_mechanism
        answer = await self.call(sasl_handshake(mechanism))
        if not answer.accepted:
            raise self._mechanism_refused(answer.error, answer.enabled)
        username, password = settings.sasl_username or "", _secret(settings.sasl_password)
        if is_scram(mechanism):
            step = await self._scram(ScramClient(mechanism, username, password, nonce=secrets.token_urlsafe(24)))
        else:
            step = await self._sasl_step(plain_message(username, password))
        if step.lifetime_s > 0:
            # A broker closes the connection at the first request after that; tierd closes it before.
            self._login_ends_s = asyncio.get_running_loop().time() + 0.8 * step.lifetime_s
        self._logged_in = True

    async def _scram(self, client: ScramClient) -> SaslStep:
        challenge = await self._sasl_step(client.first())
        final = await asyncio.to_thread(client.final, challenge.content)
        step = await self._sasl_step(final)
        client.verify(step.content)
        return step

    async def _sasl_step(self, content: bytes) -> SaslStep:
        step = await self.call(sasl_authenticate(content))
        if step.error:
            reason = Masking(_secret(self._settings.sasl_password)).text(step.message or step.error)
            raise KafkaError(
                f"{self.address}: login of {self._settings.sasl_username} refused: {reason}",
                remedy="compare sasl_mechanism, sasl_username and sasl_password with what the brokers have",
                code=TierErrorCode.KAFKA_AUTHENTICATION,
            )
        return step

    def _mechanism_refused(self, error: str, enabled: tuple[str, ...]) -> KafkaError:
        if not enabled:
            return KafkaError(
                f"{self.address}: the listener does not ask for a login ({error})",
                remedy="name the port of a SASL listener, or set security_protocol to plaintext or ssl",
                code=TierErrorCode.KAFKA_AUTHENTICATION,
            )
        return KafkaError(
            f"{self.address}: {self._settings.sasl_mechanism} is not enabled; enabled: {', '.join(enabled)}",
            remedy="set sasl_mechanism to one of these, or add it to sasl.enabled.mechanisms of the brokers",
            code=TierErrorCode.KAFKA_AUTHENTICATION,
        )


async def _connect(
    address: BrokerAddress, context: ssl.SSLContext | None
) -> "tuple[asyncio.StreamReader, asyncio.StreamWriter]":
    try:
        return await asyncio.open_connection(address.host, address.port, ssl=context)
    except (ssl.SSLError, ConnectionResetError, asyncio.IncompleteReadError) as error:
        if context is None:
            raise _refused(address, error) from error
        raise handshake_error(str(address), error) from error
    except (OSError, ValueError, OverflowError) as error:  # ValueError: a name or port that cannot be one
        raise _refused(address, error) from error


def _refused(address: BrokerAddress, error: Exception) -> KafkaUnreachableError:
    return KafkaUnreachableError(
        f"{address}: cannot connect: {error}", remedy="check bootstrap_servers, and that the broker is up"
    )


def _not_kafka(address: BrokerAddress, problem: str) -> KafkaError:
    return KafkaError(
        f"{address}: this is not a Kafka broker: {problem}",
        remedy="let bootstrap_servers name the client ports of the brokers",
        code=TierErrorCode.KAFKA_PROTOCOL,
    )


def _secret(value: SecretStr | None) -> str:
    return value.get_secret_value() if value is not None else ""
