"""Rows of remote segments, and views over them, for plans and tasks of removing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from tests.fakes.remote_segments import segment
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, SoftDelete

NOW_MS = 1_700_000_000_000
SIZE = 1024


def row(
    start: int,
    end: int,
    epochs: Mapping[int, int] | int = 0,
    *,
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    size_bytes: int = SIZE,
    max_timestamp_ms: int = NOW_MS,
    soft_delete: SoftDelete | None = None,
    segment_id: UUID | None = None,
) -> RemoteLogSegmentMetadata:
    """Return one row, finished by default."""
    plain = segment(start, end, epochs, size_bytes=size_bytes, segment_id=segment_id)
    return replace(plain, state=state, max_timestamp_ms=max_timestamp_ms, soft_delete=soft_delete)


def lister(rows: Sequence[RemoteLogSegmentMetadata]) -> Callable[[int], list[RemoteLogSegmentMetadata]]:
    """Return ``list(tp, epoch)`` over ``rows``: by start offset, of equal starts in the order given."""

    def list_epoch(epoch: int) -> list[RemoteLogSegmentMetadata]:
        mentioned = [m for m in rows if any(entry.epoch == epoch for entry in m.segment_leader_epochs)]
        return sorted(mentioned, key=lambda m: m.start_offset)

    return list_epoch
