"""The partition row: the claim that may write a partition's metadata, and the revision (remote-tiering 7.6)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self
from uuid import UUID

from tierd.errors import FencedError
from tierd.metadata.rows.newest_epochs import NewestEpochs
from tierd.model import RemotePartitionDeleteState, TopicIdPartition

RECORD_IN_DOUBT: Final = -1
_FINISHED: Final = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED


class Claim(NamedTuple):
    """The right to write: a leader epoch, the broker that leads in it, and the session of its process."""

    leader_epoch: int
    broker_id: int
    session_id: UUID

    def __str__(self) -> str:
        return f"leader epoch {self.leader_epoch} of broker {self.broker_id}, session {self.session_id}"


class PartitionDelete(NamedTuple):
    """State of the partition's deletion, with the time and the author of its last step."""

    state: RemotePartitionDeleteState
    event_timestamp_ms: int
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """Row of the store about a partition as a whole.

    Attributes:
        topic: the name; the id is in the key.
        revision: grows with every batch, so that no two states of the partition share a row value.
        log_start_offset: first offset that may be read anywhere, inclusive; only an undelete moves it back. None until
            it is set for the first time, by the first leader that read its log.
        deletion: None while the partition's remote data is not being deleted. Finished, the row is a tombstone: it
            is all that the store keeps of the partition.
        compacted_to: up to where compaction has cleaned the partition, exclusive; it only grows. None while it never
            has: everything is dirty.
        recorded_log_start: log start that the bucket's record of the partition has; ``RECORD_IN_DOUBT`` while the
            record is being written, or where the outcome of the write is unknown. None while the bucket has no record,
            which stands for a log start of 0.
        only_broker_id: broker that every claim since the first came from. None where several brokers have claimed the
            partition, or where the row does not show earlier claims: after a rebuild, or from an earlier tierd.
        newest_epochs: how far the newest leader epochs are in the tier; they count only at their own revision. None in
            a row that a rebuild or an earlier tierd wrote.
        abandoned_epochs: leader epochs of the tier that are of a branch which the log has abandoned, ascending, as the
            log of a later leader proved. A lineage that is made of the tier has none of them.
        unknown: fields of a later tierd, kept when the row is rewritten.
    """

    topic: str
    revision: int
    claim: Claim
    log_start_offset: int | None = None
    deletion: PartitionDelete | None = None
    compacted_to: int | None = None
    recorded_log_start: int | None = None
    only_broker_id: int | None = None
    newest_epochs: NewestEpochs | None = None
    abandoned_epochs: tuple[int, ...] = ()
    unknown: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_log_start_recorded(self) -> bool:
        """Return True if the bucket has the present log start, or none has been set."""
        return self.log_start_offset is None or self.log_start_offset == (self.recorded_log_start or 0)

    @property
    def is_tombstone(self) -> bool:
        """Return True if the partition was deleted."""
        return self.deletion is not None and self.deletion.state is _FINISHED

    def compacted(self, to: int | None) -> Self:
        """Return the same row, cleaned by compaction up to ``to`` if that is further."""
        if to is None or (self.compacted_to is not None and to <= self.compacted_to):
            return self
        return replace(self, compacted_to=to)

    @property
    def known_epochs(self) -> NewestEpochs | None:
        """Return the newest epochs if they are of this revision, None otherwise."""
        newest = self.newest_epochs
        return newest if newest is not None and newest.revision == self.revision else None

    def bumped(self, newest_of: Callable[[int], NewestEpochs]) -> Self:
        """Return the same row after one more batch; ``newest_of`` gives the newest epochs then, at the new revision."""
        revision = self.revision + 1
        return replace(self, revision=revision, newest_epochs=newest_of(revision))


def claimed_row(
    stored: PartitionRow | None, claim: Claim, partition: TopicIdPartition, *, held: bool, above: int = 0
) -> PartitionRow:
    """Return the row that makes ``claim`` the owner; the revision grows even when it owns the partition already.

    The growth settles a write whose outcome is unknown: that write landed before, or its precondition fails for ever.

    Args:
        stored: the present row, None when the partition is new to the store.
        claim: the claim of the caller.
        partition: owner of the row.
        held: the claim was granted before. A session that lost it to a later one of the same broker does not
            take it back.
        above: a revision that the claim has had. A store that lost writes, in a failover or because a backup was
            restored, must not come to it again: followers compare the row to learn of changes.

    Raises:
        FencedError: a newer leader epoch, another broker in the same epoch, or a newer session of ours owns the row.
    """
    if stored is None:
        return PartitionRow(
            topic=partition.topic, revision=above + 1, claim=claim, only_broker_id=None if above else claim.broker_id
        )
    owner = stored.claim
    same_broker = owner.leader_epoch == claim.leader_epoch and owner.broker_id == claim.broker_id
    if owner.leader_epoch < claim.leader_epoch or (same_broker and (owner == claim or not held)):
        # The last claim is compared too: an earlier tierd keeps the field as it finds it.
        is_same = stored.only_broker_id == owner.broker_id == claim.broker_id
        only_broker_id = claim.broker_id if is_same else None
        revision = max(stored.revision, above) + 1
        newest = stored.newest_epochs and stored.newest_epochs.carried(stored=stored.revision, revision=revision)
        return replace(stored, revision=revision, claim=claim, only_broker_id=only_broker_id, newest_epochs=newest)
    raise fenced(partition, claim, owner)


def fenced(partition: TopicIdPartition, claim: Claim, owner: Claim | None) -> FencedError:
    """Return the error for a writer with ``claim`` where ``owner`` owns the partition now."""
    return FencedError(
        f"{partition}: {claim} may not write: {owner or 'no claim'} owns the partition in the metadata store",
        remedy="nothing to do if leadership moved; otherwise look for a second tierd with the same node_id",
    )
