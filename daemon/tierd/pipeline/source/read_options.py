"""Options of a query, parsed once. The names are those of Spark's own Kafka source, and a few of tierd's."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.config import parse_bytes
from tierd.json_parsing import parse_json
from tierd.model import TopicPartition
from tierd.pipeline.pipeline_errors import ReadOptionError
from tierd.pipeline.source.positions import (
    EARLIEST,
    LATEST,
    AtOffsets,
    LogPlace,
    QueryPosition,
    SinceTime,
    parse_offsets,
    parse_position,
)

DEFAULT_CONFIG: Final = "/etc/tierd/tierd.yaml"
DEFAULT_PARTITION_BYTES: Final = 64 << 20

NAMES: Final = (
    *("subscribe", "subscribePattern", "assign", "config", "isolation", "includeHeaders", "includeLocal"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss"),
    *("minPartitions", "maxRecordsPerPartition", "partitionBytes", "maxOffsetsPerTrigger", "maxBytesPerTrigger"),
)
_CHOICES: Final = ("subscribe", "subscribePattern", "assign")
_BY_LOWER: Final = {name.lower(): name for name in NAMES}


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """Choice of partitions; exactly one of the three is set."""

    topics: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    assigned: frozenset[TopicPartition] | None = None

    def __contains__(self, name: TopicPartition) -> bool:
        if self.topics is not None:
            return name.topic in self.topics
        if self.pattern is not None:
            return self.pattern.fullmatch(name.topic) is not None
        return self.assigned is not None and name in self.assigned

    @property
    def required_topics(self) -> frozenset[str]:
        """Return the topics that must be there; a pattern requires none."""
        return self.topics or frozenset(name.topic for name in self.assigned or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a query.

    Attributes:
        config: tierd's configuration file, read where the query is planned.
        partition_bytes: stored bytes that one task should read.
        min_partitions: least number of tasks, where there are enough offsets.
        max_records_per_partition: offsets that one task may have at most.
        max_offsets_per_trigger: offsets of a micro-batch at most.
        max_bytes_per_trigger: stored bytes of a micro-batch at most, about.
    """

    choice: PartitionChoice
    config: Path
    starting: QueryPosition
    ending: QueryPosition
    is_committed: bool
    include_headers: bool
    include_local: bool
    fail_on_data_loss: bool
    partition_bytes: int
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None


