"""MetadataStatistics: counts and present state of a metadata manager."""

from collections.abc import Mapping
from dataclasses import dataclass

from tierd.metadata.kv import CallLatency


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataStatistics:
    """Counts of the manager since it began, and its present state.

    Attributes:
        partitions: announced to be led and not stopped.
        ready_partitions: loaded, with nothing in doubt.
        dirty_partitions: to be reloaded before their next use.
        fenced_partitions: another leader or session owns them.
        followed_partitions: announced to be followed, and not stopped.
        segments: rows in memory, tombstones excepted.
        tombstones: deleted segments that are still remembered.
        claims: partition rows taken, reloads included.
        loads: partitions read from the store.
        reloads: of those, after an unknown outcome or an unexpected revision.
        follower_reads: reads of followed partitions.
        follower_loads: of those, reads that needed all rows of the partition.
        repairs: stored epoch states that did not fit the stored segments.
        fenced_writes: refused by the store, because another leader or session owns the partition.
        unknown_outcomes: batches that may or may not have been written.
        unexpected_revisions: preconditions that failed though the partition is ours: a bug, or a manual edit.
        invalid_transitions: steps that the lifecycle does not have.
        backend: calls of the store and their time, by operation: get, scan, apply.
    """

    partitions: int
    ready_partitions: int
    dirty_partitions: int
    fenced_partitions: int
    followed_partitions: int
    segments: int
    tombstones: int
    claims: int
    loads: int
    reloads: int
    follower_reads: int
    follower_loads: int
    repairs: int
    fenced_writes: int
    unknown_outcomes: int
    unexpected_revisions: int
    invalid_transitions: int
    backend: Mapping[str, CallLatency]
