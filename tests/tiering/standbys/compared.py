"""Comparison of one directory with the tier of a session."""

from pathlib import Path

from tests.tiering.setups import CLUSTER_ID, Session
from tierd.log import identify_directory
from tierd.metadata import MetadataKeyFactory, PartitionView, read_partition
from tierd.model import TopicIdPartition
from tierd.tiering import FetchTask, Finding, StandbyAudit
from tierd.tiering.standbys.offset_comparison import CopyCompared


async def findings_of(
    session: Session, copy: Path, *, is_compacted: bool | None = None, deep: bool = True
) -> list[Finding]:
    """Return the findings and notes about the partition directory ``copy``."""

    async def view(partition: TopicIdPartition) -> PartitionView:
        return await read_partition(session.tier.rows, MetadataKeyFactory(CLUSTER_ID), partition)

    directory = identify_directory(copy)
    assert directory is not None
    audit = StandbyAudit(
        view=view,
        new_task=lambda snapshot: FetchTask(
            snapshot, remote=session.storage, recorder=session.recorder, prefetch_bytes=1 << 20
        ),
        clock=session.tier.clock,
    )
    return [*await audit.run(directory.partition, [directory], is_compacted=is_compacted, deep=deep)]


def note(findings: list[Finding]) -> CopyCompared:
    """Return the note on the only copy."""
    (found,) = (each for each in findings if isinstance(each, CopyCompared))
    return found