def parse_options(given: Mapping[str, str], *, is_streaming: bool) -> ReadOptions:
    """Parse the options of a query.

    Args:
        given: options from Spark; the case of names does not matter.
        is_streaming: True for a query without an end, whose default start is the latest offset.

    Raises:
        ReadOptionError: an option is unknown, and the nearest known name is shown, or a value cannot be used.
    """
    options = _Options(_known(given))
    starting = options.starting(LogPlace.LATEST if is_streaming else LogPlace.EARLIEST)
    ending = options.ending()
    _require_possible(starting, ending, options, is_streaming=is_streaming)
    return ReadOptions(
        choice=options.choice(),
        config=Path(options.text("config", DEFAULT_CONFIG)),
        starting=starting,
        ending=ending,
        is_committed=options.is_committed(),
        include_headers=options.flag("includeHeaders", default=True),
        include_local=options.flag("includeLocal", default=False),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        partition_bytes=options.size("partitionBytes") or DEFAULT_PARTITION_BYTES,
        min_partitions=options.count("minPartitions"),
        max_records_per_partition=options.count("maxRecordsPerPartition"),
        max_offsets_per_trigger=options.count("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=options.size("maxBytesPerTrigger"),
    )


def includes_headers(given: Mapping[str, str]) -> bool:
    """Return True if rows have headers.

    Raises:
        ReadOptionError: as ``parse_options``.
    """
    return _Options(_known(given)).flag("includeHeaders", default=True)


def _known(given: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, value in given.items():
        known = _BY_LOWER.get(name.lower())
        if known is None:
            near = difflib.get_close_matches(name.lower(), _BY_LOWER, n=1, cutoff=0.0)
            raise ReadOptionError(
                f"option {name} is not known; the nearest is {_BY_LOWER[near[0]]}",
                remedy=f"the options are {', '.join(NAMES)}",
            )
        found[known] = value
    return found


class _Options:
    """Known options by name, with a parser for each kind of value."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def text(self, name: str, default: str) -> str:
        return self._given.get(name, default)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name, str(default)).strip().lower()
        if value not in ("true", "false"):
            raise _unusable(name, self._given[name], "true or false")
        return value == "true"

    def is_committed(self) -> bool:
        value = self.text("isolation", "read_committed").strip().lower()
        if value not in ("read_committed", "read_uncommitted"):
            raise _unusable("isolation", value, "read_committed or read_uncommitted")
        return value == "read_committed"

    def count(self, name: str) -> int | None:
        if name not in self:
            return None
        try:
            value = int(self._given[name])
        except ValueError:
            value = 0
        if value < 1:
            raise _unusable(name, self._given[name], "a number from 1 on")
        return value

    def size(self, name: str) -> int | None:
        if name not in self:
            return None
        try:
            value = parse_bytes(self._given[name])
        except ValueError as error:
            raise _unusable(name, self._given[name], "a size such as 64MiB") from error
        if value is not None and value < 1:
            raise _unusable(name, self._given[name], "a size such as 64MiB")
        return value

    def choice(self) -> PartitionChoice:
        named = [name for name in _CHOICES if name in self]
        if len(named) != 1:
            raise ReadOptionError(
                f"{' and '.join(named) or 'none'} of the options {', '.join(_CHOICES)} is given",
                remedy='give exactly one of them, such as option("subscribe", "orders")',
            )
        value = self._given[named[0]]
        match named[0]:
            case "subscribe":
                topics = frozenset(topic.strip() for topic in value.split(",") if topic.strip())
                if not topics:
                    raise _unusable("subscribe", value, "topics, with commas between them")
                return PartitionChoice(topics=topics)
            case "subscribePattern":
                return PartitionChoice(pattern=_pattern(value))
            case _:
                return PartitionChoice(assigned=_assigned(value))

    def starting(self, default: LogPlace) -> QueryPosition:
        strategy = self.text("startingOffsetsByTimestampStrategy", "error").strip().lower()
        if strategy not in ("error", "latest"):
            raise _unusable("startingOffsetsByTimestampStrategy", strategy, "error or latest")
        return self._position("starting", default, or_latest=strategy == "latest")

    def ending(self) -> QueryPosition:
        return self._position("ending", LogPlace.LATEST, or_latest=True)

    def _position(self, which: str, default: LogPlace, *, or_latest: bool) -> QueryPosition:
        """Return a position; a time wins over times per partition, and both win over offsets, as in Spark's source."""
        if (name := f"{which}Timestamp") in self:
            value = self._given[name].strip()
            if not value.isascii() or not value.isdigit():
                raise _unusable(name, value, "milliseconds since the epoch")
            return SinceTime(int(value), or_latest)
        if (name := f"{which}OffsetsByTimestamp") in self:
            return SinceTime(parse_offsets(self._given[name], option=name, smallest=0), or_latest)
        name = f"{which}Offsets"
        return parse_position(self._given[name], option=name) if name in self else default


def _require_possible(starting: QueryPosition, ending: QueryPosition, options: _Options, *, is_streaming: bool) -> None:
    ends = [name for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp") if name in options]
    if is_streaming and ends:
        raise ReadOptionError(f"option {ends[0]} means nothing to a streaming query", remedy="remove it")
    if is_streaming:
        return
    if starting is LogPlace.LATEST or (isinstance(starting, AtOffsets) and LATEST in starting.offsets.values()):
        raise ReadOptionError("option startingOffsets: a batch query cannot begin at the latest offset")
    if ending is LogPlace.EARLIEST or (isinstance(ending, AtOffsets) and EARLIEST in ending.offsets.values()):
        raise ReadOptionError("option endingOffsets: a query cannot end at the earliest offset")


def _pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise _unusable("subscribePattern", value, f"a regular expression ({error})") from error


def _assigned(value: str) -> frozenset[TopicPartition]:
    try:
        topics = parse_json(value)
        if not isinstance(topics, dict):
            raise TypeError("no JSON object")  # noqa: TRY301
        found = frozenset(TopicPartition(t, int(number)) for t, numbers in topics.items() for number in numbers)
    except (ValueError, TypeError) as error:
        raise _unusable("assign", value, 'JSON such as {"orders": [0, 1]}') from error
    if not found:
        raise _unusable("assign", value, 'JSON such as {"orders": [0, 1]}')
    return found


def _unusable(name: str, value: str, wanted: str) -> ReadOptionError:
    return ReadOptionError(f"option {name}: {value[:200]!r} cannot be used", remedy=f"write {wanted}")
