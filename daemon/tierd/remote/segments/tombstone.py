"""Tombstone: the object that says that a segment is to be deleted, and why (DESIGN 4). A rebuild skips the segment.

JSON of ``format_version`` 1. The first tombstone of a segment stays; a rotation of keys gives it a new tag.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from tierd.errors import (
    RemoteConflictError,
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RemoteUnauthenticatedError,
)
from tierd.json_parsing import parse_json
from tierd.model import RemoteLogSegmentMetadata
from tierd.remote.object_keys import TOMBSTONE_SUFFIX, ObjectKeyFactory
from tierd.remote.object_limits import TOMBSTONE, read_whole
from tierd.remote.object_store import ObjectStore
from tierd.remote.transform.binding import SegmentBinding
from tierd.remote.transform.key_ring import KeyRing
from tierd.remote.transform.object_tag import require_tag, with_tag

FORMAT_VERSION = 1
_INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Decision to delete a segment: its time, reason and author.

    Attributes:
        reason: a fixed word, such as ``retention-time``.
        delete_after_ms: time before which no object is deleted; until then the decision can be undone.
        detail: in one sentence, for people.
    """

    reason: str
    deleted_at_ms: int
    delete_after_ms: int
    broker_id: int
    detail: str = ""

    def encode(self) -> bytes:
        """Return the JSON form."""
        return (json.dumps({"format_version": FORMAT_VERSION} | asdict(self)) + "\n").encode()

    @classmethod
    def decode(cls, content: bytes, *, key: str) -> Self:
        """Parse the JSON form.

        Raises:
            RemoteFormatError: its ``format_version`` is one that this tierd does not know.
            RemoteIntegrityError: the content is no tombstone.
        """
        try:
            parsed = parse_json(content)
        except ValueError as error:
            raise _damaged(key, content) from error
        if not isinstance(parsed, dict) or "format_version" not in parsed:
            raise _damaged(key, content)
        fields: dict[str, Any] = parsed
        found = fields.pop("format_version")
        if found != FORMAT_VERSION:
            raise RemoteFormatError(
                f"{key}: tombstone has format_version {found!r}, this tierd reads {FORMAT_VERSION}",
                remedy="use the tierd version that wrote it, or a newer one",
            )
        texts: dict[str, Any] = {name: fields.get(name, "") for name in ("reason", "detail")}
        numbers: dict[str, Any] = {name: fields.get(name) for name in ("deleted_at_ms", "delete_after_ms", "broker_id")}
        if any(type(text) is not str for text in texts.values()) or not all(map(_is_number, numbers.values())):
            raise _damaged(key, content)
        return cls(**texts, **numbers)


def _is_number(value: object) -> bool:
    """Return whether ``value`` is an integer that the row of a segment can hold."""
    return type(value) is int and -1 <= value <= _INT64_MAX


def _damaged(key: str, content: bytes) -> RemoteIntegrityError:
    return RemoteIntegrityError(
        f"{key} is no tombstone: {content[:80]!r}",
        remedy="find out who wrote it; while it is there a rebuild ignores the segment",
    )


class TombstoneStorage:
    """Tombstones of one cluster. With a key ring they are written with tags, and a read demands the tag."""

    def __init__(self, store: ObjectStore, cluster_id: str, ring: KeyRing) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._ring = ring

    async def write(self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, tombstone: Tombstone) -> None:
        """Store durably that the segment is to be deleted; a tombstone that is there already stays as it is.

        With a key ring, an object whose tag proves nothing is replaced: the metadata of the caller says that the
        segment is to be deleted, and a rebuild uses only tombstones that are proven.

        Raises:
            RemoteObjectTooLargeError: no tombstone is that large; what is there cannot be replaced by content either.
            RemoteIntegrityError: the present object is no tombstone.
        """
        key = keys.segment(metadata, TOMBSTONE_SUFFIX)
        binding = self._binding(metadata)
        content = with_tag(tombstone.encode(), self._ring, binding)
        try:
            await self._store.put(key, content)
        except RemoteConflictError:
            stored = await read_whole(self._store, key, TOMBSTONE)
            try:
                require_tag(stored, self._ring, binding, key=key)
            except RemoteUnauthenticatedError:
                await self._store.replace(key, content, previous=stored)
                return
            Tombstone.decode(stored, key=key)

    async def read(
        self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, *, accepts_unauthenticated: bool
    ) -> Tombstone | None:
        """Return the segment's tombstone, None when it has none.

        Args:
            keys: of the segment.
            metadata: of the segment.
            accepts_unauthenticated: return a tombstone without proof too, although a key ring is configured.

        Raises:
            RemoteUnauthenticatedError: nothing proves that a holder of the key ring wrote it.
            RemoteIntegrityError: the present object is no tombstone.
        """
        key = keys.segment(metadata, TOMBSTONE_SUFFIX)
        try:
            content = await read_whole(self._store, key, TOMBSTONE)
        except RemoteResourceNotFoundError:
            return None
        if not accepts_unauthenticated:
            require_tag(content, self._ring, self._binding(metadata), key=key)
        return Tombstone.decode(content, key=key)

    def _binding(self, metadata: RemoteLogSegmentMetadata) -> bytes:
        return SegmentBinding.of(metadata, cluster_id=self._cluster_id).for_tombstone()
