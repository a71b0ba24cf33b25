"""Failures after which only the store itself can say what has happened."""

from tierd.errors import RemoteStorageError, RetriableRemoteStorageError


class UploadGoneError(RemoteStorageError):
    """The upload in parts cannot be completed any more.

    It was aborted, or completed by a call whose reply was lost, or the store wants its parts again.
    """


class NoAnswerError(RetriableRemoteStorageError):
    """The connection failed: what was asked for may or may not have happened."""
