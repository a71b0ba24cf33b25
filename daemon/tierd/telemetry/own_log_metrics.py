"""Metrics of each log in tierd's own log dirs, and of their cleaner, at each scrape."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tierd.telemetry.declaration import Sample, counter, gauge


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
    gauge("tierd_num_log_segments", "Segments of one of tierd's own logs.", _PARTITION),
    gauge("tierd_log_start_offset", "First readable offset of one of tierd's own logs.", _PARTITION),
    gauge("tierd_log_end_offset", "Offset of the next record of one of tierd's own logs.", _PARTITION),
    gauge("tierd_log_size_bytes", "Bytes of the log files of one of tierd's own logs.", _PARTITION),
    counter(
        "tierd_log_refused_total",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleanerUse:
    """The cleaners of all own log dirs; counts are since the start.

    Attributes:
        rounds: that came to their end, over one log each.
        aborted: rounds that ended early, since the log changed under them; they begin again.
        failed: rounds after which the log is left alone until the next start.
        bytes_read: of segments that were rewritten.
        bytes_written: of the segments that took their place.
        max_dirty_ratio: the largest of any log, when the cleaner last looked.
        uncleanable: logs that are left alone now.
    """

    rounds: int
    aborted: int
    failed: int
    bytes_read: int
    bytes_written: int
    max_dirty_ratio: float
    uncleanable: int


LOG_CLEANER = (
    counter(
        "tierd_log_cleaner_rounds_total",
        "Rounds over tierd's own compacted logs, by outcome: cleaned, aborted (begins again) or failed.",
        ("outcome",),
    ),
    counter("tierd_log_cleaner_input_bytes_total", "Log bytes of segments of tierd's own logs that were cleaned."),
    counter("tierd_log_cleaner_output_bytes_total", "Log bytes of the segments that replaced cleaned ones."),
    gauge(
        "tierd_log_cleaner_max_dirty_ratio", "Largest dirty share of one of tierd's own compacted logs, from 0 to 1."
    ),
    gauge(
        "tierd_log_uncleanable_partitions",
        "tierd's own logs whose cleaning failed; not cleaned until the next start, so they may fill the disk.",
    ),
)


def log_cleaner_samples(use: LogCleanerUse) -> Iterator[Sample]:
    """Yield the samples of ``LOG_CLEANER``."""
    for outcome, count in (("cleaned", use.rounds), ("aborted", use.aborted), ("failed", use.failed)):
        yield "tierd_log_cleaner_rounds_total", (outcome,), count
    yield "tierd_log_cleaner_input_bytes_total", (), use.bytes_read
    yield "tierd_log_cleaner_output_bytes_total", (), use.bytes_written
    yield "tierd_log_cleaner_max_dirty_ratio", (), use.max_dirty_ratio
    yield "tierd_log_uncleanable_partitions", (), use.uncleanable
