"""Metrics of each log in tierd's own log dirs, at each scrape."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tierd.telemetry.declaration import Declaration, Kind
from tierd.telemetry.reading_metrics import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLogUse:
    """State of one log.

    Attributes:
        log_start_offset: first offset that may be read.
        log_end_offset: offset of the next record.
        size_bytes: of all log files.
        refused: how often a leader refused records since the log was opened, by reason; every reason is a key.
    """

    topic: str
    partition: int
    segments: int
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    refused: Mapping[str, int]


_PARTITION = ("topic", "partition")

OWN_LOGS = (
    Declaration("tierd_num_log_segments", Kind.GAUGE, "Segments of one of tierd's own logs.", _PARTITION),
    Declaration("tierd_log_start_offset", Kind.GAUGE, "First readable offset of one of tierd's own logs.", _PARTITION),
    Declaration(
        "tierd_log_end_offset", Kind.GAUGE, "Offset of the next record of one of tierd's own logs.", _PARTITION
    ),
    Declaration("tierd_log_size_bytes", Kind.GAUGE, "Bytes of the log files of one of tierd's own logs.", _PARTITION),
    Declaration(
        "tierd_log_refused_total",
        Kind.COUNTER,
        "Refusals of one of tierd's own logs since it was opened: no_key, invalid_magic, invalid_checksum, "
        "invalid_sequence, invalid_offset.",
        (*_PARTITION, "reason"),
    ),
)


def own_log_samples(logs: Iterable[OwnLogUse]) -> Iterator[Sample]:
    """Return the samples of ``OWN_LOGS``."""
    for log in logs:
        labels = (log.topic, str(log.partition))
        yield "tierd_num_log_segments", labels, log.segments
        yield "tierd_log_start_offset", labels, log.log_start_offset
        yield "tierd_log_end_offset", labels, log.log_end_offset
        yield "tierd_log_size_bytes", labels, log.size_bytes
        for reason, count in sorted(log.refused.items()):
            yield "tierd_log_refused_total", (*labels, reason), count
