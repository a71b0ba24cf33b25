"""The parts of a manifest: artefacts, compression, encryption. Fields that this version does not know are kept."""

import base64
import binascii
import re
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from tierd.model import TimestampRange
from tierd.remote.transform.chunk_layout import StoredChunk
from tierd.remote.transform.key_ring import WrappedKey

_CRC = re.compile(r"[0-9a-f]{8}")


def _parse_crc(value: object) -> object:
    return int(value, 16) if isinstance(value, str) and _CRC.fullmatch(value) else value


Crc32c = Annotated[
    int,
    BeforeValidator(_parse_crc),
    PlainSerializer(lambda crc: f"{crc:08x}", return_type=str),
    Field(ge=0, lt=2**32),
]
Size = Annotated[int, Field(ge=0, lt=2**63)]
ManifestNumber = Annotated[int, Field(ge=-1, lt=2**63)]
"""What the row of a segment can hold."""


class ManifestPart(BaseModel):
    """Frozen object of the JSON form of a manifest."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class LogChunk(ManifestPart):
    """One chunk of the ``.log`` object as it is stored, and the checksum of what it stores.

    The timestamps are those of the records of every batch that overlaps the chunk, both inclusive. Both are None where
    they are not known.
    """

    size_bytes: Size
    crc32c: Crc32c
    compressed: bool = False
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Leave out fields at their defaults, as manifests were before there was compression and times were noted."""
        fields: dict[str, object] = handler(self)
        for name, default in (("compressed", False), ("min_timestamp_ms", None), ("max_timestamp_ms", None)):
            if fields[name] is default and name not in self.model_fields_set:
                del fields[name]
        return fields

    @classmethod
    def of(cls, chunk: StoredChunk, timestamps: TimestampRange | None) -> Self:
        """Describe the stored object."""
        fields: dict[str, int] = {"size_bytes": chunk.size_bytes, "crc32c": chunk.crc32c}
        if chunk.is_compressed:
            fields["compressed"] = True
        if timestamps is not None:
            fields |= {"min_timestamp_ms": timestamps.min_ms, "max_timestamp_ms": timestamps.max_ms}
        return cls.model_validate(fields)

    @property
    def stored(self) -> StoredChunk:
        """Return the same chunk as a value for arithmetic."""
        return StoredChunk(self.size_bytes, self.crc32c, self.compressed)

    @property
    def timestamps(self) -> TimestampRange | None:
        """Return the times of the records of the chunk; None where they are not known."""
        if self.min_timestamp_ms is None or self.max_timestamp_ms is None:
            return None
        return TimestampRange(self.min_timestamp_ms, self.max_timestamp_ms)


class LogArtefact(ManifestPart):
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


class IndexArtefact(ManifestPart):
    """Place of one artefact in the ``.indexes`` object; the checksum is that of the original bytes."""

    position: Size
    size_bytes: Size
    crc32c: Crc32c


class ManifestCompression(ManifestPart):
    """Codec of the compressed chunks; each chunk says whether it is compressed. ``level`` is what was asked for."""

    type: Literal["none", "zstd"] = "none"

    @classmethod
    def at(cls, level: int | None) -> Self:
        """Return the part for ``level``; None is no compression."""
        return cls() if level is None else cls.model_validate({"type": "zstd", "level": level})


class Encryption(ManifestPart):
    """The segment's data key, wrapped, and the tag of the manifest under it.

    Attributes:
        key_id: of the ring's key that wraps the data key.
        wrapped_key: base64.
        manifest_tag: over everything in the manifest but these three fields.
    """

    algorithm: Literal["AES-256-GCM"] = "AES-256-GCM"
    key_id: str
    wrapped_key: str
    manifest_tag: str

    @classmethod
    def under(cls, wrapped: WrappedKey) -> Self:
        """Return the part of a manifest that is not sealed yet."""
        return cls(key_id=wrapped.key_id, wrapped_key=base64.b64encode(wrapped.wrapped).decode(), manifest_tag="")

    @property
    def wrapped(self) -> WrappedKey:
        """Return the wrapped data key.

        Raises:
            ValueError: the key is not base64.
        """
        try:
            return WrappedKey(self.key_id, base64.b64decode(self.wrapped_key, validate=True))
        except binascii.Error as error:
            raise ValueError(f"wrapped_key is not base64: {error}") from error

    def rewrapped(self, wrapped: WrappedKey) -> Self:
        """Return the same data key under another key of the ring; the tag stays as it is."""
        fresh = type(self).under(wrapped)
        return self.model_copy(update={"key_id": fresh.key_id, "wrapped_key": fresh.wrapped_key})
