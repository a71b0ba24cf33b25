"""TieringRecorder: what the room reports of its work, for metrics. Injected, so that tiering knows no metric names."""

from typing import Protocol


class TieringRecorder(Protocol):
    """Counts outcomes. Calls are cheap, never block and never raise."""

    def copy_requested(self, topic: str) -> None:
        """An attempt reached the remote storage (Kafka: RemoteCopyRequestsPerSec)."""

    def segment_copied(self, topic: str, *, size_bytes: int, seconds: float) -> None:
        """A segment is finished and readable in the tier; ``size_bytes`` is its log file."""

    def copy_failed(self, topic: str) -> None:
        """A pass ended with an error that is not retriable (Kafka: RemoteCopyErrorsPerSec)."""

    def copy_throttled(self, throttle_ms: int) -> None:
        """A segment waits, for the broker copied faster than it may (Kafka: remote-copy-throttle-time)."""

    def gap_found(self, topic: str, *, offsets: int) -> None:
        """Offsets were deleted locally before they were ever seen; they are in no tier."""

    def fetch_requested(self, topic: str) -> None:
        """A remote read was submitted (Kafka: RemoteFetchRequestsPerSec)."""

    def bytes_fetched(self, topic: str, size_bytes: int) -> None:
        """A remote read gave its reader ``size_bytes``."""

    def fetch_failed(self, topic: str) -> None:
        """A remote read failed otherwise than by an offset out of range."""

    def fetch_throttled(self, throttle_ms: int) -> None:
        """A remote read was not begun, for the fetch quota is exceeded (KIP-956: remote-fetch-throttle-time)."""

    def delete_requested(self, topic: str) -> None:
        """The objects of a segment are about to be deleted."""

    def delete_failed(self, topic: str) -> None:
        """The remote storage did not delete them; they are tried again."""

    def dangling_swept(self, topic: str) -> None:
        """Record the removal of an unfinished copy."""

    def uploads_aborted(self, count: int) -> None:
        """Unfinished uploads of dead sessions were discarded."""

    def remote_size_computed(self, seconds: float) -> None:
        """It took that long to find out what of a partition expires (Kafka: RemoteLogSizeComputationTime)."""

    def task_succeeded(self, task: str) -> None:
        """A run of this kind (``copy``, ``reconcile``, ``sweep``, ``expire``) ended well just now."""


class SilentRecorder:
    """Records nothing; for commands that end before a scrape."""

    def copy_requested(self, topic: str) -> None:
        """Do nothing."""

    def segment_copied(self, topic: str, *, size_bytes: int, seconds: float) -> None:
        """Do nothing."""

    def copy_failed(self, topic: str) -> None:
        """Do nothing."""

    def copy_throttled(self, throttle_ms: int) -> None:
        """Do nothing."""

    def gap_found(self, topic: str, *, offsets: int) -> None:
        """Do nothing."""

    def fetch_requested(self, topic: str) -> None:
        """Do nothing."""

    def bytes_fetched(self, topic: str, size_bytes: int) -> None:
        """Do nothing."""

    def fetch_failed(self, topic: str) -> None:
        """Do nothing."""

    def fetch_throttled(self, throttle_ms: int) -> None:
        """Do nothing."""

    def delete_requested(self, topic: str) -> None:
        """Do nothing."""

    def delete_failed(self, topic: str) -> None:
        """Do nothing."""

    def dangling_swept(self, topic: str) -> None:
        """Do nothing."""

    def uploads_aborted(self, count: int) -> None:
        """Do nothing."""

    def remote_size_computed(self, seconds: float) -> None:
        """Do nothing."""

    def task_succeeded(self, task: str) -> None:
        """Do nothing."""
