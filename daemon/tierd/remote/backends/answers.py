"""Failures after which the store has to be asked what has happened."""

from tierd.errors import RemoteStorageError, RetriableRemoteStorageError


class UploadGoneError(RemoteStorageError):
    """The upload in parts cannot be completed any more.

    The upload was aborted, or completed by a call whose reply was lost, or the store asks for its parts again.
    """


class NoAnswerError(RetriableRemoteStorageError):
    """The connection failed: the store may have done what the request asked for."""
