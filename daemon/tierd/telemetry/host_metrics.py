"""Metrics of the host as the daemon sees it, at each scrape: readiness, log dirs and the room on their disks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tierd.telemetry.declaration import Sample, gauge


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Room on a file system, in bytes; ``free_bytes`` is what a user without special rights may still write."""

    free_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUse:
    """State of the daemon and of the directories that it needs.

    Attributes:
        is_ready: ``/readyz`` says yes.
        offline: log dirs, each with True while it cannot be listed.
        disks: room on the file system of each directory; without those that did not answer.
    """

    is_ready: bool
    offline: Mapping[str, bool] = field(default_factory=dict)
    disks: Mapping[str, DiskUse] = field(default_factory=dict)


HOST_METRICS = (
    gauge("tierd_ready", "1 while /readyz says yes, otherwise 0; /readyz says why."),
    gauge("tierd_log_dir_offline", "1 while tierd cannot list a log dir, otherwise 0.", ("log_dir",)),
    gauge(
        "tierd_disk_free_bytes",
        "Free bytes on the file system of a log dir or of the state dir; no series while it does not answer.",
        ("directory",),
    ),
    gauge("tierd_disk_size_bytes", "Size of the file system of a log dir or of the state dir.", ("directory",)),
)


def host_samples(use: HostUse) -> Iterator[Sample]:
    """Yield the samples of ``HOST_METRICS``."""
    yield "tierd_ready", (), use.is_ready
    for log_dir, is_offline in sorted(use.offline.items()):
        yield "tierd_log_dir_offline", (log_dir,), is_offline
    for directory, disk in sorted(use.disks.items()):
        yield "tierd_disk_free_bytes", (directory,), disk.free_bytes
        yield "tierd_disk_size_bytes", (directory,), disk.size_bytes
