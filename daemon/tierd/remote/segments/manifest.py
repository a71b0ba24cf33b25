"""SegmentManifest: the commit mark of a segment in the bucket, enough by itself to rebuild metadata (DESIGN 4).

JSON of ``format_version`` 1. Fields that this version does not know are kept when a manifest is written again; another
``format_version``, compression or algorithm is refused. Checksums are CRC-32C in eight hexadecimal digits.

The manifest of an encrypted segment carries a tag under the segment's data key over everything in it but the wrapping
of that key: no field can be changed unseen, and yet the key can be wrapped anew.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import zip_longest
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from tierd.errors import RemoteFormatError, RemoteIntegrityError
from tierd.json_parsing import parse_json
from tierd.kernels import crc32c_of_file
from tierd.model import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    segment_epochs_problem,
    uuid_from_text,
    uuid_to_text,
)
from tierd.remote.object_limits import MAX_CHUNK_BYTES, MAX_CHUNKS, max_index_bytes
from tierd.remote.segments.description import describe_indexes, describe_log, index_contents, plain_layout
from tierd.remote.segments.manifest_parts import (
    Encryption,
    IndexArtefact,
    LogArtefact,
    ManifestCompression,
    ManifestNumber,
    ManifestPart,
    Size,
)
from tierd.remote.transform.binding import SegmentBinding
from tierd.remote.transform.chunk_layout import ChunkLayout, original_sizes
from tierd.remote.transform.cipher import ALGORITHM, TAG_BYTES, SegmentCipher
from tierd.remote.transform.key_ring import WrappedKey

FORMAT_VERSION = 1

_UNSIGNED = ("key_id", "wrapped_key", "manifest_tag")
_DAMAGED = "run tierd verify --deep; the segment may have to be copied again"


@dataclass(frozen=True, slots=True)
class Transformation:
    """Transformation of a segment's bytes.

    Attributes:
        layout: of the stored log.
        level: of zstd; None without compression.
        wrapped_key: None without encryption.
    """

    layout: ChunkLayout
    level: int | None
    wrapped_key: WrappedKey | None


class SegmentManifest(ManifestPart):
    """One segment: identity, content and where every artefact lies. Offsets are inclusive at both ends."""

    format_version: Literal[1] = 1
    cluster_id: str
    topic: str
    topic_id: str
    partition: Annotated[int, Field(ge=0, lt=2**31)]
    segment_id: str
    start_offset: Annotated[int, Field(ge=0, lt=2**63)]
    end_offset: Annotated[int, Field(ge=0, lt=2**63)]
    segment_leader_epochs: tuple[tuple[int, int], ...]
    leader_epoch: Annotated[int, Field(ge=-1, lt=2**31)]
    broker_id: ManifestNumber
    session_id: str
    copy_started_ms: ManifestNumber
    max_timestamp_ms: ManifestNumber
    record_count: Size
    batch_count: Size
    size_bytes: Size
    txn_index_empty: bool
    log: LogArtefact
    indexes: dict[str, IndexArtefact]
    compression: ManifestCompression
    encryption: Encryption | None
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
        transformation: Transformation | None = None,
    ) -> Self:
        """Describe a segment about to be committed. The same arguments give the same manifest, byte for byte.

        The manifest of an encrypted segment has still to be ``sealed``.

        Raises:
            RemoteIntegrityError: ``decode`` would refuse it: neither readers nor a rebuild could use the segment.
        """
        partition = metadata.segment.topic_id_partition
        done = transformation or Transformation(plain_layout(data.log_checksums, chunk_size), None, None)
        manifest = cls(
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
            log=describe_log(done.layout, crc32c_of_file(data.log_checksums), data.chunk_timestamps),
            indexes=describe_indexes(index_contents(data), TAG_BYTES if done.wrapped_key else 0),
            compression=ManifestCompression.at(done.level),
            encryption=Encryption.under(done.wrapped_key) if done.wrapped_key else None,
            tierd_version=tierd_version,
        )
        if (problem := _inconsistency(manifest)) is not None:
            what = f"{metadata.segment}: its manifest would not fit together: {problem}"
            raise RemoteIntegrityError(what, remedy="nothing is committed; report this")
        return manifest

    def sealed(self, cipher: SegmentCipher) -> Self:
        """Return this manifest with its tag."""
        assert self.encryption is not None, "only an encrypted segment has a key to seal with"
        tag = cipher.tag_of(_signed(_parse_object(self.encode(), "the manifest to be sealed")))
        return self.model_copy(update={"encryption": self.encryption.model_copy(update={"manifest_tag": tag})})

    def replacing(self, segments: Iterable[RemoteLogSegmentId], cipher: SegmentCipher | None) -> Self:
        """Return this manifest as one that makes ``segments`` obsolete; sealed where the segment is encrypted."""
        named = self.model_copy(update={"replaces": tuple(uuid_to_text(segment.id) for segment in segments)})
        return named if cipher is None else named.sealed(cipher)

    def completed(self, metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        """Return ``metadata``, which was recorded before the content was known, with sizes and times of the content."""
        return replace(
            metadata,
            size_bytes=self.size_bytes,
            max_timestamp_ms=self.max_timestamp_ms,
            txn_index_empty=self.txn_index_empty,
        )

    def encode(self) -> bytes:
        """Return the JSON form, unknown fields included."""
        return (self.model_dump_json() + "\n").encode()

    @classmethod
    def decode(cls, content: bytes, *, key: str) -> Self:
        """Parse the JSON form. Call ``require_authentic`` before the manifest of an encrypted segment is used.

        Raises:
            RemoteFormatError: a ``format_version``, compression or algorithm that this tierd does not know.
            RemoteIntegrityError: the content is no manifest, or its numbers do not fit together.
        """
        fields = _parse_object(content, key)
        _require_known(fields, key)
        _require_few_chunks(fields, key)
        try:
            manifest = cls.model_validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise RemoteIntegrityError(f"{key}: manifest field {place}: {first['msg']}", remedy=_DAMAGED) from error
        if (problem := _inconsistency(manifest)) is not None:
            raise RemoteIntegrityError(f"{key}: manifest does not fit together: {problem}", remedy=_DAMAGED)
        return manifest

    def require_authentic(self, cipher: SegmentCipher, content: bytes, *, key: str) -> None:
        """Raise unless ``content``, which this was decoded from, carries the right tag.

        Raises:
            RemoteIntegrityError: a field was changed.
        """
        tag = self.encryption.manifest_tag if self.encryption else ""
        if not cipher.is_tag_of(_signed(_parse_object(content, key)), tag):
            raise RemoteIntegrityError(f"{key}: the manifest was changed: its tag does not fit", remedy=_DAMAGED)

    def require_describes(self, metadata: RemoteLogSegmentMetadata, *, key: str) -> None:
        """Raise unless this manifest is that of the segment.

        Raises:
            RemoteIntegrityError: it is the manifest of another segment.
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
        """Return the place of ``index_type``; None where the segment has no such index."""
        return self.indexes.get(index_type.value)

    @property
    def indexes_size_bytes(self) -> int:
        """Return the size of the ``.indexes`` object in bytes."""
        return max((part.position + part.size_bytes for part in self.indexes.values()), default=0)

    @property
    def is_transformed(self) -> bool:
        """Return True where the ``.log`` object is anything else than the log's bytes."""
        return self.compression.type != "none" or self.encryption is not None

    def layout(self) -> ChunkLayout:
        """Return the layout of the stored log: the place of each chunk."""
        chunks = tuple(chunk.stored for chunk in self.log.chunks)
        return ChunkLayout(self.size_bytes, self.log.chunk_size_bytes, chunks)

    def binding(self) -> SegmentBinding:
        """Return the identity that an encrypted segment is bound to.

        Raises:
            ValueError: the ids are no UUIDs.
        """
        topic_id, segment_id = uuid_from_text(self.topic_id), uuid_from_text(self.segment_id)
        return SegmentBinding(self.cluster_id, topic_id, self.partition, segment_id, self.start_offset, self.end_offset)


