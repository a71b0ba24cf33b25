"""Failures after which only the store itself can say what has happened."""

from tierd.errors import RemoteStorageError, RetriableRemoteStorageError


class UploadGoneError(RemoteStorageError):
    """The upload in parts is gone: aborted by somebody, or completed by a call whose reply was lost."""


class NoAnswerError(RetriableRemoteStorageError):
    """The connection failed: what was asked for may or may not have happened."""
