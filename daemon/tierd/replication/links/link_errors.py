"""Errors of connections to other daemons."""

from typing import ClassVar

from tierd.errors import TierError


class PushLinkError(TierError):
    """A peer refused this daemon or is not the expected one, or it sent something that is not the protocol."""


class PushLinkRefusedError(PushLinkError):
    """The Hello of a peer has an error.

    Attributes:
        refusal: the error.
    """

    def __init__(self, cause: str, *, refusal: int) -> None:
        super().__init__(cause)
        self.refusal = refusal


class PushLinkLostError(PushLinkError):
    """The peer cannot be reached, or the connection ended."""

    retriable: ClassVar[bool] = True


class PushLinkTimeoutError(PushLinkLostError, TimeoutError):
    """The peer did not answer in time; the connection is closed."""
