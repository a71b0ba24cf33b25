"""Fields of messages: how each kind of value is written and read, and structures of fields.

A structure writes and reads the attributes of a dataclass, in the order of its fields, and ends with tagged fields.
TaggedField fields of another version are passed over.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from tierd.replication.wire.frame_reader import FrameReader
from tierd.replication.wire.frame_writer import FrameWriter

T = TypeVar("T")
MAX_ITEMS = 200_000
"""Items of one array: partitions of a message."""


class FieldKind(Protocol):
    """Kind of value."""

    @property
    def min_bytes(self) -> int:
        """Return the smallest size of an encoded value."""

    def write(self, writer: FrameWriter, value: Any) -> None:  # noqa: ANN401 - of the kind
        """Append a value."""

    def read(self, reader: FrameReader) -> Any:  # noqa: ANN401 - of the kind
        """Return the next value.

        Raises:
            DamagedMessageError: it is cut short, or its length does not fit.
        """


class _Number:
    def __init__(self, layout: str) -> None:
        self._layout = struct.Struct(layout)
        self.min_bytes = self._layout.size

    def write(self, writer: FrameWriter, value: int) -> None:
        writer.pack(self._layout, value)

    def read(self, reader: FrameReader) -> int:
        return reader.unpack(self._layout)[0]


class _Boolean(_Number):
    def read(self, reader: FrameReader) -> bool:
        return bool(super().read(reader))


class _Uuid:
    min_bytes = 16

    def write(self, writer: FrameWriter, value: UUID) -> None:
        writer.uuid(value)

    def read(self, reader: FrameReader) -> UUID:
        return reader.uuid()


class _String:
    min_bytes = 1

    def write(self, writer: FrameWriter, value: str) -> None:
        writer.string(value)

    def read(self, reader: FrameReader) -> str:
        return reader.string()


class _TextPair:
    """Two texts, such as the name and the value of a setting, with tagged fields behind them."""

    min_bytes = 3

    def write(self, writer: FrameWriter, value: tuple[str, str]) -> None:
        for text in value:
            writer.string(text)
        writer.varint(0)

    def read(self, reader: FrameReader) -> tuple[str, str]:
        pair = reader.string(), reader.string()
        for _, size_bytes in read_tags(reader):
            reader.skip(size_bytes)
        return pair


class _Records:
    """Record bytes; ``absent`` is the value for no bytes."""

    min_bytes = 1

    def __init__(self, absent: tuple[()] | None) -> None:
        self._absent = absent

    def write(self, writer: FrameWriter, value: Sequence[Any] | None) -> None:
        writer.records(value or None if self._absent == () else value)

    def read(self, reader: FrameReader) -> tuple[memoryview, ...] | None:
        found = reader.records()
        return self._absent if found is None else (found,)


INT8, INT16, INT32, INT64 = _Number(">b"), _Number(">h"), _Number(">i"), _Number(">q")
BOOLEAN, UUID_BYTES, STRING = _Boolean(">b"), _Uuid(), _String()
TEXT_PAIR = _TextPair()
NULLABLE_RECORDS, RECORDS = _Records(None), _Records(())


class Enumerated(Generic[T]):
    """Number of one byte that stands for a member of an enumeration."""

    min_bytes = 1

    def __init__(self, kind: Callable[[int], T]) -> None:
        self._kind = kind

    def write(self, writer: FrameWriter, value: int) -> None:
        """Append the number."""
        INT8.write(writer, value)

    def read(self, reader: FrameReader) -> T:
        """Return the member."""
        number = INT8.read(reader)
        try:
            return self._kind(number)
        except ValueError as error:
            raise reader.damaged(f"the unknown value {number}") from error


class Array:
    """Compact array, as a tuple; None stands for no array where it ``is_nullable``."""

    min_bytes = 1

    def __init__(self, item: FieldKind, *, is_nullable: bool = False) -> None:
        self._item = item
        self._is_nullable = is_nullable

    def write(self, writer: FrameWriter, value: Sequence[Any] | None) -> None:
        """Append the items."""
        if value is None:
            writer.varint(0)
            return
        writer.varint(len(value) + 1)
        for item in value:
            self._item.write(writer, item)

    def read(self, reader: FrameReader) -> tuple[Any, ...] | None:
        """Return the items."""
        count = reader.count(item_bytes=self._item.min_bytes)
        if count is None and self._is_nullable:
            return None
        if count is None or count > MAX_ITEMS:
            raise reader.damaged("no array where one belongs" if count is None else f"an array of {count} items")
        return tuple([self._item.read(reader) for _ in range(count)])


class TaggedField(NamedTuple):
    """Field that is written only if it differs from ``default``."""

    kind: FieldKind
    default: object


@dataclass(frozen=True, slots=True)
class Struct:
    """Structure of fields.

    Attributes:
        kind: makes a value of the fields' names.
        fields: in the order of the wire.
        tagged: by tag, with the attribute's name.
    """

    kind: Callable[..., Any]
    fields: Mapping[str, FieldKind]
    tagged: Mapping[int, tuple[str, TaggedField]] = field(default_factory=dict)

    @property
    def min_bytes(self) -> int:
        """Return the size of a value with empty arrays and texts."""
        return sum(kind.min_bytes for kind in self.fields.values()) + 1

    def write(self, writer: FrameWriter, value: Any) -> None:  # noqa: ANN401 - of ``kind``
        """Append a value."""
        for name, kind in self.fields.items():
            kind.write(writer, getattr(value, name))
        present = [
            (tag, tagged.kind, attribute)
            for tag, (name, tagged) in self.tagged.items()
            if (attribute := getattr(value, name)) != tagged.default
        ]
        writer.varint(len(present))
        for tag, kind, attribute in present:
            body = FrameWriter()
            kind.write(body, attribute)
            data = b"".join(body.finish())[4:]
            writer.varint(tag)
            writer.varint(len(data))
            writer.raw(data)

    def read(self, reader: FrameReader) -> Any:  # noqa: ANN401 - of ``kind``
        """Return the next value."""
        return self.kind(**self.read_fields(reader))

    def read_fields(self, reader: FrameReader) -> dict[str, Any]:
        """Return the fields of the next value by name."""
        found = {name: kind.read(reader) for name, kind in self.fields.items()}
        for tag, size_bytes in read_tags(reader):
            known = self.tagged.get(tag)
            if known is None:
                reader.skip(size_bytes)
                continue
            name, tagged = known
            before = reader.left_bytes
            found[name] = tagged.kind.read(reader)
            if before - reader.left_bytes != size_bytes:
                raise reader.damaged(f"a tagged field of {size_bytes} bytes with another size")
        return found


def read_tags(reader: FrameReader) -> "_Tags":
    """Return tag and size of each tagged field; the caller reads or skips each before the next one."""
    return _Tags(reader)


class _Tags:
    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        self._left = reader.varint()
        self._last = -1

    def __iter__(self) -> "_Tags":
        return self

    def __next__(self) -> tuple[int, int]:
        if not self._left:
            raise StopIteration
        self._left -= 1
        tag = self._reader.varint()
        if tag <= self._last:
            raise self._reader.damaged(f"tag {tag} behind tag {self._last}")
        self._last = tag
        size_bytes = self._reader.varint()
        if size_bytes > self._reader.left_bytes:
            raise self._reader.damaged(f"a tagged field of {size_bytes} bytes")
        return tag, size_bytes


class ByTopic:
    """Partitions with a topic id each, as a tuple; on the wire they are grouped by topic, and keep their order."""

    min_bytes = 1

    def __init__(self, partition: Struct) -> None:
        """Write and read each partition without its ``topic_id``."""
        self._partition = partition

    def write(self, writer: FrameWriter, value: Sequence[Any]) -> None:
        """Append the partitions."""
        topics = [(topic_id, list(of_topic)) for topic_id, of_topic in groupby(value, key=lambda each: each.topic_id)]
        writer.varint(len(topics) + 1)
        for topic_id, partitions in topics:
            writer.uuid(topic_id)
            writer.varint(len(partitions) + 1)
            for each in partitions:
                self._partition.write(writer, each)
            writer.varint(0)

    def read(self, reader: FrameReader) -> tuple[Any, ...]:
        """Return the partitions."""
        found: list[Any] = []
        for _ in range(reader.count(item_bytes=_Uuid.min_bytes + 2) or 0):
            topic_id = reader.uuid()
            count = reader.count(item_bytes=self._partition.min_bytes) or 0
            if len(found) + count > MAX_ITEMS:
                raise reader.damaged(f"more than {MAX_ITEMS} partitions")
            found += [
                self._partition.kind(topic_id=topic_id, **self._partition.read_fields(reader)) for _ in range(count)
            ]
            for _, size_bytes in read_tags(reader):
                reader.skip(size_bytes)
        return tuple(found)
