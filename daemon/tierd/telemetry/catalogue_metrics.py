"""Metrics of the catalogue in the bucket, at each scrape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tierd.telemetry.declaration import Sample, counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueUse:
    """Work of the keeper of the catalogue; counts are since the start.

    Attributes:
        written: objects that were stored, by kind.
        removed: positions objects that thinning removed.
        failures: failed attempts, by part of the work.
        positions_s: Unix time through which the positions in the bucket are right; None before the first.
        groups: consumer groups in them.
        has_problem: something is missing from the catalogue now.
    """

    written: Mapping[str, int] = field(default_factory=dict)
    removed: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    positions_s: float | None = None
    groups: int = 0
    has_problem: bool = False


CATALOGUE_METRICS = (
    counter(
        "tierd_catalogue_objects_written_total",
        "Objects of the catalogue that tierd stored, by kind: positions, topics or node.",
        ("kind",),
    ),
    counter("tierd_catalogue_objects_removed_total", "Positions objects that tierd removed because of age."),
    counter(
        "tierd_catalogue_failures_total",
        "Failed attempts to keep a part of the catalogue: survey, positions, topics, node or thinning.",
        ("part",),
    ),
    gauge(
        "tierd_catalogue_positions_timestamp_seconds",
        "Unix time through which the positions in the bucket are right; no series before the first.",
    ),
    gauge("tierd_catalogue_groups", "Consumer groups in the last positions of this broker."),
    gauge("tierd_catalogue_incomplete", "1 while a part of the catalogue is missing; tierd status says why."),
)


def catalogue_samples(use: CatalogueUse) -> Iterator[Sample]:
    """Yield the samples of ``CATALOGUE_METRICS``."""
    for kind, count in sorted(use.written.items()):
        yield "tierd_catalogue_objects_written_total", (kind,), count
    yield "tierd_catalogue_objects_removed_total", (), use.removed
    for part, count in sorted(use.failures.items()):
        yield "tierd_catalogue_failures_total", (part,), count
    if use.positions_s is not None:
        yield "tierd_catalogue_positions_timestamp_seconds", (), use.positions_s
    yield "tierd_catalogue_groups", (), use.groups
    yield "tierd_catalogue_incomplete", (), use.has_problem
