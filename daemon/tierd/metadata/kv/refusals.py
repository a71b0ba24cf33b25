"""Refusals of a store that answers: those that only a person ends, and those that concern writes alone."""

from tierd.errors import BackendUnavailableError, MetadataError


class NeedsPersonError(BackendUnavailableError):
    """The server refused the call, and will until a person has changed something.

    The call is tried again while the store is in use. The error is final when the store is opened.
    """


class WritesRefusedError(BackendUnavailableError):
    """The store answers and refuses writes for now: no room, a read-only server, or too few replicas."""


def at_opening(error: BackendUnavailableError) -> MetadataError:
    """Return the error for an opening: a NeedsPersonError becomes a MetadataError, any other stays as it is."""
    return MetadataError(str(error), remedy=error.remedy) if isinstance(error, NeedsPersonError) else error
