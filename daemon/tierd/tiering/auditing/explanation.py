"""Location of one offset, with its reason (``tierd explain``). Decisions only."""

from dataclasses import dataclass
from enum import Enum

from tierd.log import SegmentFiles
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, uuid_to_text
from tierd.tiering.reading.tiered_log import TieredLog


class OffsetPlace(Enum):
    """The answer in one word."""

    BOTH = "both"
    LOCAL = "local"
    QUEUED = "queued"
    REMOTE = "remote"
    EXPIRED = "expired"
    LOST = "lost"
    UNCOMMITTED = "uncommitted"
    NOT_WRITTEN = "not-written"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Location of an offset.

    Attributes:
        place: the location in one word.
        why: the reason in one sentence.
        leader_epoch: the epoch that wrote the record; None when the epoch is not known.
        local_file: the log file that has it, None when none does.
        remote_key: the object that has it, None when none does.
        segment_id: the id of the remote segment that readers use; None without such a segment.
        next_record: offset of the first record that readers get from there on, as far as it was looked for.
        attempts: other rows that cover the offset, as ``<segment id> <state>``: unfinished, shadowed, being deleted,
            with the reason of a deletion behind it.
    """

    offset: int
    place: OffsetPlace
    why: str
    leader_epoch: int | None
    local_file: str | None
    remote_key: str | None
    segment_id: str | None
    attempts: tuple[str, ...]
    next_record: int | None = None


def explain(
    log: TieredLog,
    offset: int,
    *,
    last_stable_offset: int,
    log_end_offset: int,
    remote_key: str | None,
    next_record: int | None = None,
) -> Explanation:
    """Return where ``offset`` is, and why.

    Args:
        log: the tier and the local log.
        offset: the offset of a record, which need not exist.
        last_stable_offset: exclusive; of the local log, or the remote end without one.
        log_end_offset: exclusive; of the local log, or the remote end without one.
        remote_key: the key of the object that ``log.remote_segment(offset)`` names; None when it names no object.
        next_record: offset of the first record that readers get from ``offset`` on, the log's end where there is none;
            None where it was not looked for.
    """
    remote = log.remote_segment(offset) if offset >= log.log_start_offset else None
    local = _local_segment(log, offset) if offset < log_end_offset else None
    place, why = _place(
        log, offset, local=local, remote=remote, last_stable_offset=last_stable_offset, log_end_offset=log_end_offset
    )
    if place is OffsetPlace.REMOTE and next_record is not None and next_record > offset:
        why += f"; no record has the offset: compaction took it away, or it is a marker; readers go on at {next_record}"
    return Explanation(
        offset=offset,
        place=place,
        why=why,
        leader_epoch=log.lineage.epoch_for(offset) if offset < log_end_offset else None,
        local_file=str(local.log) if local else None,
        remote_key=remote_key if remote else None,
        segment_id=uuid_to_text(remote.segment.id) if remote else None,
        attempts=tuple(
            _attempt(m)
            for m in log.view.list()
            if m.start_offset <= offset <= m.end_offset and (remote is None or m.segment != remote.segment)
        ),
        next_record=next_record,
    )


def _attempt(metadata: RemoteLogSegmentMetadata) -> str:
    reason = f" ({metadata.soft_delete.reason})" if metadata.soft_delete else ""
    return f"{uuid_to_text(metadata.segment.id)} {metadata.state.name}{reason}"


def _place(
    log: TieredLog,
    offset: int,
    *,
    local: SegmentFiles | None,
    remote: RemoteLogSegmentMetadata | None,
    last_stable_offset: int,
    log_end_offset: int,
) -> tuple[OffsetPlace, str]:
    if offset < 0 or offset >= max(log_end_offset, log.end_offset):
        return OffsetPlace.NOT_WRITTEN, f"the log ends at {max(log_end_offset, log.end_offset)}"
    if offset < log.log_start_offset:
        return (
            OffsetPlace.EXPIRED,
            f"the log starts at {log.log_start_offset}: retention or a deletion request removed it",
        )
    if remote is not None and local is not None:
        return OffsetPlace.BOTH, f"copied in {_span(remote)}, and the broker still has it; readers use the local file"
    if remote is not None:
        gone = "the broker has deleted its file"
        if log.cut_at is not None and offset >= log.cut_at:
            gone = f"the broker's files end at {log.cut_at}, below the high watermark {log.high_watermark}"
        return OffsetPlace.REMOTE, f"copied in {_span(remote)}; {gone}"
    if local is None and log.is_held(offset):
        return OffsetPlace.QUEUED, "the broker has deleted its file; tierd holds its segment and copies it"
    if log.is_awaited(offset):
        return OffsetPlace.LOST, (
            f"it was committed, but the broker's files end at {log.cut_at}, below the high watermark "
            f"{log.high_watermark}, and it is not in the tier; the broker gets it back from another replica when it "
            "starts, or cuts its log back for good"
        )
    if local is None:
        return OffsetPlace.LOST, (
            "neither tier has it: no copy of it and no file of the broker's is there, and tierd holds no link to its "
            "segment"
        )
    return _local_place(log, offset, local, last_stable_offset)


def _local_place(log: TieredLog, offset: int, local: SegmentFiles, last_stable_offset: int) -> tuple[OffsetPlace, str]:
    high_watermark = log.high_watermark
    if high_watermark is None:
        return OffsetPlace.UNCOMMITTED, "replication-offset-checkpoint names no high watermark yet"
    if offset >= high_watermark:
        return OffsetPlace.UNCOMMITTED, f"the high watermark is {high_watermark}; readers do not see it yet"
    if local.next_base_offset is None:
        return OffsetPlace.LOCAL, "it is in the active segment, which is copied after the broker rolls it"
    if local.next_base_offset > last_stable_offset:
        return OffsetPlace.LOCAL, (
            f"its segment ends at {local.next_base_offset - 1}, the last stable offset is {last_stable_offset}: "
            "copied once the rest is committed and decided"
        )
    started = any(
        m.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED and m.start_offset <= offset <= m.end_offset
        for m in log.view.list()
    )
    return OffsetPlace.QUEUED, "its segment is being copied" if started else "its segment is rolled and due for copy"


def _local_segment(log: TieredLog, offset: int) -> SegmentFiles | None:
    """Return the local segment whose range has ``offset``; None where there is none."""
    segments = log.scan.segments if log.scan else ()
    return next((s for s in reversed(segments) if s.base_offset <= offset), None)


def _span(metadata: RemoteLogSegmentMetadata) -> str:
    return f"segment {metadata.start_offset}-{metadata.end_offset}"
