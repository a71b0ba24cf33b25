"""LogStartRecord: the object with the log start of a partition, from which a rebuild takes it (decision 24).

JSON of ``format_version`` 1, one object per partition beside its segments, given other content as the log start moves.
Fields of a later tierd are kept when the object is rewritten.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, cast

from tierd.errors import (
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RemoteUnauthenticatedError,
)
from tierd.json_parsing import parse_json
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.remote.object_keys import ObjectKeyFactory
from tierd.remote.object_limits import LOG_START, read_whole
from tierd.remote.object_store import ObjectStore
from tierd.remote.transform.binding import log_start_binding
from tierd.remote.transform.key_ring import EMPTY_RING, KeyRing
from tierd.remote.transform.object_tag import AUTHENTICATION, require_tag, with_tag

FORMAT_VERSION = 1
_NUMBERS: Final = ("log_start_offset", "leader_epoch", "broker_id", "written_ms")
_INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartRecord:
    """Log start of one partition, and the leader that wrote it.

    Attributes:
        log_start_offset: first offset that may be read in either tier, inclusive.
        leader_epoch: of the leader that wrote the record.
        broker_id: of the same leader.
        written_ms: wall clock.
        unknown: fields of a later tierd, without the tag, which the storage makes anew.
    """

    log_start_offset: int
    leader_epoch: int
    broker_id: int
    written_ms: int
    unknown: Mapping[str, object] = field(default_factory=dict)

    def encode(self, cluster_id: str, partition: TopicIdPartition) -> bytes:
        """Return the JSON form."""
        fields = {
            **self.unknown,
            "format_version": FORMAT_VERSION,
            **_identity(cluster_id, partition),
            **{name: getattr(self, name) for name in _NUMBERS},
        }
        return (json.dumps(fields) + "\n").encode()

    @classmethod
    def decode(cls, content: bytes, *, key: str, cluster_id: str, partition: TopicIdPartition) -> "LogStartRecord":
        """Parse the JSON form of ``partition``'s record.

        Raises:
            RemoteFormatError: this tierd does not know the ``format_version``.
            RemoteIntegrityError: the content is no log start record, or that of another partition.
        """
        try:
            parsed = parse_json(content)
        except ValueError as error:
            raise _damaged(key, content) from error
        if not isinstance(parsed, dict) or "format_version" not in parsed:
            raise _damaged(key, content)
        fields = cast("dict[str, object]", parsed)
        if (found := fields.pop("format_version")) != FORMAT_VERSION:
            raise RemoteFormatError(
                f"{key}: log start record has format_version {found!r}, this tierd reads {FORMAT_VERSION}",
                remedy="use the tierd version that wrote it, or a newer one",
            )
        fields.pop(AUTHENTICATION, None)
        identity = {name: fields.pop(name, None) for name in _identity(cluster_id, partition)}
        numbers = [fields.pop(name, None) for name in _NUMBERS]
        if identity != _identity(cluster_id, partition):
            raise RemoteIntegrityError(
                f"{key} is the log start record of another partition: {identity}", remedy=_REMEDY
            )
        log_start, leader_epoch, broker_id, written_ms = map(_whole_number, numbers)
        if log_start is None or leader_epoch is None or broker_id is None or written_ms is None:
            raise _damaged(key, content)
        if log_start < 0 or not -1 <= leader_epoch < 2**31:
            raise _damaged(key, content)
        return cls(
            log_start_offset=log_start,
            leader_epoch=leader_epoch,
            broker_id=broker_id,
            written_ms=written_ms,
            unknown=fields,
        )


@dataclass(frozen=True, slots=True)
class StoredLogStart:
    """Object in the place of a log start record.

    Attributes:
        content: of the object.
        record: None where the content is damaged, or without proof that a holder of the key ring wrote it.
        damage: reason why ``record`` is None; otherwise empty.
        unauthenticated: the record that lacks the proof.
    """

    content: bytes
    record: LogStartRecord | None
    damage: str = ""
    unauthenticated: LogStartRecord | None = None


class LogStartStorage:
    """Log start records of one tier. With a key ring they are written with tags, and a read demands the tag."""

    def __init__(self, store: ObjectStore, keys: ObjectKeyFactory, ring: KeyRing = EMPTY_RING) -> None:
        self._store = store
        self._keys = keys
        self._ring = ring

    async def read(self, partition: TopicIdPartition) -> StoredLogStart | None:
        """Return the object of ``partition``, None where there is none.

        Raises:
            RemoteFormatError: a later tierd wrote it.
            RemoteObjectTooLargeError: the object is larger than any record, and cannot be replaced by content.
            RemoteStorageError: the store failed.
        """
        key = self._keys.log_start(partition)
        try:
            content = await read_whole(self._store, key, LOG_START)
        except RemoteResourceNotFoundError:
            return None
        try:
            require_tag(content, self._ring, self._binding(partition), key=key)
        except RemoteUnauthenticatedError as error:
            return StoredLogStart(content, None, str(error), unauthenticated=self._unproven(content, partition))
        try:
            return StoredLogStart(content, self._decode(content, partition))
        except RemoteIntegrityError as error:
            return StoredLogStart(content, None, str(error))

    async def write(
        self, partition: TopicIdPartition, record: LogStartRecord, *, previous: StoredLogStart | None
    ) -> None:
        """Store ``record`` durably if the object is ``previous``; unknown fields of ``previous`` are kept.

        Raises:
            RemoteConflictError: the object has other content.
            RemoteResourceNotFoundError: ``previous`` is gone.
            RemoteObjectRetainedError: the store keeps the present object.
            RemoteStorageError: the store failed; the record may or may not be there.
        """
        key = self._keys.log_start(partition)
        kept = previous.record.unknown if previous is not None and previous.record is not None else {}
        content = replace(record, unknown=kept).encode(self._keys.cluster_id, partition)
        content = with_tag(content, self._ring, self._binding(partition))
        if previous is None:
            await self._store.put(key, content)
        else:
            await self._store.replace(key, content, previous=previous.content)

    async def remove(self, partition: TopicIdPartition) -> None:
        """Remove the record of ``partition``; none is no error.

        Raises:
            RemoteObjectRetainedError: the store keeps it.
            RemoteStorageError: the store failed.
        """
        await self._store.delete(self._keys.log_start(partition))

    def _unproven(self, content: bytes, partition: TopicIdPartition) -> LogStartRecord | None:
        """Return the record in ``content``; None where it is none, or claims to be of a later tierd: nothing proves it.

        A later tierd with the key ring makes a tag too.
        """
        try:
            return self._decode(content, partition)
        except (RemoteIntegrityError, RemoteFormatError):
            return None

    def _binding(self, partition: TopicIdPartition) -> bytes:
        return log_start_binding(self._keys.cluster_id, partition)

    def _decode(self, content: bytes, partition: TopicIdPartition) -> LogStartRecord:
        key = self._keys.log_start(partition)
        return LogStartRecord.decode(content, key=key, cluster_id=self._keys.cluster_id, partition=partition)


_REMEDY: Final = "nothing to do while the metadata store is there: the leader writes it anew when the log start moves"


def _identity(cluster_id: str, partition: TopicIdPartition) -> dict[str, object]:
    return {
        "cluster_id": cluster_id,
        "topic": partition.topic,
        "topic_id": uuid_to_text(partition.topic_id),
        "partition": partition.partition,
    }


def _whole_number(value: object) -> int | None:
    """Return ``value`` if it is an integer that the row of a partition can hold."""
    return value if type(value) is int and -1 <= value <= _INT64_MAX else None


def _damaged(key: str, content: bytes) -> RemoteIntegrityError:
    return RemoteIntegrityError(f"{key} is no log start record: {content[:80]!r}", remedy=_REMEDY)
