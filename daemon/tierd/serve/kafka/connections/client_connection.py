"""ClientConnection: one client, from its first byte to its last: one request after the other, answered in order.

::

    open (TLS) ──────► waiting ──────► reading ────────► handling ──► sending ───────► muted (KIP-219) ──► waiting
    login_timeout_s    idle_timeout_s  request_timeout_s              send_timeout_s
                                                                      for each part

Each deadline is one of the gate, which cuts the connection; until the client is known, that of its login is above all.
A client that goes away ends every state, also a handler that waits.
"""

from typing import Final

import structlog

from tierd.errors import DamagedMessageError, RefusedError, TierError
from tierd.ports import Connection
from tierd.serve.kafka.access import certificate_principal
from tierd.serve.kafka.connections.channel import Channel
from tierd.serve.kafka.connections.connection_errors import ClientFaultError, PeerGoneError
from tierd.serve.kafka.connections.connection_login import ConnectionLogin
from tierd.serve.kafka.connections.connection_scope import ConnectionScope
from tierd.serve.kafka.connections.request_exchange import ClientAddress, RequestExchange
from tierd.serve.kafka.connections.socket_intake import cancelled_when_gone
from tierd.serve.kafka.endpoint_limits import LOGIN_FRAME_BYTES
from tierd.serve.kafka.login import LoginRefusedError
from tierd.serve.kafka.memory_budget import AnswerMemory
from tierd.serve.kafka.request_context import ANONYMOUS
from tierd.serve.kafka.wire.request_frame import MIN_FRAME_BYTES

_SIZE_BYTES: Final = 4
_UNCOUNTED_FRAME_BYTES: Final = 16 << 10  # frames so small take no memory of the budget while they are read
_OTHER_PROTOCOLS: Final = {b"\x16\x03": "TLS", b"GE": "HTTP", b"PO": "HTTP", b"HE": "HTTP", b"SS": "SSH"}

log = structlog.get_logger()


class ClientConnection:
    """One connection, which ``serve`` owns to its end."""

    def __init__(self, channel: Channel, place: Connection, scope: ConnectionScope, address: ClientAddress) -> None:
        self._channel = channel
        self._place = place
        self._scope = scope
        self._services = scope.services
        self._address = address
        self._known_by_s = scope.services.clock.monotonic_s() + scope.services.limits.login_timeout_s
        self._login: ConnectionLogin | None = None
        self._counted_as: str | None = None

    async def serve(self) -> None:
        """Answer requests until the client goes away, the endpoint stops, or a fault ends the connection."""
        self._place.attach(self._channel)
        try:
            await self._converse()
        except PeerGoneError:
            pass
        except LoginRefusedError:  # the logins have recorded it
            self._scope.counters.closed_by_fault += 1
        except (ClientFaultError, DamagedMessageError, RefusedError) as error:
            self._scope.counters.closed_by_fault += 1
            self._scope.faults.record(self._address.peer, str(error))
        except (TierError, OSError) as error:
            self._channel.abort()
            self._scope.faults.failed(self._address.peer, str(error))
        except Exception:  # a bug that one request meets must not end the connections of all others
            self._channel.abort()
            log.exception("request_failed", listener=self._scope.listener, peer=self._address.peer)
        finally:
            self._channel.close()
            self._services.gate.leave(self._place)
            if self._counted_as is not None:
                self._services.quotas.disconnect(self._counted_as)

    async def _converse(self) -> None:
        services = self._services
        services.gate.begin_request(self._place, timeout_s=services.limits.login_timeout_s)
        await self._channel.open()
        self._login = ConnectionLogin(
            self._scope.logins, principal=self._principal(), peer=self._address.peer, clock=services.clock
        )
        exchange = RequestExchange(self._channel, self._place, self._scope, self._login, self._address)
        while not services.closing.is_set():
            self._count_principal(self._login.principal)
            memory = services.requests.share(self._place.peer)
            try:
                end = await exchange.answer(await self._frame(self._login, memory), memory)
            finally:
                memory.settle(0)
            if end.is_last:
                self._scope.counters.closed_by_fault += 1
                return
            if end.mute_s > 0 and not services.closing.is_set():
                await self._stay_mute(end.mute_s)

    def _principal(self) -> str:
        certificate = self._channel.certificate()
        if certificate is None:
            return ANONYMOUS
        try:
            return certificate_principal(certificate)
        except ValueError as error:
            raise ClientFaultError(str(error)) from error

    def _count_principal(self, principal: str | None) -> None:
        """Count the connection for its client as soon as that is known."""
        if principal is None or self._counted_as is not None:
            return
        if not self._services.quotas.connect(principal, self._services.clock.monotonic_s()):
            raise ClientFaultError(f"{principal} has as many connections as it may have")
        self._counted_as = principal

    async def _frame(self, login: ConnectionLogin, memory: AnswerMemory) -> bytes:
        """Read the next frame, and return it without its size."""
        intake, limits = self._channel.intake, self._services.limits
        if not len(intake):
            self._wait(login, limits.idle_timeout_s)
            await intake.fill(1)
        self._wait(login, limits.request_timeout_s)
        await intake.fill(_SIZE_BYTES)
        size_bytes = self._checked_size(login, intake.peek(_SIZE_BYTES))
        if size_bytes > _UNCOUNTED_FRAME_BYTES:
            with cancelled_when_gone(intake):
                await memory.reserve(size_bytes)
            memory.await_client(self._services.clock.monotonic_s(), self._cut_slow)
        await intake.fill(_SIZE_BYTES + size_bytes)
        memory.client_came()
        return intake.take(size_bytes, skip_bytes=_SIZE_BYTES)

    def _cut_slow(self) -> None:
        self._scope.faults.record(self._address.peer, "the client sent a request slowly while others waited for memory")
        self._channel.abort()

    def _wait(self, login: ConnectionLogin, timeout_s: float) -> None:
        if login.principal is None:
            timeout_s = max(0.0, self._known_by_s - self._services.clock.monotonic_s())
        self._services.gate.begin_request(self._place, timeout_s=timeout_s)

    def _checked_size(self, login: ConnectionLogin, sent: bytes) -> int:
        size_bytes = int.from_bytes(sent, "big", signed=True)
        is_known = login.principal is not None
        most = self._services.limits.request_bytes if is_known else LOGIN_FRAME_BYTES
        least = 0 if login.takes_raw_tokens else MIN_FRAME_BYTES
        if least <= size_bytes <= most:
            return size_bytes
        if protocol := _OTHER_PROTOCOLS.get(sent[:2]):
            raise ClientFaultError(f"the client speaks {protocol}, and this listener does not")
        before = "" if is_known else " before its login"
        raise ClientFaultError(f"a request of {size_bytes} bytes{before}: {least} to {most} are allowed")

    async def _stay_mute(self, mute_s: float) -> None:
        self._services.gate.begin_request(self._place, timeout_s=mute_s + self._services.limits.idle_timeout_s)
        with cancelled_when_gone(self._channel.intake):
            await self._services.clock.sleep(mute_s)
