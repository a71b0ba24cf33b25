"""Metrics of restores of state stores, at each scrape (changelog-restore 3.10)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tierd.telemetry.declaration import Sample, counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogRestoreUse:
    """Restore of one changelog now.

    Attributes:
        is_active: False for a standby, which follows its changelog.
        remaining: offsets up to the end; for a standby up to the log end as last seen.
    """

    topic: str
    partition: int
    is_active: bool
    remaining: int
    records_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRestoreUse:
    """Restores of one reader; counts are since its start.

    Attributes:
        records: that stores took.
        read_bytes: log bytes by source, ``remote`` and ``local``.
        wipes: by reason; every reason is a key.
        failures: changelogs whose restore was abandoned.
        checkpoints: that were written, in ``checkpoint_s`` seconds together.
    """

    changelogs: Sequence[ChangelogRestoreUse]
    records: int
    read_bytes: Mapping[str, int]
    wipes: Mapping[str, int]
    failures: int
    checkpoints: int
    checkpoint_s: float


_PARTITION = ("topic", "partition")

STORE_RESTORE = (
    gauge(
        "tierd_restore_remaining_records",
        "Offsets of a changelog that its state store lacks until the end of the restore.",
        _PARTITION,
    ),
    gauge(
        "tierd_restore_records_per_second",
        "Records that the restore of a state store applies, as an average of about 30 seconds.",
        _PARTITION,
    ),
    gauge(
        "tierd_restore_standby_lag_records", "Offsets of a changelog that a standby's state store lacks.", _PARTITION
    ),
    counter("tierd_restore_records_total", "Records that restores put into state stores."),
    counter(
        "tierd_restore_bytes_total",
        "Log bytes that restores of state stores read, by source: remote or local.",
        ("source",),
    ),
    counter(
        "tierd_restore_wipes_total",
        "State stores whose data a restore gave up, by reason; the restore began anew.",
        ("reason",),
    ),
    counter("tierd_restore_failures_total", "Restores of state stores that were given up."),
    counter("tierd_restore_checkpoints_total", "Checkpoints that restores of state stores have written."),
    counter("tierd_restore_checkpoint_seconds_total", "Time of these checkpoints, with the flush of the state stores."),
)


def store_restore_samples(use: StoreRestoreUse) -> Iterator[Sample]:
    """Yield the samples of ``STORE_RESTORE``."""
    for changelog in use.changelogs:
        labels = (changelog.topic, str(changelog.partition))
        if changelog.is_active:
            yield "tierd_restore_remaining_records", labels, changelog.remaining
        else:
            yield "tierd_restore_standby_lag_records", labels, changelog.remaining
        yield "tierd_restore_records_per_second", labels, changelog.records_per_s
    yield "tierd_restore_records_total", (), use.records
    for source, size_bytes in sorted(use.read_bytes.items()):
        yield "tierd_restore_bytes_total", (source,), size_bytes
    for reason, count in sorted(use.wipes.items()):
        yield "tierd_restore_wipes_total", (reason,), count
    yield "tierd_restore_failures_total", (), use.failures
    yield "tierd_restore_checkpoints_total", (), use.checkpoints
    yield "tierd_restore_checkpoint_seconds_total", (), use.checkpoint_s
