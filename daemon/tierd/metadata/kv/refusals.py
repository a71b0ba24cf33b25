"""Refusals of a store that answers: those that only a person ends, and those that concern writes alone."""

from tierd.errors import BackendUnavailableError, MetadataError


class NeedsPersonError(BackendUnavailableError):
    """The server refused the call, and will until a person has changed something.

    It is tried again while the store is in use, and final when it is opened.
    """


class WritesRefusedError(BackendUnavailableError):
    """The store answers and takes no writes: it has no room left, or may only be read."""


def at_opening(error: BackendUnavailableError) -> MetadataError:
    """Return the same error; one that a person must end is not retriable."""
    return MetadataError(str(error), remedy=error.remedy) if isinstance(error, NeedsPersonError) else error
