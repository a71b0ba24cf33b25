"""SegmentManifest: the commit mark of a segment in the bucket, enough by itself to rebuild metadata (DESIGN 4).

JSON of ``format_version`` 1. Fields that this version does not know are kept when a manifest is written again; another
``format_version`` is refused. Checksums are CRC-32C in eight hexadecimal digits.
"""

import json
from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from tierd.errors import RemoteIntegrityError, RemoteStorageError
from tierd.kernels import crc32c, crc32c_of_file, crc32c_of_range
from tierd.model import (
    BlockChecksums,
    ByteRange,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    uuid_to_text,
)

FORMAT_VERSION = 1


def _parse_crc(value: object) -> object:
    return int(value, 16) if isinstance(value, str) else value


Crc32c = Annotated[
    int,
    BeforeValidator(_parse_crc),
    PlainSerializer(lambda crc: f"{crc:08x}", return_type=str),
    Field(ge=0, lt=2**32),
]
Size = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class LogChunk(_Part):
    """One chunk of the ``.log`` object as it is stored, and the checksum of what it stores."""

    size_bytes: Size
    crc32c: Crc32c


class LogArtefact(_Part):
    """The ``.log`` object.

    Attributes:
        size_bytes: of the object.
        crc32c: of the segment's bytes, before any transformation.
        chunk_size_bytes: original bytes per chunk; the last one may be shorter.
        chunks: in order; sizes are after the transformation, checksums of the original bytes.
    """

    size_bytes: Size
    crc32c: Crc32c
    chunk_size_bytes: Annotated[int, Field(gt=0)]
    chunks: tuple[LogChunk, ...]


class IndexArtefact(_Part):
    """Where one artefact lies in the ``.indexes`` object."""

    position: Size
    size_bytes: Size
    crc32c: Crc32c


class Compression(_Part):
    """How chunks are compressed."""

    type: Literal["none"] = "none"


class SegmentManifest(_Part):
    """One segment: identity, content and where every artefact lies. Offsets are inclusive at both ends."""

    format_version: Literal[1] = 1
    cluster_id: str
    topic: str
    topic_id: str
    partition: Annotated[int, Field(ge=0)]
    segment_id: str
    start_offset: Annotated[int, Field(ge=0)]
    end_offset: Annotated[int, Field(ge=0)]
    segment_leader_epochs: tuple[tuple[int, int], ...]
    leader_epoch: int
    broker_id: int
    session_id: str
    copy_started_ms: int
    max_timestamp_ms: int
    record_count: Size
    batch_count: Size
    size_bytes: Size
    txn_index_empty: bool
    log: LogArtefact
    indexes: dict[str, IndexArtefact]
    compression: Compression = Compression()
    encryption: None = None
    replaces: tuple[str, ...] = ()
    tierd_version: str

    @classmethod
    def describe(
        cls,
        metadata: RemoteLogSegmentMetadata,
        data: LogSegmentData,
        *,
        cluster_id: str,
        broker_id: int,
        chunk_size: int,
        tierd_version: str,
    ) -> Self:
        """Describe a segment about to be stored. The same arguments give the same manifest, byte for byte."""
        partition = metadata.segment.topic_id_partition
        return cls(
            cluster_id=cluster_id,
            topic=partition.topic,
            topic_id=uuid_to_text(partition.topic_id),
            partition=partition.partition,
            segment_id=uuid_to_text(metadata.segment.id),
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            segment_leader_epochs=tuple((entry.epoch, entry.start_offset) for entry in metadata.segment_leader_epochs),
            leader_epoch=metadata.leader_epoch,
            broker_id=broker_id,
            session_id=str(metadata.session_id),
            copy_started_ms=metadata.event_timestamp_ms,
            max_timestamp_ms=metadata.max_timestamp_ms,
            record_count=data.record_count,
            batch_count=data.batch_count,
            size_bytes=data.log_checksums.size_bytes,
            txn_index_empty=metadata.txn_index_empty,
            log=_describe_log(data.log_checksums, chunk_size),
            indexes=_describe_indexes(index_contents(data)),
            tierd_version=tierd_version,
        )

    def encode(self) -> bytes:
        """The JSON form, unknown fields included."""
        return (self.model_dump_json() + "\n").encode()

    @classmethod
    def decode(cls, content: bytes, *, key: str) -> Self:
        """Parse the JSON form.

        Raises:
            RemoteStorageError: its ``format_version`` is one that this tierd does not know.
            RemoteIntegrityError: it is no manifest.
        """
        fields = _parse_object(content, key)
        found = fields.get("format_version")
        if found != FORMAT_VERSION:
            raise RemoteStorageError(
                f"{key}: manifest has format_version {found!r}, this tierd reads {FORMAT_VERSION}",
                remedy="use the tierd version that wrote it, or a newer one",
            )
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise RemoteIntegrityError(f"{key}: manifest field {place}: {first['msg']}", remedy=_DAMAGED) from error

    def require_describes(self, metadata: RemoteLogSegmentMetadata, *, key: str) -> None:
        """Raise unless this manifest is that of the segment.

        Raises:
            RemoteIntegrityError: it is another one's.
        """
        partition = metadata.segment.topic_id_partition
        mine = (self.topic_id, self.partition, self.segment_id, self.start_offset, self.end_offset, self.size_bytes)
        asked = (
            *(uuid_to_text(partition.topic_id), partition.partition, uuid_to_text(metadata.segment.id)),
            *(metadata.start_offset, metadata.end_offset, metadata.size_bytes),
        )
        if mine != asked:
            raise RemoteIntegrityError(f"{key}: the manifest describes another segment: {mine}", remedy=_DAMAGED)

    def index(self, index_type: IndexType) -> IndexArtefact | None:
        """Where ``index_type`` lies; None when the segment has none."""
        return self.indexes.get(index_type.value)


