"""OffsetMap: offsets of the source to offsets of the target, as ranges; and its file of JSON lines.

::

    {"offset_map":1,"source_cluster":"…","target_cluster":"…"}
    {"source":"orders-0","target":"orders-0","start":100,"count":50,"new":0}       100 became 0, 149 became 49
    {"source":"orders-0","target":"orders-0","start":151,"count":9,"new":50}

The lines of a partition ascend. An offset that no range has was not restored: a marker of a transaction, an aborted
record, or one that compaction had removed. A position there becomes the one behind the record before, so that a group
reads what other producers have written between the two in the target.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from tierd.errors import RefusedError, StateDirError
from tierd.json_parsing import parse_json
from tierd.model import TopicPartition
from tierd.restore.live_cluster.delivery_window import Acknowledged

_MAGIC: Final = "offset_map"
_VERSION: Final = 1


class MappedRange(NamedTuple):
    """``length`` neighbouring records: from ``start`` on in the source, from ``new_start`` on in the target."""

    start: int
    length: int
    new_start: int

    @property
    def end(self) -> int:
        """Return the exclusive end in the source."""
        return self.start + self.length

    @property
    def new_end(self) -> int:
        """Return the exclusive end in the target."""
        return self.new_start + self.length


class MappedPosition(NamedTuple):
    """A position in the target; ``is_lowered`` if the records that it stood behind were not all restored."""

    offset: int
    is_lowered: bool


class RangeJoiner:
    """Maker of ranges from acknowledged batches; neighbours become one range."""

    def __init__(self) -> None:
        self._ranges: list[MappedRange] = []

    def add(self, acknowledged: Acknowledged) -> None:
        """Take the next batch of the partition."""
        new_start = acknowledged.base_offset
        if new_start < 0:
            return
        for run in acknowledged.batch.runs:
            _add(self._ranges, MappedRange(run.start, run.length, new_start))
            new_start += run.length

    def take(self) -> list[MappedRange]:
        """Return the ranges since the last call, ascending, and forget them."""
        taken, self._ranges = self._ranges, []
        return taken


@dataclass(frozen=True, slots=True)
class PartitionMap:
    """Ranges of one partition, ascending."""

    target: TopicPartition
    ranges: list[MappedRange] = field(default_factory=list)

    def translated(self, offset: int) -> MappedPosition | None:
        """Return the position in the target for the next offset that a group reads; None if nothing was restored."""
        if not self.ranges:
            return None
        at = bisect_right(self.ranges, offset - 1, key=lambda each: each.start)  # by the last offset that it has read
        if not at:
            return MappedPosition(self.ranges[0].new_start, is_lowered=False)
        found = self.ranges[at - 1]
        is_lowered = at == len(self.ranges) and offset > found.end
        return MappedPosition(found.new_start + min(offset, found.end) - found.start, is_lowered=is_lowered)


OffsetMap = Mapping[TopicPartition, PartitionMap]


def header_line(*, source_cluster: str, target_cluster: str) -> bytes:
    """Return the first line of a file."""
    return _line({_MAGIC: _VERSION, "source_cluster": source_cluster, "target_cluster": target_cluster})


def range_lines(source: TopicPartition, target: TopicPartition, ranges: Iterable[MappedRange]) -> bytes:
    """Return the lines of some ranges of a partition."""
    return b"".join(
        _line(
            {
                "source": str(source),
                "target": str(target),
                "start": each.start,
                "count": each.length,
                "new": each.new_start,
            }
        )
        for each in ranges
    )


def read_offset_map(path: Path, *, target_cluster: str) -> OffsetMap:
    """Read a file. Blocking.

    Raises:
        StateDirError: it cannot be read, or is no offset map.
        RefusedError: it is that of another target cluster.
    """
    maps: dict[TopicPartition, PartitionMap] = {}
    try:
        with path.open("rb") as file:
            lines = _objects(file)
            header = next(lines, {})
            if header.get(_MAGIC) != _VERSION:
                raise _damaged(path, 1)
            if header.get("target_cluster") != target_cluster:
                raise RefusedError(
                    f"{path} is the map of a restore into cluster {header.get('target_cluster')}, "
                    f"--to names {target_cluster}",
                    remedy="give the map that tierd restore topic printed for this cluster",
                )
            for number, line in enumerate(lines, start=2):
                try:
                    source, target = TopicPartition.parse(line["source"]), TopicPartition.parse(line["target"])
                    found = MappedRange(int(line["start"]), int(line["count"]), int(line["new"]))
                except (KeyError, TypeError, ValueError) as error:
                    raise _damaged(path, number) from error
                _add(maps.setdefault(source, PartitionMap(target)).ranges, found)
    except OSError as error:
        raise StateDirError(f"{path}: {error.strerror}", remedy="name the offset-map.jsonl of the restore") from error
    except ValueError as error:
        raise _damaged(path, 0) from error
    return maps


def _add(ranges: list[MappedRange], found: MappedRange) -> None:
    """Add a range; one that continues the last, as at every checkpoint of the restore, is joined with it."""
    if ranges and (ranges[-1].end, ranges[-1].new_end) == (found.start, found.new_start):
        ranges[-1] = ranges[-1]._replace(length=ranges[-1].length + found.length)
    else:
        ranges.append(found)


def _objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        value = parse_json(line)
        if not isinstance(value, dict):
            raise ValueError("a line is no object")  # noqa: TRY004 - of the file, not of the program
        yield value


def _line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _damaged(path: Path, number: int) -> StateDirError:
    place = f", line {number}," if number else ""
    return StateDirError(
        f"{path}{place} is no line of an offset map", remedy="name the offset-map.jsonl of the restore"
    )
