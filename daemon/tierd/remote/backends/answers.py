"""Errors that all stores share, with their remedies; for some of them the store is asked what has happened."""

from typing import Final

from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)

_BUSY: Final = frozenset({408, 429})


class UploadGoneError(RemoteStorageError):
    """The upload in parts cannot be completed any more.

    The upload was aborted, or completed by a call whose reply was lost, or the store asks for its parts again.
    """


class NoAnswerError(RetriableRemoteStorageError):
    """The connection failed: the store may have done what the request asked for."""


def no_answer(text: str) -> NoAnswerError:
    """Return the error for a request without an answer."""
    return NoAnswerError(text, remedy="it is tried again; look at the store and at the network to it")


def upload_gone(text: str) -> UploadGoneError:
    """Return the error for an upload that cannot be completed any more."""
    return UploadGoneError(text, remedy="the upload begins anew")


def conflict(text: str) -> RemoteConflictError:
    """Return the error for a key that holds what tierd did not expect."""
    return RemoteConflictError(text, remedy="find out who wrote it; tierd never replaces what it did not read")


def not_found(text: str) -> RemoteResourceNotFoundError:
    """Return the error for an object that is not in the store."""
    return RemoteResourceNotFoundError(text, remedy="run tierd verify to see what is missing")


def damaged_on_the_way(text: str) -> RemoteIntegrityError:
    """Return the error for a body that the store refuses, because it does not have its checksum."""
    remedy = "the bytes that arrived are not those that were checked; the segment is read again"
    return RemoteIntegrityError(text, remedy=remedy)


def busy(text: str) -> RetriableRemoteStorageError:
    """Return the error for a request that the store refuses for the moment."""
    return RetriableRemoteStorageError(text, remedy="the store is busy or failing; it is tried again")


def is_busy(status: int) -> bool:
    """Return True if an HTTP status says that a later request may succeed."""
    return status in _BUSY or (status >= 500 and status != 501)


def require_replaced(found: bytes, content: bytes, *, previous: bytes, name: str, error: RemoteStorageError) -> None:
    """Return if a replacement that was refused or not answered has been made; ``found`` is in the store now.

    Args:
        found: content of the object after the failure.
        content: new content; it differs from ``previous``.
        previous: content before the replacement.
        name: address of the object.
        error: failure of the replacement.

    Raises:
        RetriableRemoteStorageError: the object has the content before the replacement.
        RemoteConflictError: it has content of another writer.
    """
    if found == previous:
        raise RetriableRemoteStorageError(str(error), remedy=error.remedy) from error
    if found != content:
        raise conflict(f"{name} has other content than was expected") from error
