from dataclasses import replace
from uuid import UUID

import pytest

from tierd.model import Lineage
from tierd.restore.changelog.changelog_source import ChangelogIdentity
from tierd.restore.changelog.checkpoints.checkpoint_file import OffsetSemantics
from tierd.restore.changelog.checkpoints.checkpoint_meta import CheckpointMeta
from tierd.restore.changelog.checkpoints.task_checkpoint import NOT_CHECKPOINTED, CheckpointedOffset
from tierd.restore.changelog.reader.start_decision import (
    ChangelogFacts,
    StartDecision,
    StoreFacts,
    WipeReason,
    decide_start,
)

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
META = CheckpointMeta(
    offset=50,
    semantics=OffsetSemantics.LAST_APPLIED,
    topic_id=UUID(int=1),
    leader_epoch=3,
    read_since_ms=NOW_MS - 1000,
    store_id="s",
)
AT_50 = CheckpointedOffset(has_entry=True, last_applied=50, meta=META)
WITHOUT_FACTS = replace(AT_50, meta=None)
WITHOUT_OFFSET = CheckpointedOffset(has_entry=True, last_applied=None, meta=None)
STORE = StoreFacts(persistent=True, transactional=False, stored_offset=None, store_id="s", is_empty=False)
EMPTY = replace(STORE, is_empty=True)
TRANSACTIONAL = replace(STORE, transactional=True, stored_offset=50)
LOG = ChangelogFacts(
    identity=ChangelogIdentity(topic_id=UUID(int=1), lineage=Lineage.of([(1, 0), (3, 40)]), delete_retention_ms=DAY_MS),
    earliest_offset=0,
    end_offset=100,
)


def decide(
    store: StoreFacts, checkpointed: CheckpointedOffset, log: ChangelogFacts = LOG, *, exactly_once: bool = False
) -> StartDecision:
    return decide_start(store, checkpointed, log, exactly_once=exactly_once, now_ms=NOW_MS)


def with_identity(log: ChangelogFacts = LOG, *, lineage: Lineage | None = None, **identity: object) -> ChangelogFacts:
    """Return the changelog with another identity."""
    changed = replace(log.identity, **identity)  # type: ignore[arg-type] # names of fields
    return replace(log, identity=changed if lineage is None else replace(changed, lineage=lineage))


def test_restore_goes_on_after_the_checkpoint() -> None:
    assert decide(STORE, AT_50) == StartDecision(50)


def test_offset_of_a_transactional_store_wins_over_the_checkpoint() -> None:
    assert decide(replace(TRANSACTIONAL, stored_offset=60), AT_50) == StartDecision(60)
    assert decide(replace(TRANSACTIONAL, stored_offset=None, is_empty=True), AT_50) == StartDecision(None)


@pytest.mark.parametrize(
    ("store", "checkpointed", "exactly_once", "wipe"),
    [
        (STORE, NOT_CHECKPOINTED, True, WipeReason.NO_OFFSET),
        (STORE, NOT_CHECKPOINTED, False, None),
        (EMPTY, NOT_CHECKPOINTED, True, None),
        (STORE, WITHOUT_OFFSET, True, None),  # a restore that was cut short: committed data
        (replace(TRANSACTIONAL, stored_offset=None), WITHOUT_OFFSET, True, WipeReason.NO_OFFSET),
        (replace(STORE, persistent=False), AT_50, False, WipeReason.NO_OFFSET),
        (replace(EMPTY, persistent=False), AT_50, True, None),
    ],
)
def test_store_without_usable_offset_begins_at_the_beginning(
    store: StoreFacts, checkpointed: CheckpointedOffset, exactly_once: bool, wipe: WipeReason | None
) -> None:
    assert decide(store, checkpointed, exactly_once=exactly_once) == StartDecision(None, wipe)


@pytest.mark.parametrize(
    ("store", "checkpointed", "expected"),
    [
        (replace(STORE, store_id="other"), AT_50, StartDecision(None, WipeReason.OTHER_STORE)),
        (replace(EMPTY, store_id="other"), AT_50, StartDecision(None)),
        (EMPTY, AT_50, StartDecision(50)),  # all keys were deleted
        (EMPTY, WITHOUT_FACTS, StartDecision(None)),  # the checkpoint may have outlived its store
        (STORE, WITHOUT_FACTS, StartDecision(50)),  # of Kafka Streams
        (replace(TRANSACTIONAL, store_id="other"), AT_50, StartDecision(50)),
    ],
)
def test_checkpoint_of_other_files_does_not_count(
    store: StoreFacts, checkpointed: CheckpointedOffset, expected: StartDecision
) -> None:
    assert decide(store, checkpointed) == expected


@pytest.mark.parametrize("store", [STORE, TRANSACTIONAL])
def test_other_topic_id_wipes(store: StoreFacts) -> None:
    assert decide(store, AT_50, with_identity(topic_id=UUID(int=2))).wipe is WipeReason.TOPIC_RECREATED
    assert decide(store, AT_50, with_identity(topic_id=None)).wipe is None


