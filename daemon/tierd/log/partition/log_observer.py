"""LogObserver: the changes of a log, reported by the thread that makes them, in log order."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from tierd.model import Lineage


class AppendedRecords(NamedTuple):
    """Set of whole batches that was appended, and its place.

    Attributes:
        append_offset: log end offset before the append.
        records: the bytes in the log file; they never change.
        next_offset: log end offset after the append.
        path: the log file.
        position: of the first batch in the log file.
    """

    append_offset: int
    records: bytes
    next_offset: int
    path: Path
    position: int


class LogObserver(Protocol):
    """Observer of one log. A call is made by a thread that changes the log: it must be short, and must not raise."""

    def on_appended(self, appends: Sequence[AppendedRecords], lineage: Lineage) -> None:
        """Take note of sets that readers may see now; ``lineage`` has the leader epochs of all of them."""

    def on_high_watermark(self, high_watermark: int) -> None:
        """Take note of a high watermark, which may be lower; called under the log's lock."""

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Take note of a higher log start on local disk; called under the log's lock, and may repeat the last one."""

    def on_truncated(self, log_end_offset: int, log_start_offset: int, lineage: Lineage) -> None:
        """Take note that the log was cut back; ``log_start_offset`` is the first offset on local disk."""


def owned_bytes(records: memoryview) -> bytes:
    """Return the bytes of a view; without a copy if the view is of a whole ``bytes``."""
    whole = records.obj
    return whole if isinstance(whole, bytes) and len(whole) == records.nbytes else bytes(records)
