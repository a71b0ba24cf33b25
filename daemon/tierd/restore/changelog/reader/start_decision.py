"""Decision where the restore of a store begins: after an offset of an earlier run, or anew (changelog-restore 3.6).

An offset of an earlier run counts only if it still means the same record of the same changelog, and if nothing that was
deleted meanwhile can be missed. In every doubtful case the store is restored from the beginning, which costs time only.
"""

from dataclasses import dataclass
from enum import StrEnum

from tierd.restore.changelog.changelog_source import ChangelogIdentity
from tierd.restore.changelog.checkpoints.checkpoint_meta import CheckpointMeta
from tierd.restore.changelog.checkpoints.task_checkpoint import CheckpointedOffset
from tierd.restore.plan.tombstone_age import longest_pause_ms


class WipeReason(StrEnum):
    """Reason why the data of a store are abandoned."""

    NO_OFFSET = "no_offset"  # data of an unknown state: exactly-once, or a store in memory
    OTHER_STORE = "other_store"  # the checkpoint is of other files than these
    TOPIC_RECREATED = "topic_recreated"  # the topic has another id
    TRUNCATED = "truncated"  # the epoch of the last applied record ended below it, or the log lost that epoch
    BEYOND_END = "beyond_end"  # the changelog ends below the last applied record
    BELOW_START = "below_start"  # records between the last applied one and the log start are gone
    TOO_OLD = "too_old"  # tombstones that were never read may be gone
    OUT_OF_RANGE = "out_of_range"  # the source refused the position in the middle of a restore


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """The state of a store that was opened.

    Attributes:
        stored_offset: last applied, as a transactional store keeps it.
    """

    persistent: bool
    transactional: bool
    stored_offset: int | None
    store_id: str | None
    is_empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogFacts:
    """The state of a changelog now.

    Attributes:
        earliest_offset: log start, inclusive.
        end_offset: log end, exclusive, uncommitted records included.
    """

    identity: ChangelogIdentity
    earliest_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Outcome: where to begin, and what is done before.

    Attributes:
        offset: last applied offset, after which the restore goes on; None for the beginning.
        wipe: reason to wipe the store first; None to keep its data.
    """

    offset: int | None
    wipe: WipeReason | None = None


def known_offset(store: StoreFacts, checkpointed: CheckpointedOffset) -> int | None:
    """Return the last applied offset that an earlier run left; a transactional store knows best (3.6)."""
    if not store.persistent:
        return None
    return store.stored_offset if store.transactional else checkpointed.last_applied


def decide_start(
    store: StoreFacts, checkpointed: CheckpointedOffset, changelog: ChangelogFacts, *, exactly_once: bool, now_ms: int
) -> StartDecision:
    """Decide where the restore of one store begins.

    Args:
        store: the store, open.
        checkpointed: what the checkpoint of the task has for the changelog.
        changelog: the changelog as it is now.
        exactly_once: data without an offset may be of an aborted transaction.
        now_ms: wall clock.
    """
    offset = known_offset(store, checkpointed)
    if offset is None:
        return StartDecision(None, _reason_without_offset(store, checkpointed, exactly_once=exactly_once))
    if not store.transactional and not _is_of_store(store, checkpointed.meta):
        return StartDecision(None, None if store.is_empty else WipeReason.OTHER_STORE)
    reason = _doubt(offset, checkpointed.meta, changelog, now_ms=now_ms)
    return StartDecision(offset) if reason is None else StartDecision(None, reason)


def _reason_without_offset(
    store: StoreFacts, checkpointed: CheckpointedOffset, *, exactly_once: bool
) -> WipeReason | None:
    if store.is_empty:
        return None
    # An entry without an offset is of a restore that was cut short: its data are committed ones (2.4).
    is_unknown_state = exactly_once and (store.transactional or not checkpointed.has_entry)
    return WipeReason.NO_OFFSET if is_unknown_state or not store.persistent else None


def _is_of_store(store: StoreFacts, meta: CheckpointMeta | None) -> bool:
    """Return False if the files of the store are not those that the checkpoint was written for."""
    if meta is None or meta.store_id is None or store.store_id is None:
        return not store.is_empty  # a checkpoint that outlived its store would leave all older keys out
    return meta.store_id == store.store_id


def _doubt(offset: int, meta: CheckpointMeta | None, changelog: ChangelogFacts, *, now_ms: int) -> WipeReason | None:
    """Return why ``offset`` may not mean the same record, or may have missed deletions; None if it counts."""
    identity = changelog.identity
    is_other_topic = meta and meta.topic_id and identity.topic_id and meta.topic_id != identity.topic_id
    if is_other_topic:
        return WipeReason.TOPIC_RECREATED
    if offset >= changelog.end_offset:
        return WipeReason.BEYOND_END
    if meta is not None and _is_truncated(offset, meta, changelog):
        return WipeReason.TRUNCATED
    if offset + 1 < changelog.earliest_offset:
        return WipeReason.BELOW_START
    retention_ms = identity.delete_retention_ms if offset + 1 < changelog.end_offset else None
    if meta is not None and retention_ms is not None and now_ms - meta.read_since_ms > longest_pause_ms(retention_ms):
        return WipeReason.TOO_OLD
    return None


def _is_truncated(offset: int, meta: CheckpointMeta, changelog: ChangelogFacts) -> bool:
    """Return True unless the log still has the epoch of the record at ``offset`` at that offset."""
    lineage = changelog.identity.lineage
    epoch = _epoch_of(offset, meta)
    if epoch < 0 or not lineage:
        return False
    if lineage.earliest is not None and epoch < lineage.earliest.epoch:
        return offset >= lineage.earliest.start_offset
    return lineage.end_offset_for(epoch, log_end_offset=changelog.end_offset).end_offset <= offset


def _epoch_of(offset: int, meta: CheckpointMeta) -> int:
    """Return the epoch of the record at ``offset`` as the facts know it; -1 where they know none.

    A store may be ahead of its facts. Where they do not reach, the newest epoch that they have is returned: an epoch
    that began behind it then counts as a truncation, which is the safe side.
    """
    known = meta.lineage.epoch_for(offset) if offset < meta.known_end_offset else None
    if known is not None:
        return known
    latest = meta.lineage.latest
    return meta.leader_epoch if meta.leader_epoch >= 0 or latest is None else latest.epoch
