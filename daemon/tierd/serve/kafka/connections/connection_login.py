"""ConnectionLogin: the principal of one connection, from its first request to its next login.

::

    no logins offered ─────────────────────────────────────────► known
    unknown ── SaslHandshake ──► tokens ── SaslAuthenticate ───► known ── SaslHandshake ──► tokens, known (KIP-368)
                                    └─ bytes without a head ───► known
                                       after version 0 of SaslHandshake

While the principal is unknown, a client may ask for ApiVersions only. A failed step is answered and ends the
connection. A connection that is known can only be renewed: by the same mechanism, and as the same principal.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.clock import Clock
from tierd.serve.kafka.login import Login, LoginMethods, LoginRefusedError
from tierd.serve.kafka.wire.api_table import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tierd.serve.kafka.wire.request_frame import RequestHead

_FIRST_FRAMED_HANDSHAKE: Final = 1  # tokens follow in SaslAuthenticate
_FIRST_WITH_LIFETIME: Final = 1  # of SaslAuthenticate


@dataclass(frozen=True, slots=True)
class LoginReply:
    """Answer to one step; the connection ends after it if ``is_last``."""

    response: ResponsePayload
    is_last: bool = False


class ConnectionLogin:
    """Login of one connection. Each call is one request of the client, one after the other."""

    def __init__(self, methods: LoginMethods | None, *, principal: str, peer: str, clock: Clock) -> None:
        """Begin unknown if ``methods`` are offered, or else known as ``principal``."""
        self._methods = methods
        self._peer = peer
        self._clock = clock
        self._login: Login | None = None
        self._mechanism = ""  # of that login
        self._known_by = ""  # mechanism of the login that made the principal known
        self._expires_at_s = float("inf")
        self.principal: str | None = principal if methods is None else None
        """The client; None while unknown."""
        self.takes_raw_tokens = False
        """The next frame is a token without a head."""

    @property
    def is_expired(self) -> bool:
        """Return True if the client has to log in again before it may ask anything else."""
        return self._clock.monotonic_s() >= self._expires_at_s

    def allows(self, head: RequestHead) -> bool:
        """Return True if this request may be answered now."""
        if head.api.api_key in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE):
            return True
        return self.principal is not None and not self.is_expired

    async def reply(self, head: RequestHead, request: RequestPayload) -> LoginReply:
        """Answer a SaslHandshake or a SaslAuthenticate."""
        if head.api.api_key == SASL_HANDSHAKE:
            return self._handshake(head, request)
        return await self._authenticate(head, request)

    async def raw_reply(self, token: bytes) -> bytes:
        """Answer a token without a head.

        Raises:
            LoginRefusedError: the login has failed; there is no answer that says so.
        """
        assert self._login is not None, "a handshake comes first"
        return (await self._step(self._login, token))[0]

    def _handshake(self, head: RequestHead, request: Any) -> LoginReply:  # noqa: ANN401 - of any version
        response: Any = head.response_type()
        if self._methods is None:
            return LoginReply(response(error_code=ErrorCode.illegal_sasl_state, mechanisms=()))
        offered = tuple(self._methods.mechanisms)
        self._login = self._methods.begin(request.mechanism, peer=self._peer)
        if self._login is None:
            return LoginReply(
                response(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=offered), is_last=True
            )
        self._mechanism = request.mechanism
        self.takes_raw_tokens = head.version < _FIRST_FRAMED_HANDSHAKE
        return LoginReply(response(error_code=ErrorCode.none, mechanisms=offered))

    async def _authenticate(self, head: RequestHead, request: Any) -> LoginReply:  # noqa: ANN401 - of any version
        if self._login is None:
            return _refusal(head, ErrorCode.illegal_sasl_state, "SaslHandshake comes before SaslAuthenticate")
        try:
            token, lifetime_ms = await self._step(self._login, request.auth_bytes)
        except LoginRefusedError as error:
            return _refusal(head, ErrorCode.sasl_authentication_failed, str(error))
        lifetime = {"session_lifetime": timedelta(milliseconds=lifetime_ms)}
        response: Any = head.response_type()
        return LoginReply(
            response(
                error_code=ErrorCode.none,
                error_message=None,
                auth_bytes=token,
                **(lifetime if head.version >= _FIRST_WITH_LIFETIME else {}),
            )
        )

    async def _step(self, login: Login, token: bytes) -> tuple[bytes, int]:
        """Take a token, and return the server's with the lifetime of the login in ms."""
        if self._known_by not in ("", self._mechanism):  # Kafka: SaslServerAuthenticator, REAUTH_BAD_MECHANISM
            raise LoginRefusedError(f"a login by {self._known_by} cannot be renewed by {self._mechanism}")
        step = await login.step(token)
        if step.principal is None:
            return step.token, 0
        if self.principal not in (None, step.principal):
            raise LoginRefusedError(f"a connection of {self.principal} cannot become one of {step.principal}")
        self.principal, self._known_by = step.principal, self._mechanism
        self._login = None
        self.takes_raw_tokens = False
        has_end = step.lifetime_ms > 0
        self._expires_at_s = self._clock.monotonic_s() + step.lifetime_ms / 1000 if has_end else float("inf")
        return step.token, step.lifetime_ms


def _refusal(head: RequestHead, code: ErrorCode, message: str) -> LoginReply:
    response: Any = head.response_type()
    return LoginReply(response(error_code=code, error_message=message, auth_bytes=b""), is_last=True)
