"""ListenerLogins: the logins of clients, by PLAIN (RFC 4616) and SCRAM, and the wait after each that fails."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.ports import peer_of
from tierd.serve.kafka.access.scram_exchange import LONGEST_TOKEN_BYTES, ScramExchange
from tierd.serve.kafka.access.user_verifiers import PLAIN, UserVerifiers
from tierd.serve.kafka.login import Login, LoginRefusedError, LoginStep

_HASHES_AT_A_TIME: Final = 2  # threads that compute a hash for PLAIN; more would take the processors from the reads
_WINDOW_S: Final = 60.0
_FIRST_WAIT_S: Final = 0.1  # Kafka: connection.failed.authentication.delay.ms
_LONGEST_WAIT_S: Final = 5.0
_FAILURES_PER_DOUBLING: Final = 5
_MOST_PEERS: Final = 10_000

log = structlog.get_logger()


class LoginFailures:
    """Failed logins of the last minute by peer, and the wait that each of them costs. Pure."""

    def __init__(self) -> None:
        self.total = 0
        """Failures since the start."""
        self._counts: Counter[str] = Counter()
        self._since_s = float("-inf")

    def record(self, peer: str, now_s: float) -> float:
        """Count a failure of ``peer``, and return the seconds after which the client is told."""
        if now_s - self._since_s >= _WINDOW_S or len(self._counts) >= _MOST_PEERS:
            self._counts.clear()
            self._since_s = now_s
        self.total += 1
        self._counts[peer] += 1
        doublings = min(self._counts[peer] // _FAILURES_PER_DOUBLING, 16)
        return min(_LONGEST_WAIT_S, float(_FIRST_WAIT_S * 2**doublings))

    def is_first(self, peer: str) -> bool:
        """Return True if ``peer`` has failed once in the present minute."""
        return self._counts[peer] == 1


class ListenerLogins:
    """Logins of all listeners that have logins."""

    def __init__(
        self,
        users: Callable[[], UserVerifiers],
        *,
        lifetime_ms: Callable[[], int],
        clock: Clock,
        nonce: Callable[[], str],
    ) -> None:
        """Log in the users that are in force at each login.

        Args:
            users: the users in force.
            lifetime_ms: time after which a client has to log in again; 0 for no limit.
            clock: for the wait after a login that failed.
            nonce: returns fresh text for one login, of printable ASCII without a comma.
        """
        self._users = users
        self._lifetime_ms = lifetime_ms
        self._clock = clock
        self._nonce = nonce
        self._slots = asyncio.Semaphore(_HASHES_AT_A_TIME)
        self.failures = LoginFailures()
        self.logins = 0
        """Logins that succeeded since the start."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the names of the mechanisms."""
        return self._users().mechanisms

    def begin(self, mechanism: str, *, peer: str) -> Login | None:
        """Begin a login of a client at address ``peer``; None if the mechanism is not offered."""
        users = self._users()
        if mechanism not in users.mechanisms:
            return None
        if mechanism == PLAIN:
            return _PlainLogin(self, users, peer)
        return _ScramLogin(self, ScramExchange(mechanism, users, nonce=self._nonce()), mechanism, peer)

    async def has_password(self, users: UserVerifiers, name: str, password: str) -> bool:
        """Return True if this is the password of a known user; computes a hash in a thread."""
        async with self._slots:
            return await asyncio.to_thread(users.find(name, PLAIN).has_password, password)

    def succeed(self, name: str, token: bytes) -> LoginStep:
        """Count a login, and return its last step."""
        self.logins += 1
        return LoginStep(token, principal=f"User:{name}", lifetime_ms=self._lifetime_ms())

    async def refusal(self, mechanism: str, peer: str) -> LoginRefusedError:
        """Count a failure, and return its error after the wait that it costs."""
        host = peer_of(peer)
        wait_s = self.failures.record(host, self._clock.monotonic_s())
        if self.failures.is_first(host):
            log.warning("login_failed", peer=peer, mechanism=mechanism, failures=self.failures.total)
        await self._clock.sleep(wait_s)
        return LoginRefusedError(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
        )


def new_nonce() -> str:
    """Return 144 random bits as text."""
    return secrets.token_urlsafe(18)


class _ScramLogin:
    """Login by SCRAM: two tokens."""

    def __init__(self, logins: ListenerLogins, exchange: ScramExchange, mechanism: str, peer: str) -> None:
        self._logins = logins
        self._exchange: ScramExchange | None = exchange
        self._mechanism = mechanism
        self._peer = peer
        self._is_begun = False

    async def step(self, token: bytes) -> LoginStep:
        exchange, self._exchange = self._exchange, None
        try:
            if exchange is not None and not self._is_begun:
                answer = LoginStep(exchange.first(token))
                self._exchange, self._is_begun = exchange, True
                return answer
            if exchange is not None:
                return self._logins.succeed(*exchange.final(token))
        except LoginRefusedError:
            pass  # the error below says the same for every reason
        raise await self._logins.refusal(self._mechanism, self._peer)


class _PlainLogin:
    """Login by PLAIN: one token, the name and the password behind zero bytes."""

    def __init__(self, logins: ListenerLogins, users: UserVerifiers, peer: str) -> None:
        self._logins = logins
        self._users = users
        self._peer = peer
        self._is_over = False

    async def step(self, token: bytes) -> LoginStep:
        found = None if self._is_over else parse_plain(token)
        self._is_over = True
        if found and await self._logins.has_password(self._users, *found):
            return self._logins.succeed(found[0], b"")
        raise await self._logins.refusal(PLAIN, self._peer)


def parse_plain(token: bytes) -> tuple[str, str] | None:
    """Return name and password of a message of PLAIN; None if it is none, or asks for the rights of another user."""
    if len(token) > LONGEST_TOKEN_BYTES:
        return None
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        return None
    if len(parts) != 3 or not all(parts[1:]) or parts[0] not in {"", parts[1]}:
        return None
    return parts[1], parts[2]
