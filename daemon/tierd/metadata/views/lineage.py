"""The lineage of both tiers together: a broker forgets the epochs below its local log start, the metadata does not."""

from tierd.metadata.rows.newest_epochs import TierEpochs
from tierd.model import Lineage


def effective_lineage(tier: TierEpochs, local: Lineage) -> Lineage:
    """Return which epoch wrote which offset, over remote and local data.

    From its first entry on the local lineage is the truth: epochs that only the store knows there are of a branch
    that was truncated. Below it every epoch begins where its first readable segment says. The first local epoch
    may begin earlier than the broker remembers, since the broker moves that start up with its log start.
    """
    lineage = Lineage()
    first = local.earliest
    for epoch, start_offset in sorted(tier.first_offsets().items()):
        if first is None or epoch <= first.epoch:
            lineage = lineage.assign(epoch=epoch, start_offset=start_offset)
    for entry in local.entries:
        lineage = lineage.assign(epoch=entry.epoch, start_offset=entry.start_offset)
    return lineage
