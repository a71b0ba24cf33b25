"""KeyValueStore: the little that tierd asks of a metadata backend."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Put:
    """Write ``value`` under ``key``, whether or not the key exists."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove ``key``; one that is absent already is no error."""

    key: str


@dataclass(frozen=True, slots=True)
class Expect:
    """A precondition: ``key`` holds exactly ``value``, or is absent when ``value`` is None.

    Values instead of version numbers, so that every product can check it; a row that must not be confused with
    an earlier one of the same content carries a revision.
    """

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Writes that happen together, in order, if every precondition holds, and not at all otherwise."""

    writes: Sequence[Put | Delete]
    expect: Sequence[Expect] = field(default=())


class KeyValueStore(Protocol):
    """An ordered map of text keys (at most 256 bytes of ASCII) to bytes, with atomic conditional batches.

    Every call may raise ``BackendUnavailableError``: nothing was written. ``apply`` may also raise
    ``OutcomeUnknownError``: it may have been written, or may still be. A cancelled ``apply`` is of the second kind.
    """

    async def get(self, key: str) -> bytes | None:
        """Return the value under ``key``, None when there is none."""

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist, all read from one snapshot."""

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return every pair whose key begins with ``prefix``, in byte order of the keys, from one snapshot.

        The prefix is taken literally: no character in it is a wildcard.
        """

    async def apply(self, batch: Batch) -> None:
        """Apply a batch durably, all of it or nothing.

        Raises:
            PreconditionFailedError: a precondition did not hold; names the key and what it holds.
        """

    async def close(self) -> None:
        """Let running calls end and release the backend; closing twice is harmless."""
