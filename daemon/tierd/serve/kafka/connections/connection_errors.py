"""Ends of connections that are no failure of tierd."""

from tierd.errors import TierError


class PeerGoneError(TierError):
    """The client closed or reset the connection, or the endpoint aborted it."""


class ClientFaultError(TierError):
    """The client broke a rule of the protocol or of the endpoint, and its connection is closed."""
