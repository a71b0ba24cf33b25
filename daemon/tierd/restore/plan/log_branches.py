"""Branches of a log: which of several copies follows the newest leader, and how far another one has the same records.

::

    newest     epoch 1: [ 0 ....... 900 ) epoch 2: [ 900 .... 1,100 )
    another    epoch 1: [ 0 ................................. 1,200 )      the newest leader replaced 900 to 1,199
                                        ^ parting

A log is newer than another if its last record is of a higher leader epoch, however far the other one reaches. Up to the
end of the last epoch that both have, their records are the same (KIP-101). Decisions only.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tierd.model import Lineage


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


def _parting(branch: LogBranch, newer: LogBranch) -> int:
    """Return the offset from which ``branch`` may have other records than ``newer``."""
    common = {entry.epoch for entry in branch.lineage.entries} & {entry.epoch for entry in newer.lineage.entries}
    if not common:
        return newer.lineage.entries[0].start_offset
    following = (each.lineage.next_entry(max(common)) for each in (branch, newer))
    return min((entry.start_offset for entry in following if entry is not None), default=branch.end_offset)
