"""Metrics of reading from the tier at each scrape: its caches, and the running and the waiting reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tierd.telemetry.declaration import Sample, counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """Counts of one cache on disk since the start; ``entries`` and ``size_bytes`` are as of now."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    evictions: int = 0
    damaged: int = 0
    write_failures: int = 0
    entries: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingUse:
    """State of the reads from the tier.

    Attributes:
        running: number of reads that run now.
        pending: number of reads that wait.
        rejected: since the start, because too many waited.
        caches: by name, ``chunks`` and ``indexes``.
        bytes_per_second: as the fetch quota sees it; None where there are no reads.
    """

    running: int = 0
    pending: int = 0
    rejected: int = 0
    caches: Mapping[str, CacheUse] = field(default_factory=dict)
    bytes_per_second: float | None = None


READING = (
    gauge("tierd_remote_log_reader_task_queue_size", "Reads from the tier that wait for a slot."),
    gauge("tierd_remote_log_readers_running", "Reads from the tier that run."),
    counter("tierd_remote_log_reads_rejected_total", "Reads that tierd refused because too many reads were waiting."),
    counter(
        "tierd_cache_requests_total",
        "Lookups in the caches on disk, by outcome: hit or miss. A miss costs a request to the store.",
        ("cache", "outcome"),
    ),
    counter(
        "tierd_cache_bytes_total",
        "Bytes of the lookups: of hits from the disk, of misses from the store.",
        ("cache", "outcome"),
    ),
    counter("tierd_cache_evictions_total", "Entries that a cache dropped to make room.", ("cache",)),
    counter("tierd_cache_damaged_total", "Damaged files in a cache; tierd fetches their data again.", ("cache",)),
    counter(
        "tierd_cache_write_failures_total",
        "Entries that could not be written to disk; reads continue without them.",
        ("cache",),
    ),
    gauge("tierd_cache_entries", "Entries in a cache on disk.", ("cache",)),
    gauge("tierd_cache_size_bytes", "Bytes of the files of a cache on disk.", ("cache",)),
)


def reading_samples(reading: ReadingUse) -> Iterator[Sample]:
    """Yield the samples of ``READING``."""
    yield "tierd_remote_log_reader_task_queue_size", (), reading.pending
    yield "tierd_remote_log_readers_running", (), reading.running
    yield "tierd_remote_log_reads_rejected_total", (), reading.rejected
    for name, cache in sorted(reading.caches.items()):
        yield "tierd_cache_requests_total", (name, "hit"), cache.hits
        yield "tierd_cache_requests_total", (name, "miss"), cache.misses
        yield "tierd_cache_bytes_total", (name, "hit"), cache.hit_bytes
        yield "tierd_cache_bytes_total", (name, "miss"), cache.miss_bytes
        yield "tierd_cache_evictions_total", (name,), cache.evictions
        yield "tierd_cache_damaged_total", (name,), cache.damaged
        yield "tierd_cache_write_failures_total", (name,), cache.write_failures
        yield "tierd_cache_entries", (name,), cache.entries
        yield "tierd_cache_size_bytes", (name,), cache.size_bytes
