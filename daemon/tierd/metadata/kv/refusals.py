"""Refusals that the backends have in common, and the name of a server in them."""

from typing import TypeVar
from urllib.parse import urlsplit

from tierd.errors import BackendUnavailableError, MetadataError, install_extra
from tierd.masking import Masking

E = TypeVar("E", bound=MetadataError)


class NeedsPersonError(BackendUnavailableError):
    """Refusal by the server that lasts until a person has changed something.

    The call is tried again while the store is in use. The error is final when the store is opened.
    """


class WritesRefusedError(BackendUnavailableError):
    """Refusal of writes, for now, by a store that answers: no room, a read-only server, or too few replicas."""


class BadAddressError(ValueError):
    """An address that cannot be understood. The text does not repeat the wrong part: it may be of the password."""

    def __init__(self) -> None:
        super().__init__("the address cannot be understood; in user and password %-encode / ? # [ ] @ :")


def failure_of(
    kind: type[E], name: str, masking: Masking, error: BaseException, *, remedy: str, is_late: bool = False
) -> E:
    """Return the failure of a request, with the first line of the client library's error; its cause is set, and masked.

    Args:
        kind: of the failure.
        name: of the store.
        masking: hides what is secret.
        error: of the client library, or of a wait.
        remedy: what to do.
        is_late: the server did not answer in time, as a ``TimeoutError`` also says.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = "the server did not answer in time" if is_late or isinstance(error, TimeoutError) else lines[0]
    failure = kind(f"{name}: {masking.text(text)}", remedy=remedy)
    failure.__cause__ = masking.error(error)
    return failure


def at_opening(error: BackendUnavailableError) -> MetadataError:
    """Return the error for an opening: a NeedsPersonError becomes a MetadataError, any other stays as it is."""
    return MetadataError(str(error), remedy=error.remedy) if isinstance(error, NeedsPersonError) else error


def missing_package(backend: str, error: ModuleNotFoundError) -> MetadataError:
    """Return the error for ``metadata.backend`` where its client is not there."""
    return MetadataError(
        f"metadata.backend {backend} needs the package {error.name}, which is not installed",
        remedy=install_extra(backend),
    )


def name_of(kind: str, address: str) -> str:
    """Return the name of a server for errors and logs: its kind; host and path where they certainly hold no secret."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return kind
    behind = f"{parts.path}{parts.query}{parts.fragment}"
    if "://" not in address or "@" in behind:  # a password with a slash ends the host early
        return kind
    host = parts.netloc.rpartition("@")[2]
    return f"{kind} {host}{parts.path}" if host else f"{kind} localhost{parts.path}"
