"""Fields of messages: how each kind of value is written and read, and structures of fields.

A structure writes and reads the attributes of a dataclass, in the order of its fields, and ends with tagged fields.
Tagged fields of another version are passed over.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from tierd.replication.wire.frame_reader import FrameReader
from tierd.replication.wire.frame_writer import FrameWriter

T = TypeVar("T")


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


class Number:
    """Number, or boolean, of a fixed size; ``code`` is its format in ``struct``."""

    def __init__(self, code: str) -> None:
        self.code = code
        self._layout = struct.Struct(f">{code}")
        self.min_bytes = self._layout.size

    def write(self, writer: FrameWriter, value: int) -> None:
        """Append the number."""
        writer.pack(self._layout, value)

    def read(self, reader: FrameReader) -> int:
        """Return the number."""
        return reader.unpack(self._layout)[0]


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


INT8, INT16, INT32, INT64 = Number("b"), Number("h"), Number("i"), Number("q")
BOOLEAN, UUID_BYTES, STRING = Number("?"), _Uuid(), _String()
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
    """Compact array, as a tuple."""

    min_bytes = 1

    def __init__(self, item: FieldKind) -> None:
        self._item = item

    def write(self, writer: FrameWriter, value: Sequence[Any]) -> None:
        """Append the items."""
        writer.varint(len(value) + 1)
        for item in value:
            self._item.write(writer, item)

    def read(self, reader: FrameReader) -> tuple[Any, ...]:
        """Return the items."""
        count = reader.count(item_bytes=self._item.min_bytes)
        if count is None:
            raise reader.damaged("no array where one belongs")
        return tuple([self._item.read(reader) for _ in range(count)])


class TaggedField(NamedTuple):
    """Field that is written only if it differs from ``default``."""

    kind: FieldKind
    default: object


class Struct:
    """Structure of fields. Numbers that follow each other are written and read together.

    Attributes:
        kind: makes a value of the fields' names.
        min_bytes: size of a value with empty arrays and texts.
    """

    def __init__(
        self,
        kind: Callable[..., Any],
        fields: Mapping[str, FieldKind],
        tagged: Mapping[int, tuple[str, TaggedField]] | None = None,
    ) -> None:
        """Describe a structure with ``fields`` in the order of the wire, and ``tagged`` ones by tag."""
        self.kind = kind
        self.min_bytes = sum(each.min_bytes for each in fields.values()) + 1
        self._tagged = tagged or {}
        self._runs = [_run(run) for run in _runs(fields)]

    def write(self, writer: FrameWriter, value: Any) -> None:  # noqa: ANN401 - of ``kind``
        """Append a value."""
        for names, layout, kind in self._runs:
            if layout is not None:
                writer.pack(layout, *[getattr(value, name) for name in names])
            else:
                kind.write(writer, getattr(value, names[0]))
        if not self._tagged:
            writer.varint(0)
            return
        present = [
            (tag, tagged.kind, attribute)
            for tag, (name, tagged) in self._tagged.items()
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
        found: dict[str, Any] = {}
        for names, layout, kind in self._runs:
            if layout is not None:
                found.update(zip(names, reader.unpack(layout), strict=True))
            else:
                found[names[0]] = kind.read(reader)
        for tag, size_bytes in read_tags(reader):
            known = self._tagged.get(tag)
            if known is None:
                reader.skip(size_bytes)
                continue
            name, tagged = known
            before = reader.left_bytes
            found[name] = tagged.kind.read(reader)
            if before - reader.left_bytes != size_bytes:
                raise reader.damaged(f"a tagged field of {size_bytes} bytes with another size")
        return found


def _runs(fields: Mapping[str, FieldKind]) -> list[list[tuple[str, FieldKind]]]:
    runs: list[list[tuple[str, FieldKind]]] = []
    for name, kind in fields.items():
        if runs and isinstance(kind, Number) and isinstance(runs[-1][-1][1], Number):
            runs[-1].append((name, kind))
        else:
            runs.append([(name, kind)])
    return runs


def _run(run: list[tuple[str, FieldKind]]) -> tuple[tuple[str, ...], struct.Struct | None, FieldKind]:
    """Return the names of a run, the layout if it is one of numbers, and the kind of the first field."""
    codes = [kind.code for _, kind in run if isinstance(kind, Number)]
    layout = struct.Struct(">" + "".join(codes)) if codes else None
    return tuple(name for name, _ in run), layout, run[0][1]


def read_tags(reader: FrameReader) -> Iterable[tuple[int, int]]:
    """Return tag and size of each tagged field; the caller reads or skips each before the next one."""
    count = reader.varint()
    return _Tags(reader, count) if count else ()


class _Tags:
    def __init__(self, reader: FrameReader, count: int) -> None:
        self._reader = reader
        self._left = count
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
            found += [
                self._partition.kind(topic_id=topic_id, **self._partition.read_fields(reader)) for _ in range(count)
            ]
            for _, size_bytes in read_tags(reader):
                reader.skip(size_bytes)
        return tuple(found)


class ByHead:
    """Values of which neighbours share fields, as a nullable tuple; on the wire, the shared ones are written once.

    A reader's values share them as well: thousands of partitions of one topic take the memory of its settings once.
    """

    min_bytes = 1

    def __init__(self, kind: Callable[..., Any], head: Mapping[str, FieldKind], rest: Mapping[str, FieldKind]) -> None:
        """Make values by ``kind``, with the shared fields of ``head`` and their own ones of ``rest``."""
        self._kind = kind
        self._head_of = attrgetter(*head)
        self._head = Struct(SimpleNamespace, head)
        self._rest = Struct(kind, rest)

    def write(self, writer: FrameWriter, value: Sequence[Any] | None) -> None:
        """Append the values."""
        if value is None:
            writer.varint(0)
            return
        groups = [list(group) for _, group in groupby(value, key=self._head_of)]
        writer.varint(len(groups) + 1)
        for group in groups:
            self._head.write(writer, group[0])
            writer.varint(len(group) + 1)
            for each in group:
                self._rest.write(writer, each)

    def read(self, reader: FrameReader) -> tuple[Any, ...] | None:
        """Return the values."""
        groups = reader.count(item_bytes=self._head.min_bytes + 1)
        if groups is None:
            return None
        found: list[Any] = []
        for _ in range(groups):
            head = self._head.read_fields(reader)
            count = reader.count(item_bytes=self._rest.min_bytes) or 0
            found += [self._kind(**head, **self._rest.read_fields(reader)) for _ in range(count)]
        return tuple(found)
