"""The promises between a connection and the logins (SASL) of its listener."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tierd.errors import TierError


class LoginRefusedError(TierError):
    """The login failed; the message is sent to the client and names no reason that helps to guess."""


@dataclass(frozen=True, slots=True)
class LoginStep:
    """Answer of the server to one token of the client.

    Attributes:
        token: for the client; may be empty.
        principal: such as ``User:alice`` when the login is complete; None while it goes on.
        lifetime_ms: time after which the client has to log in again (KIP-368); 0 for no limit.
    """

    token: bytes
    principal: str | None = None
    lifetime_ms: int = 0


class Login(Protocol):
    """One login of one connection by one mechanism."""

    async def step(self, token: bytes) -> LoginStep:
        """Take the client's next token.

        Raises:
            LoginRefusedError: the login has failed. The caller does not go on with it.
        """


class LoginMethods(Protocol):
    """Logins that one listener offers."""

    @property
    def mechanisms(self) -> Sequence[str]:
        """Return the names of the mechanisms, such as ``PLAIN``."""

    def begin(self, mechanism: str, *, peer: str) -> Login | None:
        """Begin a login of a client at address ``peer``; None if the mechanism is not offered."""
