"""KeyValueStore: the few operations that tierd needs of a metadata backend."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from tierd.errors import PreconditionFailedError


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
class DeletePrefix:
    """Remove every key that begins with ``prefix``, taken literally; none there is no error.

    Raises:
        ValueError: an empty prefix, which would remove the rows of every cluster.
    """

    prefix: str

    def __post_init__(self) -> None:
        if not self.prefix:
            raise ValueError("a prefix to remove is never empty")

    def covers(self, key: str) -> bool:
        """Return True if ``key`` is removed."""
        return key.startswith(self.prefix)


Write: TypeAlias = Put | Delete | DeletePrefix


@dataclass(frozen=True, slots=True)
class Expect:
    """A precondition: ``key`` holds exactly ``value``, or is absent when ``value`` is None.

    Values instead of version numbers, so that every product can check the precondition. A row that must not be confused
    with an earlier one of the same content carries a revision.
    """

    key: str
    value: bytes | None

    def holds(self, actual: bytes | None) -> bool:
        """Return True if a store in which the key has the value ``actual`` fulfils the precondition."""
        return actual == self.value


@dataclass(frozen=True, slots=True)
class ExpectPresent:
    """A precondition: ``key`` exists, whatever it holds."""

    key: str

    def holds(self, actual: bytes | None) -> bool:
        """Return True if a store in which the key has the value ``actual`` fulfils the precondition."""
        return actual is not None


Precondition: TypeAlias = Expect | ExpectPresent


@dataclass(frozen=True, slots=True)
class Batch:
    """Writes that happen together, in order, if every precondition holds, and not at all otherwise."""

    writes: Sequence[Write]
    expect: Sequence[Precondition] = field(default=())

    def refusal(self, value_of: Callable[[str], bytes | None]) -> PreconditionFailedError | None:
        """Return the first precondition that does not hold, None if all hold; ``value_of`` looks a key up."""
        for expectation in self.expect:
            actual = value_of(expectation.key)
            if not expectation.holds(actual):
                return PreconditionFailedError(expectation.key, actual)
        return None


class KeyValueStore(Protocol):
    """An ordered map of text keys (at most 256 bytes of ASCII) to bytes, with atomic conditional batches.

    A store inherits from this class and provides ``get``, ``get_many``, ``scan``, ``apply`` and ``close``; the other
    operations are batches.

    Every call may raise ``BackendUnavailableError``: nothing was written. ``apply`` may also raise
    ``OutcomeUnknownError``: the batch may have been written, or may still be. A cancelled ``apply`` has an unknown
    outcome, too.
    """

    async def get(self, key: str) -> bytes | None:
        """Return the value under ``key``, None when there is none."""
        return (await self.get_many((key,))).get(key)

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

    async def create(self, key: str, value: bytes) -> None:
        """Write a key that must not exist.

        Raises:
            PreconditionFailedError: the key exists; names what it holds.
        """
        await self.apply(Batch([Put(key, value)], [Expect(key, None)]))

    async def made_once(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the value of a key, making it where there is none; of several that do so at once, one value wins.

        Raises:
            BackendUnavailableError: the store does not answer, or has no value and cannot be written.
            OutcomeUnknownError: the value may or may not have been written; ask again.
        """
        stored = await self.get(key)
        if stored is not None:
            return stored
        made = make()
        try:
            await self.create(key, made)
        except PreconditionFailedError as error:
            return error.actual or b""
        return made

    async def update(self, key: str, value: bytes) -> None:
        """Replace the value of a key that must exist.

        Raises:
            PreconditionFailedError: the key does not exist.
        """
        await self.apply(Batch([Put(key, value)], [ExpectPresent(key)]))

    async def remove_prefix(self, prefix: str) -> None:
        """Remove every key that begins with ``prefix``, all at once; the prefix is not empty and taken literally."""
        await self.apply(Batch([DeletePrefix(prefix)]))

    async def close(self) -> None:
        """Let running calls end and release the backend; closing twice is harmless."""


def end_of(prefix: str) -> str:
    """Return the first text after every key that begins with ``prefix``, which is not empty, in byte order."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
