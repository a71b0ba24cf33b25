"""The export of a metadata store as text, one JSON object a line; no I/O.

::

    {"format":"tierd-metadata","format_version":1,"cluster_id":…,"store_id":…,"exported_ms":…,"tiers":[…],
     "erasures":[{"key":…,"value":{…}}]}                          the last field only where there are such requests
    {"topic":…,"topic_id":…,"partition":0,"rows":2,"crc32c":"…"}        a partition, then so many rows of this checksum
    {"key":"row","value":{…}}                                        key below the partition's prefix, fields as stored
    {"key":"seg/…","value":{…}}
    {"group":…,"rows":2,"crc32c":"…"}                                   a consumer group, then so many rows
    {"key":"row","value":{…}}
    {"key":"offset/…","value":{…}}
    {"end":true,"partitions":1,"rows":2,"groups":1}                   without this line the file is cut short

Fields that this tierd does not know are carried along. ``format_version`` is 2 for an export with groups, which earlier
versions of tierd refuse; another one is refused here.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeVar, cast
from uuid import UUID

from tierd.errors import MetadataExportError
from tierd.json_parsing import parse_json
from tierd.kernels import crc32c
from tierd.metadata.rows import text_field
from tierd.model import TopicIdPartition, uuid_from_text, uuid_to_text

FORMAT: Final = "tierd-metadata"
FORMAT_VERSION: Final = 1
FORMAT_VERSION_WITH_GROUPS: Final = 2
_encode_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ExportHeader:
    """Origin of the exported metadata.

    Attributes:
        cluster_id: of the Kafka cluster.
        store_id: identity of the exported store; None when it never had one.
        exported_ms: wall clock of the export.
        tiers: key prefixes that the store has made its own.
        erasures: rows of requests to erase keys, by key below their prefix; open ones have the keys in them. Earlier
            versions of tierd export none.
        has_groups: consumer groups follow the partitions.
    """

    cluster_id: str
    store_id: UUID | None
    exported_ms: int
    tiers: tuple[str, ...]
    erasures: Mapping[str, Mapping[str, object]] = field(default_factory=dict, repr=False)
    has_groups: bool = False

    @property
    def source(self) -> str:
        """Return the name that distinguishes this export from others."""
        return f"store {self.store_id}, exported {self.exported_ms}"


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """One partition: its rows by key below its prefix, in order; each value is the fields of the stored one."""

    partition: TopicIdPartition
    rows: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class ExportedGroup:
    """One consumer group: its rows by key below its prefixes, in order; each value is the fields of the stored one."""

    group: str
    rows: Mapping[str, Mapping[str, object]]


def header_line(header: ExportHeader) -> str:
    """Return the first line."""
    fields: dict[str, object] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION_WITH_GROUPS if header.has_groups else FORMAT_VERSION,
        "cluster_id": header.cluster_id,
        "store_id": None if header.store_id is None else str(header.store_id),
        "exported_ms": header.exported_ms,
        "tiers": list(header.tiers),
    }
    if header.erasures:
        fields["erasures"] = [{"key": key, "value": value} for key, value in header.erasures.items()]
    return _line(fields)


def partition_lines(exported: ExportedPartition) -> list[str]:
    """Return the lines of a partition."""
    lines = [_line({"key": key, "value": value}) for key, value in exported.rows.items()]
    head = {
        "topic": exported.partition.topic,
        "topic_id": uuid_to_text(exported.partition.topic_id),
        "partition": exported.partition.partition,
        "rows": len(lines),
        "crc32c": _checksum(lines),
    }
    return [_line(head), *lines]


def group_lines(exported: ExportedGroup) -> list[str]:
    """Return the lines of a consumer group."""
    lines = [_line({"key": key, "value": value}) for key, value in exported.rows.items()]
    return [_line({"group": exported.group, "rows": len(lines), "crc32c": _checksum(lines)}), *lines]


def end_line(*, partitions: int, rows: int, groups: int = 0) -> str:
    """Return the last line; ``rows`` are those of the partitions."""
    counts = {"partitions": partitions, "rows": rows} | ({"groups": groups} if groups else {})
    return _line({"end": True, **counts})


class ExportReader:
    """Reader of an export, line by line, with checks. The constructor reads the header.

    Raises:
        MetadataExportError: the lines are no export, or of another format version.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._number = 0
        self.header = self._parsed(self._next(), _header_of)

    def sections(self) -> Iterator[ExportedPartition | ExportedGroup]:
        """Yield every partition, then every group, then check that the file was whole.

        Raises:
            MetadataExportError: the export is cut short or was changed; names the line.
        """
        partitions = rows = groups = 0
        while True:
            line = self._next()
            fields = self._parsed(line, lambda fields: fields)
            if fields.get("end") is True:
                if (fields.get("partitions"), fields.get("rows")) != (partitions, rows):
                    self._refuse(f"it says {fields}, but {partitions} partitions with {rows} rows came before it")
                if fields.get("groups", 0) != groups:
                    self._refuse(f"it says {fields}, but {groups} groups came before it")
                return
            if "group" in fields:
                groups += 1
                yield self._group(fields)
                continue
            exported = self._partition(fields)
            partitions, rows = partitions + 1, rows + len(exported.rows)
            yield exported

    def _partition(self, fields: dict[str, object]) -> ExportedPartition:
        partition = self._checked(lambda: _partition_of(fields))
        return ExportedPartition(partition, self._rows(fields, str(partition)))

    def _group(self, fields: dict[str, object]) -> ExportedGroup:
        group = self._checked(lambda: text_field(fields, "group"))
        return ExportedGroup(group, self._rows(fields, f"group {group!r}"))

    def _rows(self, fields: dict[str, object], owner: str) -> dict[str, dict[str, object]]:
        count, checksum = self._checked(lambda: (_int(fields, "rows"), text_field(fields, "crc32c")))
        lines = [self._next() for _ in range(count)]
        if _checksum(lines) != checksum:
            self._refuse(f"the {count} rows of {owner} that end here do not have their checksum")
        return dict(self._parsed(line, _row_of) for line in lines)

    def _next(self) -> str:
        line = next(self._lines, "")
        self._number += 1
        if not line.endswith("\n"):
            self._refuse("the file is cut short here")
        return line

    def _parsed(self, line: str, convert: Callable[[dict[str, object]], _T]) -> _T:
        def parse() -> _T:
            fields = parse_json(line)
            if not isinstance(fields, dict):
                raise TypeError("not a JSON object")
            return convert(cast("dict[str, object]", fields))

        return self._checked(parse)

    def _checked(self, parse: Callable[[], _T]) -> _T:
        try:
            return parse()
        except KeyError as error:
            problem = f"the field {error} is missing"
        except (ValueError, TypeError) as error:
            problem = str(error) or type(error).__name__
        return self._refuse(problem)

    def _refuse(self, problem: str) -> NoReturn:
        raise MetadataExportError(
            f"line {self._number} of the export: {problem}", remedy="use another export, or make it anew"
        )


