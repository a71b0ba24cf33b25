"""TieringRecorder: the reports of this room for metrics. Injected, so that tiering knows no metric names."""

from typing import Protocol


class TieringRecorder(Protocol):
    """Counter of outcomes. Calls are cheap, never block and never raise. Each method here records nothing."""

    def copy_requested(self, topic: str) -> None:
        """Record that an attempt reached the remote storage (Kafka: RemoteCopyRequestsPerSec)."""
        return

    def segment_copied(self, topic: str, *, size_bytes: int, seconds: float) -> None:
        """Record that a segment is finished and readable in the tier; ``size_bytes`` is the size of its log file."""
        return

    def copy_failed(self, topic: str) -> None:
        """Record that a pass ended with an error that is not retriable (Kafka: RemoteCopyErrorsPerSec)."""
        return

    def copy_throttled(self, throttle_ms: int) -> None:
        """Record that a segment waits, for the broker copied faster than it may (Kafka: remote-copy-throttle-time)."""
        return

    def gap_found(self, topic: str, *, offsets: int) -> None:
        """Record that offsets were deleted locally before a scan saw them, and are not in the tier."""
        return

    def fetch_requested(self, topic: str) -> None:
        """Record that a remote read was submitted (Kafka: RemoteFetchRequestsPerSec)."""
        return

    def bytes_fetched(self, topic: str, size_bytes: int) -> None:
        """Record that a remote read gave its reader ``size_bytes``."""
        return

    def fetch_failed(self, topic: str) -> None:
        """Record that a remote read failed otherwise than by an offset out of range."""
        return

    def fetch_throttled(self, throttle_ms: int) -> None:
        """Record that the exceeded fetch quota prevented a remote read (KIP-956: remote-fetch-throttle-time)."""
        return

    def delete_requested(self, topic: str) -> None:
        """Record that the objects of a segment are about to be deleted."""
        return

    def delete_failed(self, topic: str) -> None:
        """Record that the remote storage did not delete the objects of a segment; the deletion is repeated."""
        return

    def dangling_swept(self, topic: str) -> None:
        """Record the removal of a copy that no writer will finish."""
        return

    def uploads_aborted(self, count: int) -> None:
        """Record that unfinished uploads of dead sessions were discarded."""
        return

    def remote_size_computed(self, seconds: float) -> None:
        """Record the time to find out what of a partition expires (Kafka: RemoteLogSizeComputationTime)."""
        return

    def task_succeeded(self, task: str) -> None:
        """Record that a run of this kind (``copy``, ``reconcile``, ``sweep``, ``expire``) ended well just now."""
        return

    def forget_topic(self, topic: str) -> None:
        """Drop what was recorded of a topic that this broker no longer has."""
        return


class SilentRecorder(TieringRecorder):
    """Recorder that records nothing, for commands that end before a scrape."""
