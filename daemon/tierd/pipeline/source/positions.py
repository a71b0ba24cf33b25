"""Begin and end of a query, in the words of Spark's Kafka source."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tierd.json_parsing import parse_json
from tierd.model import TopicPartition
from tierd.pipeline.pipeline_errors import ReadOptionError

LATEST: Final = -1
EARLIEST: Final = -2
TOPIC_ID: Final = "topicId"

StreamProgress = dict[str, dict[str, int | str]]
"""Position of a streaming query in Spark's checkpoint."""


class LogPlace(Enum):
    """Place in the log that every partition has."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Offsets by partition; -1 is the latest, -2 the earliest."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SinceTime:
    """Position of the first record that is no older than a time.

    Attributes:
        timestamp_ms: one time for all partitions, or one for each.
        or_latest: without such a record, True takes the end of the log, and False is an error.
    """

    timestamp_ms: int | Mapping[TopicPartition, int]
    or_latest: bool

    def of(self, name: TopicPartition) -> int:
        """Return the time for one partition.

        Raises:
            ReadOptionError: no time is given for the partition.
        """
        if isinstance(self.timestamp_ms, int):
            return self.timestamp_ms
        return given_for(name, self.timestamp_ms, what="timestamp")


QueryPosition = LogPlace | AtOffsets | SinceTime


def given_for(name: TopicPartition, values: Mapping[TopicPartition, int], *, what: str) -> int:
    """Return the value that an option gives for a partition.

    Raises:
        ReadOptionError: the option has no value for it.
    """
    if name not in values:
        raise ReadOptionError(
            f"no {what} is given for {name}", remedy="give one for every partition that is read; -2 is the earliest"
        )
    return values[name]


def parse_position(text: str, *, option: str) -> LogPlace | AtOffsets:
    """Parse ``earliest``, ``latest``, or JSON such as ``{"orders": {"0": 23, "1": -2}}``.

    Raises:
        ReadOptionError: the text is no position.
    """
    word = text.strip().lower()
    if word in (LogPlace.EARLIEST.value, LogPlace.LATEST.value):
        return LogPlace(word)
    return AtOffsets(parse_offsets(text, option=option, smallest=EARLIEST))


def parse_offsets(text: str, *, option: str, smallest: int) -> Mapping[TopicPartition, int]:
    """Parse JSON of topics to partitions to numbers.

    Raises:
        ReadOptionError: the text is no such JSON, or a number is below ``smallest``.
    """
    try:
        topics = parse_json(text)
        if not isinstance(topics, dict):
            raise _no_offsets(option, text)
        found = {
            TopicPartition(topic, int(number)): value
            for topic, partitions in topics.items()
            for number, value in partitions.items()
            if number != TOPIC_ID  # of the progress of a streaming query
        }
    except (ValueError, AttributeError) as error:
        raise _no_offsets(option, text) from error
    for name, value in found.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < smallest or name.partition < 0:
            raise _no_offsets(option, text)
    return found


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Position of a streaming query.

    Attributes:
        offsets: the next offset of each partition.
        topic_ids: of the topics, as Kafka prints them; a checkpoint of an earlier build has none.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]


def encode_position(position: StreamPosition) -> StreamProgress:
    """Encode a position for the checkpoint: as Spark's own Kafka source, with the topic id beside the partitions.

    ::

        {"orders": {"0": 23, "1": 17, "topicId": "EjRWeJq83vD-3LqYdlQyEA"}}
    """
    encoded: StreamProgress = {}
    for name in sorted(position.offsets):
        encoded.setdefault(name.topic, {})[str(name.partition)] = position.offsets[name]
    for topic, each in encoded.items():
        if topic in position.topic_ids:
            each[TOPIC_ID] = position.topic_ids[topic]
    return encoded


def decode_position(progress: StreamProgress) -> StreamPosition:
    """Decode ``encode_position``."""
    offsets = {
        TopicPartition(topic, int(key)): int(value)
        for topic, each in progress.items()
        for key, value in each.items()
        if key != TOPIC_ID
    }
    topic_ids = {topic: str(each[TOPIC_ID]) for topic, each in progress.items() if TOPIC_ID in each}
    return StreamPosition(offsets, topic_ids)


def _no_offsets(option: str, text: str) -> ReadOptionError:
    return ReadOptionError(
        f"option {option}: {text[:200]!r} gives no offsets",
        remedy='write earliest, latest, or JSON such as {"orders": {"0": 23, "1": -2}}',
    )