def _require_known(fields: Mapping[str, Any], key: str) -> None:
    compression, encryption = fields.get("compression"), fields.get("encryption")
    kind = compression.get("type") if isinstance(compression, dict) else "none"
    algorithm = encryption.get("algorithm") if isinstance(encryption, dict) else ALGORITHM
    for name, found, known in (
        ("format_version", fields.get("format_version"), (FORMAT_VERSION,)),
        ("compression type", kind, ("none", "zstd")),
        ("encryption algorithm", algorithm, (ALGORITHM,)),
    ):
        if found not in known or isinstance(found, bool):
            raise RemoteFormatError(
                f"{key}: manifest has {name} {found!r}, this tierd reads {' and '.join(map(str, known))}",
                remedy="use the tierd version that wrote it, or a newer one",
            )


def _require_few_chunks(fields: Mapping[str, Any], key: str) -> None:
    """Raise where the objects made of the chunks would fill the memory."""
    log = fields.get("log")
    chunks = log.get("chunks") if isinstance(log, dict) else None
    if isinstance(chunks, list) and len(chunks) > MAX_CHUNKS:
        what = f"{key}: manifest has {len(chunks)} chunks, and no log has more than {MAX_CHUNKS}"
        raise RemoteIntegrityError(what, remedy=_DAMAGED)