_DAMAGED = "run tierd verify --deep; the segment may have to be copied again"


def _parse_object(content: bytes, key: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise RemoteIntegrityError(f"{key}: manifest is not JSON: {error}", remedy=_DAMAGED) from error
    if not isinstance(fields, dict):
        raise RemoteIntegrityError(f"{key}: manifest is not a JSON object", remedy=_DAMAGED)
    return fields


def index_contents(data: LogSegmentData) -> Mapping[IndexType, bytes]:
    """The artefacts of the ``.indexes`` object in their order; one that the segment has not is left out."""
    contents = {
        IndexType.OFFSET: data.offset_index,
        IndexType.TIMESTAMP: data.time_index,
        IndexType.TRANSACTION: data.transaction_index,
        IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot,
        IndexType.LEADER_EPOCH: data.leader_epoch_index,
    }
    return MappingProxyType({kind: content for kind, content in contents.items() if content is not None})


def _describe_log(checksums: BlockChecksums, chunk_size: int) -> LogArtefact:
    starts = range(0, checksums.size_bytes, chunk_size)
    ranges = [ByteRange(start, min(start + chunk_size, checksums.size_bytes) - 1) for start in starts]
    return LogArtefact(
        size_bytes=checksums.size_bytes,
        crc32c=crc32c_of_file(checksums),
        chunk_size_bytes=chunk_size,
        chunks=tuple(LogChunk(size_bytes=r.size, crc32c=crc32c_of_range(checksums, r)) for r in ranges),
    )


def _describe_indexes(contents: Mapping[IndexType, bytes]) -> dict[str, IndexArtefact]:
    described, position = {}, 0
    for kind, content in contents.items():
        described[kind.value] = IndexArtefact(position=position, size_bytes=len(content), crc32c=crc32c(content))
        position += len(content)
    return described


def tierd_version() -> str:
    """The version of the installed package."""
    return version("tierd")