def _header_of(fields: dict[str, object]) -> ExportHeader:
    if fields.get("format") != FORMAT:
        raise ValueError("this is no export of tierd's metadata")
    found = fields.get("format_version")
    if found not in (FORMAT_VERSION, FORMAT_VERSION_WITH_GROUPS):
        raise ValueError(f"format_version {found!r}, this tierd reads {FORMAT_VERSION_WITH_GROUPS}; use a later tierd")
    store_id = fields["store_id"]
    tiers = fields["tiers"]
    if not isinstance(tiers, list):
        raise TypeError("tiers is no list")
    erasures = fields.get("erasures", [])
    if not isinstance(erasures, list) or not all(isinstance(each, dict) for each in erasures):
        raise TypeError("erasures is no list of objects")
    return ExportHeader(
        cluster_id=text_field(fields, "cluster_id"),
        store_id=None if store_id is None else UUID(text_field(fields, "store_id")),
        exported_ms=_int(fields, "exported_ms"),
        tiers=tuple(map(str, tiers)),
        erasures=dict(map(_row_of, erasures)),
        has_groups=found == FORMAT_VERSION_WITH_GROUPS,
    )


def _partition_of(fields: dict[str, object]) -> TopicIdPartition:
    topic_id = uuid_from_text(text_field(fields, "topic_id"))
    return TopicIdPartition(topic_id, text_field(fields, "topic"), _int(fields, "partition"))


def _row_of(fields: dict[str, object]) -> tuple[str, dict[str, object]]:
    value = fields["value"]
    if not isinstance(value, dict):
        raise TypeError("value is no object")
    return text_field(fields, "key"), cast("dict[str, object]", value)


def _int(fields: dict[str, object], name: str) -> int:
    value = fields[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {value!r}, not a number")
    return value


def _checksum(lines: Sequence[str]) -> str:
    crc = 0
    for line in lines:
        crc = crc32c(line.encode(), crc)
    return f"{crc:08x}"


def _line(fields: Mapping[str, object]) -> str:
    return _encode_json(fields) + "\n"
