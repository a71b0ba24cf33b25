"""Metrics of the cleaner of tierd's own logs, at each scrape."""

from collections.abc import Iterator
from dataclasses import dataclass

from tierd.telemetry.declaration import Declaration, Kind
from tierd.telemetry.reading_metrics import Sample


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
    Declaration(
        "tierd_log_cleaner_rounds_total",
        Kind.COUNTER,
        "Rounds over tierd's own compacted logs, by outcome: cleaned, aborted (begins again) or failed.",
        ("outcome",),
    ),
    Declaration(
        "tierd_log_cleaner_input_bytes_total",
        Kind.COUNTER,
        "Log bytes of segments of tierd's own logs that were cleaned.",
    ),
    Declaration(
        "tierd_log_cleaner_output_bytes_total", Kind.COUNTER, "Log bytes of the segments that replaced cleaned ones."
    ),
    Declaration(
        "tierd_log_cleaner_max_dirty_ratio",
        Kind.GAUGE,
        "Largest dirty share of one of tierd's own compacted logs, from 0 to 1.",
    ),
    Declaration(
        "tierd_log_uncleanable_partitions",
        Kind.GAUGE,
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