@pytest.mark.parametrize("checkpointed", [AT_50, WITHOUT_FACTS])
@pytest.mark.parametrize(("end", "wipe"), [(50, WipeReason.BEYOND_END), (0, WipeReason.BEYOND_END), (51, None)])
def test_offset_beyond_the_end_wipes(checkpointed: CheckpointedOffset, end: int, wipe: WipeReason | None) -> None:
    assert decide(STORE, checkpointed, replace(LOG, end_offset=end)).wipe is wipe


@pytest.mark.parametrize(("earliest", "wipe"), [(51, None), (52, WipeReason.BELOW_START)])
def test_gap_below_the_log_start_wipes(earliest: int, wipe: WipeReason | None) -> None:
    assert decide(STORE, WITHOUT_FACTS, replace(LOG, earliest_offset=earliest)).wipe is wipe


@pytest.mark.parametrize(
    ("lineage", "wipe"),
    [
        ([(1, 0), (3, 40), (4, 51)], None),
        ([(1, 0), (3, 40), (4, 50)], WipeReason.TRUNCATED),
        ([(1, 0), (3, 40), (4, 45)], WipeReason.TRUNCATED),
        ([(1, 0)], WipeReason.TRUNCATED),  # the log never had our epoch
        ([(1, 0), (4, 45)], WipeReason.TRUNCATED),
        ([(4, 45)], WipeReason.TRUNCATED),
        ([], None),
    ],
)
def test_epoch_that_ended_below_the_offset_wipes(lineage: list[tuple[int, int]], wipe: WipeReason | None) -> None:
    assert decide(STORE, AT_50, with_identity(lineage=Lineage.of(lineage))).wipe is wipe


@pytest.mark.parametrize(("lineage", "wipe"), [([(3, 40)], None), ([(3, 40), (4, 55)], WipeReason.TRUNCATED)])
def test_store_ahead_of_its_facts_wipes_if_the_epoch_ended_between(
    lineage: list[tuple[int, int]], wipe: WipeReason | None
) -> None:
    store = replace(TRANSACTIONAL, stored_offset=60)
    assert decide(store, AT_50, with_identity(lineage=Lineage.of(lineage))).wipe is wipe


@pytest.mark.parametrize(
    ("known", "end", "lineage", "wipe"),
    [
        ([(3, 40), (4, 55)], 70, [(3, 40), (4, 55)], None),  # the epochs between are known
        ([(3, 40), (4, 55)], 70, [(3, 40), (4, 55), (5, 61)], None),
        ([(3, 40), (4, 55)], 70, [(3, 40), (4, 55), (5, 60)], WipeReason.TRUNCATED),
        ([(3, 40), (4, 55)], 70, [(3, 40), (5, 55)], WipeReason.TRUNCATED),
        ([(3, 40), (4, 55)], 60, [(3, 40), (4, 55)], WipeReason.TRUNCATED),  # they were known to 59 only
    ],
)
def test_store_ahead_of_its_facts_goes_on_where_the_epochs_between_are_known(
    known: list[tuple[int, int]], end: int, lineage: list[tuple[int, int]], wipe: WipeReason | None
) -> None:
    store = replace(TRANSACTIONAL, stored_offset=60)
    meta = replace(META, lineage=Lineage.of(known), known_end_offset=end)
    log = with_identity(lineage=Lineage.of(lineage))
    assert decide(store, replace(AT_50, meta=meta), log).wipe is wipe


def test_store_whose_first_run_was_killed_is_judged_by_the_epochs_of_its_start() -> None:
    meta = replace(META, offset=-1, leader_epoch=-1, lineage=Lineage.of([(3, 0)]), known_end_offset=40)
    begun = CheckpointedOffset(has_entry=True, last_applied=None, meta=meta)
    for lineage, wipe in (([(3, 0)], None), ([(3, 0), (4, 51)], None), ([(3, 0), (4, 30)], WipeReason.TRUNCATED)):
        assert decide(TRANSACTIONAL, begun, with_identity(lineage=Lineage.of(lineage))).wipe is wipe
    old = replace(begun, meta=replace(meta, read_since_ms=NOW_MS - DAY_MS))
    assert decide(TRANSACTIONAL, old, with_identity(lineage=Lineage.of([(3, 0)]))).wipe is WipeReason.TOO_OLD


@pytest.mark.spec("changelog-restore 59")
@pytest.mark.parametrize(
    ("age_ms", "delete_retention_ms", "end", "wipe"),
    [
        (DAY_MS - 3_600_000, DAY_MS, 100, None),
        (DAY_MS - 3_599_999, DAY_MS, 100, WipeReason.TOO_OLD),
        (DAY_MS * 9, DAY_MS, 51, None),  # nothing was written since
        (DAY_MS * 9, None, 100, None),  # not compacted
        (1, 0, 100, WipeReason.TOO_OLD),
    ],
)
def test_checkpoint_older_than_tombstones_are_kept_wipes(
    age_ms: int, delete_retention_ms: int | None, end: int, wipe: WipeReason | None
) -> None:
    checkpointed = replace(AT_50, meta=replace(META, read_since_ms=NOW_MS - age_ms))
    log = with_identity(replace(LOG, end_offset=end), delete_retention_ms=delete_retention_ms)
    assert decide(STORE, checkpointed, log).wipe is wipe
