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
    """Settings of tierd's own log of a topic. In log dirs of a broker, the broker's settings apply."""

    segment_ms: Milliseconds = Field(604_800_000, ge=1, description="age at which a segment rolls")
    segment_jitter_ms: Milliseconds = Field(
        0, description="longest random time by which a segment rolls earlier than segment_ms"
    )
    segment_index_bytes: _Segment = Field(
        10 << 20, description="size of an index file of the active segment; the segment rolls when one is full"
    )
    index_interval_bytes: _Message = Field(4096, description="bytes of a segment between two index entries")
    max_message_bytes: _Message = Field(1_048_588, description="size of the largest batch that the log accepts")
    flush_messages: _Count = Field(-1, description="number of records after which the log is flushed; -1: no limit")
    flush_ms: MillisecondsOrNone = Field(-1, description="time after which records are flushed; -1: no limit")
    file_delete_delay_ms: Milliseconds = Field(60_000, description="time that files of deleted segments stay on disk")
    message_timestamp_type: _TimestampType = Field(
        "CreateTime", description="CreateTime: the time that the producer set; LogAppendTime: the time of the append"
    )
    message_timestamp_before_max_ms: MillisecondsOrNone = Field(
        -1, description="how far the timestamp of a record may lie in the past; -1: no limit"
    )
    message_timestamp_after_max_ms: MillisecondsOrNone = Field(
        -1, description="how far the timestamp of a record may lie in the future; -1: no limit"
    )
    compression_type: _Compression = Field(
        "producer", description="producer: the codec of the producer; otherwise the named codec"
    )
    preallocate: Switch = Field(False, description="true: a new segment has its whole size at once")
    producer_id_expiration_ms: Milliseconds = Field(
        86_400_000, ge=1, description="time without a record after which the log forgets an idempotent producer"
    )
    producer_id_expiration_check_interval_ms: Milliseconds = Field(
        600_000, ge=1, description="time between two searches for such producers"
    )


class LogCleanerSettings(Settings):
    """Cleaner of tierd's own compacted logs. The keys have Kafka's names without ``log.cleaner``."""

    io_max_bytes_per_second: Rate = Field(
        None, gt=0, description="limit of the cleaner's reads and writes, for all log dirs together"
    )
    backoff_ms: Milliseconds = Field(15_000, ge=1, description="pause of the cleaner when no log needs cleaning")


class OwnLogOverride(Settings):
    """Settings of a topic's own log that differ from ``defaults.log``."""

    segment_ms: Milliseconds | None = Field(None, ge=1, description="as in topics.defaults")
    segment_jitter_ms: Milliseconds | None = Field(None, description="as in topics.defaults")
    segment_index_bytes: _Segment | None = Field(None, description="as in topics.defaults")
    index_interval_bytes: _Message | None = Field(None, description="as in topics.defaults")
    max_message_bytes: _Message | None = Field(None, description="as in topics.defaults")
    flush_messages: _Count | None = Field(None, description="as in topics.defaults")
    flush_ms: MillisecondsOrNone | None = Field(None, description="as in topics.defaults")
    file_delete_delay_ms: Milliseconds | None = Field(None, description="as in topics.defaults")
    message_timestamp_type: _TimestampType | None = Field(None, description="as in topics.defaults")
    message_timestamp_before_max_ms: MillisecondsOrNone | None = Field(None, description="as in topics.defaults")
    message_timestamp_after_max_ms: MillisecondsOrNone | None = Field(None, description="as in topics.defaults")
    compression_type: _Compression | None = Field(None, description="as in topics.defaults")
    preallocate: Switch | None = Field(None, description="as in topics.defaults")
    producer_id_expiration_ms: Milliseconds | None = Field(None, ge=1, description="as in topics.defaults")
    producer_id_expiration_check_interval_ms: Milliseconds | None = Field(
        None, ge=1, description="as in topics.defaults"
    )
