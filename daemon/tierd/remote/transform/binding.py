"""Bindings of encrypted pieces to their places: a piece that is swapped, cut off, moved or replayed does not open.

The additional authenticated data of AES-GCM, byte by byte in docs/formats.md. Numbers are big-endian, texts are UTF-8
behind two bytes with their length, so that no two bindings have the same bytes.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Self
from uuid import UUID

from tierd.model import IndexType, RemoteLogSegmentMetadata, TopicIdPartition

_CHUNK_DOMAIN = b"tierd chunk 1\x00"
_DATA_KEY_DOMAIN = b"tierd data key 1\x00"
_PARTITION = struct.Struct(">16sI")  # topic id, partition
_SEGMENT = struct.Struct(">16sI16sqq")  # topic id, partition, segment id, start offset, end offset
_PIECE = struct.Struct(">BIIQB")  # artefact, chunk number, chunk count, original size, compressed
_NONCE = struct.Struct(">IQ")  # artefact, chunk number


class ArtefactKind(IntEnum):
    """Artefact that a piece belongs to; the numbers are part of the format."""

    LOG = 1
    OFFSET = 2
    TIMESTAMP = 3
    TRANSACTION = 4
    PRODUCER_SNAPSHOT = 5
    LEADER_EPOCH = 6
    KEY_HASHES = 7

    @classmethod
    def of_index(cls, index_type: IndexType) -> Self:
        """Return the kind of an index."""
        return cls[index_type.name]


@dataclass(frozen=True, slots=True)
class SegmentBinding:
    """The identity of a segment, as encryption sees it. Offsets are inclusive."""

    cluster_id: str
    topic_id: UUID
    partition: int
    segment_id: UUID
    start_offset: int
    end_offset: int

    @classmethod
    def of(cls, metadata: RemoteLogSegmentMetadata, *, cluster_id: str) -> Self:
        """Return the identity that the metadata gives."""
        partition = metadata.segment.topic_id_partition
        return cls(
            cluster_id,
            partition.topic_id,
            partition.partition,
            metadata.segment.id,
            metadata.start_offset,
            metadata.end_offset,
        )

    def for_data_key(self, key_id: str) -> bytes:
        """Return the binding of a data key that the ring's key ``key_id`` wraps."""
        return _DATA_KEY_DOMAIN + _text(key_id) + self._identity()

    def for_piece(self, piece: "BoundPiece") -> bytes:
        """Return the binding of one encrypted piece."""
        described = _PIECE.pack(piece.kind, piece.number, piece.count, piece.original_size, piece.is_compressed)
        return _CHUNK_DOMAIN + self._identity() + described

    def for_tombstone(self) -> bytes:
        """Return the binding of the tag of the segment's tombstone."""
        return _text("tombstone") + self._identity()

    def _identity(self) -> bytes:
        fields = (self.topic_id.bytes, self.partition, self.segment_id.bytes, self.start_offset, self.end_offset)
        return _text(self.cluster_id) + _SEGMENT.pack(*fields)


@dataclass(frozen=True, slots=True)
class BoundPiece:
    """One chunk of the log, or one index, which is a single chunk.

    Attributes:
        number: from 0 on; the last chunk also has ``count``, so that a truncated log is noticed.
        original_size: bytes before compression and encryption.
    """

    kind: ArtefactKind
    number: int
    count: int
    original_size: int
    is_compressed: bool = False

    @property
    def nonce(self) -> bytes:
        """Return the nonce of 12 bytes that no other piece of the segment has."""
        return _NONCE.pack(self.kind, self.number)


def log_start_binding(cluster_id: str, partition: TopicIdPartition) -> bytes:
    """Return the binding of the tag of the log start record of ``partition``."""
    place = _PARTITION.pack(partition.topic_id.bytes, partition.partition)
    return _text("log start") + _text(cluster_id) + _text(partition.topic) + place


def erasure_report_binding(cluster_id: str, request_id: UUID) -> bytes:
    """Return the binding of the tag of the report of a request to erase keys."""
    return _text("erasure report") + _text(cluster_id) + request_id.bytes


def catalogue_binding(cluster_id: str, name: str) -> bytes:
    """Return the binding of the tag of a catalogue object; ``name`` is its key below the catalogue."""
    return _text("catalogue") + _text(cluster_id) + _text(name)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded
