"""The settings of tierd's own logs, one topic each, under Kafka's names with ``_`` for ``.``."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tierd.config.section import Settings
from tierd.config.values import Milliseconds, MillisecondsOrNone, PositionBytes, Rate, Switch, WholeNumber

_TimestampType = Literal["CreateTime", "LogAppendTime"]
_Compression = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
_Segment = Annotated[PositionBytes, Field(ge=4, le=(1 << 31) - 1)]
_Message = Annotated[PositionBytes, Field(le=(1 << 31) - 1)]


def _count_or_none(value: int) -> int:
    if value < 1 and value != -1:
        raise ValueError(f"{value} is no number of records: write 1 or more, or -1 for no limit")
    return value


_Count = Annotated[WholeNumber, AfterValidator(_count_or_none)]


class OwnLogSettings(Settings):
    """Settings of tierd's own log of a topic. Log dirs of a broker go by the broker's settings."""

    segment_ms: Milliseconds = Field(604_800_000, ge=1, description="age at which a segment rolls")
    segment_jitter_ms: Milliseconds = Field(
        0, description="a random part of segment_ms, up to which a segment rolls early"
    )
    segment_index_bytes: _Segment = Field(
        10 << 20, description="room of the active segment's indexes; a full one rolls"
    )
    index_interval_bytes: _Message = Field(4096, description="how much of a segment lies between two index entries")
    max_message_bytes: _Message = Field(1_048_588, description="size of the largest batch that is taken")
    flush_messages: _Count = Field(-1, description="how many records may lie unflushed; -1: no limit")
    flush_ms: MillisecondsOrNone = Field(-1, description="how long records may lie unflushed; -1: no limit")
    file_delete_delay_ms: Milliseconds = Field(60_000, description="how long files of deleted segments stay on disk")
    message_timestamp_type: _TimestampType = Field(
        "CreateTime", description="CreateTime: the producer's; LogAppendTime: tierd's"
    )
    message_timestamp_before_max_ms: MillisecondsOrNone = Field(
        -1, description="how far before now a record's timestamp may lie; -1: no limit"
    )
    message_timestamp_after_max_ms: MillisecondsOrNone = Field(
        -1, description="how far after now a record's timestamp may lie; -1: no limit"
    )
    compression_type: _Compression = Field("producer", description="producer: as it comes; otherwise this codec")
    preallocate: Switch = Field(False, description="true: give a new segment its whole size on disk at once")
    producer_id_expiration_ms: Milliseconds = Field(
        86_400_000, ge=1, description="after what silence an idempotent producer is forgotten"
    )
    producer_id_expiration_check_interval_ms: Milliseconds = Field(
        600_000, ge=1, description="how often to look for silent producers"
    )


class LogCleanerSettings(Settings):
    """The cleaner of tierd's own compacted logs, under Kafka's names without ``log.cleaner``."""

    io_max_bytes_per_second: Rate = Field(
        None, gt=0, description="what the cleaner reads and writes at most, all log dirs together"
    )
    backoff_ms: Milliseconds = Field(
        15_000, ge=1, description="how long the cleaner rests when it found no log to clean"
    )


class OwnLogOverride(Settings):
    """Settings of a topic's own log that differ from ``defaults.log``."""

    segment_ms: Milliseconds | None = Field(None, ge=1, description="as in defaults")
    segment_jitter_ms: Milliseconds | None = Field(None, description="as in defaults")
    segment_index_bytes: _Segment | None = Field(None, description="as in defaults")
    index_interval_bytes: _Message | None = Field(None, description="as in defaults")
    max_message_bytes: _Message | None = Field(None, description="as in defaults")
    flush_messages: _Count | None = Field(None, description="as in defaults")
    flush_ms: MillisecondsOrNone | None = Field(None, description="as in defaults")
    file_delete_delay_ms: Milliseconds | None = Field(None, description="as in defaults")
    message_timestamp_type: _TimestampType | None = Field(None, description="as in defaults")
    message_timestamp_before_max_ms: MillisecondsOrNone | None = Field(None, description="as in defaults")
    message_timestamp_after_max_ms: MillisecondsOrNone | None = Field(None, description="as in defaults")
    compression_type: _Compression | None = Field(None, description="as in defaults")
    preallocate: Switch | None = Field(None, description="as in defaults")
    producer_id_expiration_ms: Milliseconds | None = Field(None, ge=1, description="as in defaults")
    producer_id_expiration_check_interval_ms: Milliseconds | None = Field(None, ge=1, description="as in defaults")
