"""Refusals of a server that only a person ends: tried again while the store is in use, and final when it is opened."""

from tierd.errors import BackendUnavailableError, MetadataError


class NeedsPersonError(BackendUnavailableError):
    """The server refused the call, and will until a person has changed something."""


def at_opening(error: BackendUnavailableError) -> MetadataError:
    """Return the same error; one that a person must end is not retriable."""
    return MetadataError(str(error), remedy=error.remedy) if isinstance(error, NeedsPersonError) else error
