"""Lost producer snapshots and transaction indexes of a segment, made anew before the copy. Blocking."""

from dataclasses import replace
from pathlib import Path

import structlog

from tierd.errors import MissingArtefactError
from tierd.log import rebuild_producers
from tierd.model import Lineage
from tierd.tiering.copying.prepare import CheckedFiles, PreparedSegment, check_held, live_path
from tierd.tiering.copying.producer_history import ProducersBefore
from tierd.tiering.local.held_segment import HeldSegment, SegmentFile

log = structlog.get_logger()


def prepare_segment(held: HeldSegment, lineage: Lineage, *, directory: Path) -> PreparedSegment:
    """Check a segment, and gather what the broker wrote about it; nothing about producers is made anew.

    Raises:
        As ``check_held`` and ``complete_segment``.
    """
    return complete_segment(check_held(held, lineage, directory=directory), held, None, directory=directory)


def complete_segment(
    checked: CheckedFiles, held: HeldSegment, before: ProducersBefore | None, *, directory: Path
) -> PreparedSegment:
    """Make what is lost anew by replaying the batches from what was known of producers before.

    Args:
        checked: the result of the check of ``held``.
        held: the segment.
        before: the producers known at the base of the segment; None when they are not known.
        directory: the partition's, to name the broker's files.

    Raises:
        MissingArtefactError: an artefact is lost and cannot be derived.
        CorruptRecordError: a marker that cannot be decoded, here or in a segment before.
        EndMarkerError: a marker that neither aborts nor commits.
        InvalidTransactionStateError: a batch within a transaction that it is not of.
        SegmentChangedError: a file changed or vanished.
        LogDirOfflineError: the disk does not give the bytes.
    """
    if checked.is_whole or (before is None and not checked.is_damaged):
        return checked.prepared
    if before is None or (checked.index_problem is not None and not before.is_certain):
        raise _lost(checked, held, directory, is_repairable=before is None)
    rebuilt = rebuild_producers(
        (*before.logs, held.log), before.entries, start_offset=before.start_offset, end_offset=held.end_offset
    )
    prepared, name = checked.prepared, str(live_path(held, SegmentFile.LOG, directory))
    if checked.snapshot_problem is not None:
        _report("producer_snapshot_rebuilt", name, checked.snapshot_problem, before)
        prepared = replace(prepared, data=replace(prepared.data, producer_snapshot=rebuilt.snapshot))
    index, broker_index = rebuilt.transaction_index, prepared.data.transaction_index or b""
    has_more = checked.may_lack_index and len(index) > len(broker_index)
    if (checked.index_problem is not None or has_more) and before.is_certain:
        problem = checked.index_problem or ("incomplete" if broker_index else "missing")
        _report("transaction_index_rebuilt", name, problem, before)
        data = replace(prepared.data, transaction_index=index or None)
        prepared = replace(prepared, data=data, txn_index_empty=not index)
    return prepared


def _lost(checked: CheckedFiles, held: HeldSegment, directory: Path, *, is_repairable: bool) -> MissingArtefactError:
    if checked.snapshot_problem is not None:
        live, problem = live_path(held, SegmentFile.PRODUCER_SNAPSHOT, directory), checked.snapshot_problem
        what = "the producer snapshot of the segment's roll"
    else:
        live, problem = live_path(held, SegmentFile.TRANSACTION_INDEX, directory), str(checked.index_problem)
        what = "the index of the transactions aborted in the segment"
    restore = "restore the file: a replica may still have it"
    repair = f"run tierd repair-tier {directory.name}, which repairs the segment before it in the tier, or "
    return MissingArtefactError(
        f"{live}: {what} cannot be used ({problem}), and the producers before the segment are not known",
        remedy=repair + restore if is_repairable else restore,
    )


def _report(event: str, name: str, problem: str, before: ProducersBefore) -> None:
    log.warning(event, segment=name, problem=problem, replayed_from=before.start_offset, known_from=before.source)
