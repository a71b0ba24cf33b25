"""Work of one partition, whose segments are a group each."""

from tests.fakes.remote_segments import PARTITION
from tests.pipeline.planning.tiers import tier
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.pipeline.planning import PartitionWork, WorkKind
from tierd.pipeline.planning.work_order import Group


def work_of(
    groups: int, kind: WorkKind = WorkKind.COMPACT, *, erased_keys: frozenset[bytes] = frozenset()
) -> PartitionWork:
    """Return the work of groups of one segment of ten offsets each, never compacted before."""
    return PartitionWork(
        index=0,
        partition=PARTITION,
        kind=kind,
        inputs=tuple(tier(*[1] * groups)),
        groups=tuple(Group(place, place) for place in range(groups)),
        first_dirty_offset=0,
        round_end_offset=groups * 10,
        delete_retention_ms=0,
        producer_snapshot=encode_producer_snapshot(()),
        erased_keys=erased_keys,
    )
