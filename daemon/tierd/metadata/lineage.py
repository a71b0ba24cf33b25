"""The lineage of both tiers together: a broker forgets the epochs below its local log start, the metadata does not."""

from tierd.metadata.cache import PartitionView
from tierd.model import Lineage


def effective_lineage(view: PartitionView, local: Lineage) -> Lineage:
    """Return which epoch wrote which offset, over remote and local data.

    From its first entry on the local lineage is the truth: epochs that only the store knows there are of a branch
    that was truncated. Below it every epoch begins where its first readable segment says. The first local epoch
    may begin earlier than the broker remembers, since the broker moves that start up with its log start.
    """
    lineage = Lineage()
    first = local.earliest
    for epoch, state in sorted(view.epochs.items()):
        if not state.first_offsets or (first is not None and epoch > first.epoch):
            continue
        lineage = lineage.assign(epoch=epoch, start_offset=state.first_offsets[0])
    for entry in local.entries:
        lineage = lineage.assign(epoch=entry.epoch, start_offset=entry.start_offset)
    return lineage