def _inconsistency(manifest: SegmentManifest) -> str | None:
    """Return the contradiction in the manifest that makes the segment unreadable; None where there is none."""
    start, end = manifest.start_offset, manifest.end_offset
    if end < start:
        return f"offsets {start}-{end} are no range"
    if (
        problem := segment_epochs_problem(manifest.segment_leader_epochs, start_offset=start, end_offset=end)
    ) is not None:
        return problem
    return _index_inconsistency(manifest) or _log_inconsistency(manifest)


def _index_inconsistency(manifest: SegmentManifest) -> str | None:
    for index_type in IndexType:
        artefact, limit = manifest.index(index_type), max_index_bytes(index_type, manifest.size_bytes)
        if artefact is not None and artefact.size_bytes > limit:
            size = f"{artefact.size_bytes} bytes of the {index_type.value} index"
            return f"{size} for a log of {manifest.size_bytes} bytes, which has at most {limit}"
    return None


def _log_inconsistency(manifest: SegmentManifest) -> str | None:
    log, growth = manifest.log, TAG_BYTES if manifest.encryption else 0
    if log.chunk_size_bytes > MAX_CHUNK_BYTES:
        return f"chunks of {log.chunk_size_bytes} bytes, and none has more than {MAX_CHUNK_BYTES}"
    for number, (size, chunk) in enumerate(
        zip_longest(original_sizes(manifest.size_bytes, log.chunk_size_bytes), log.chunks)
    ):
        if size is None or chunk is None:
            return f"{len(log.chunks)} chunks of {log.chunk_size_bytes} bytes for {manifest.size_bytes} bytes"
        if chunk.compressed and manifest.compression.type == "none":
            return f"chunk {number} is compressed, and the segment is not"
        if not (chunk.size_bytes < size + growth if chunk.compressed else chunk.size_bytes == size + growth):
            return f"chunk {number} stores {size} bytes in {chunk.size_bytes}"
        first_ms, last_ms = chunk.min_timestamp_ms, chunk.max_timestamp_ms
        if (first_ms is None) != (last_ms is None) or (first_ms or 0) > (last_ms or 0):
            return f"chunk {number} has records from {first_ms} to {last_ms} ms"
    if log.size_bytes != sum(chunk.size_bytes for chunk in log.chunks):
        return f"the log has {log.size_bytes} bytes, and its chunks have not"
    return None


def _signed(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes that the tag of a manifest covers: sorted JSON without spaces and without the wrapped key."""
    encryption = fields.get("encryption")
    kept = {k: v for k, v in encryption.items() if k not in _UNSIGNED} if isinstance(encryption, dict) else encryption
    return json.dumps({**fields, "encryption": kept}, sort_keys=True, separators=(",", ":")).encode()


def _parse_object(content: bytes, key: str) -> Mapping[str, Any]:
    try:
        fields = parse_json(content, unique_names=True)
    except ValueError as error:
        raise RemoteIntegrityError(f"{key}: manifest is not JSON: {error}", remedy=_DAMAGED) from error
    if not isinstance(fields, dict):
        raise RemoteIntegrityError(f"{key}: manifest is not a JSON object", remedy=_DAMAGED)
    return fields


@cache
def tierd_version() -> str:
    """Return the version of the installed package, which does not change while a process lives."""
    return version("tierd")
