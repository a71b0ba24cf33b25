"""Branches of a log: which copy follows the newest leader, how far another has the same records, whose epochs count.

::

    newest     epoch 1: [ 0 ....... 900 ) epoch 2: [ 900 .... 1,100 )
    another    epoch 1: [ 0 ................................. 1,200 )      the newest leader replaced 900 to 1,199
                                        ^ parting

A log is newer than another if its last record is of a higher leader epoch, however far the other one reaches. Up to the
end of the last epoch that both have, their records are the same (KIP-101; changelog-restore 3.4). Decisions only.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tierd.metadata import PartitionView, effective_lineage
from tierd.model import Lineage, RemoteLogSegmentMetadata, RemoteLogSegmentState


class LogBranch(NamedTuple):
    """Leader epochs of a log, and the exclusive end of its records."""

    lineage: Lineage
    end_offset: int

    @property
    def last_epoch(self) -> int:
        """Return the leader epoch of the last record; -1 where it is not known."""
        epoch = self.lineage.epoch_for(self.end_offset - 1)
        return -1 if epoch is None else epoch


def ends_on_newest(branches: Sequence[LogBranch]) -> list[int]:
    """Return for each branch the exclusive end of its records that no newer branch has replaced."""
    return [
        min([branch.end_offset, *(_parting(branch, each) for each in branches if each.last_epoch > branch.last_epoch)])
        for branch in branches
    ]


def newest_segment(view: PartitionView) -> RemoteLogSegmentMetadata | None:
    """Return the readable segment of the highest leader epoch that ends last; its leader epochs are the tier's.

    None where the tier has nothing, and where all of it is of one epoch: then there is nothing to decide.
    """
    finished = [m for m in view.list() if m.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    if len({entry.epoch for m in finished for entry in m.segment_leader_epochs}) < 2:
        return None
    return max(finished, key=lambda m: (m.segment_leader_epochs[-1].epoch, m.end_offset))


def restored_lineage(view: PartitionView, *, newest: Lineage, local: Lineage) -> Lineage:
    """Return which epoch wrote which offset of the log that is restored.

    The leader epochs of the local remains are the truth if they reach as far as those of the tier. Otherwise the
    remains are of a replica that was behind, and the newest segment of the tier tells the truth. It knows of epochs
    whose segments the tier never got, so that offsets of an abandoned branch do not fill their place.

    The first local epoch may have begun below the offset that the directory knows, where deletions up to the log start
    cut it (Kafka: LeaderEpochFileCache.truncateFromStart). An earlier offset of that epoch in the tier counts.

    Args:
        view: the segments of the tier.
        newest: leader epochs that were stored with ``newest_segment``; empty where it is None.
        local: leader epochs of the directory that is restored over; empty without one.
    """
    first, latest = local.earliest, local.latest
    in_tier = view.first_offsets()
    if first is None or latest is None or latest.epoch < max(in_tier, default=-1):
        return effective_lineage(view, newest)
    known = (newest.start_offset_of(first.epoch), in_tier.get(first.epoch))
    begins = min([first.start_offset, *(offset for offset in known if offset is not None)])
    lineage = Lineage(tuple(entry for entry in newest.entries if entry.epoch < first.epoch))
    for entry in (first._replace(start_offset=begins), *local.entries[1:]):
        lineage = lineage.assign(epoch=entry.epoch, start_offset=entry.start_offset)
    return effective_lineage(view, lineage)


def _parting(branch: LogBranch, newer: LogBranch) -> int:
    """Return the offset from which ``branch`` may have other records than ``newer``."""
    common = {entry.epoch for entry in branch.lineage.entries} & {entry.epoch for entry in newer.lineage.entries}
    if not common:
        return newer.lineage.entries[0].start_offset
    following = (each.lineage.next_entry(max(common)) for each in (branch, newer))
    return min((entry.start_offset for entry in following if entry is not None), default=branch.end_offset)
