"""Errors of connections to other daemons."""

from typing import ClassVar

from tierd.errors import TierError


class PushLinkError(TierError):
    """A peer refused this daemon or is not the expected one, or it sent something that is not the protocol."""


class PushLinkLostError(PushLinkError):
    """The peer cannot be reached, or the connection ended."""

    retriable: ClassVar[bool] = True


class PushLinkTimeoutError(PushLinkLostError, TimeoutError):
    """The peer did not answer in time; the connection is closed."""
