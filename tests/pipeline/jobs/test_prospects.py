from collections.abc import Sequence
from dataclasses import replace

from tests.pipeline.jobs.test_task_layout import work_of
from tierd.log import AbortedTransaction
from tierd.pipeline.jobs.outcomes import FailedGroup, UnchangedGroup
from tierd.pipeline.jobs.prospects import Prospect, Rewrite, compaction_prospects, erasure_prospects
from tierd.pipeline.jobs.scanning import ErasureNote, InputNote
from tierd.pipeline.jobs.task_layout import GroupPlace, InputPlace
from tierd.pipeline.planning import PartitionWork
from tierd.pipeline.rewriting import TransactionTrace


def note(at: int, *, keyed: int = 10, goes_on: dict[int, bool] | None = None, problem: str | None = None) -> InputNote:
    return InputNote(InputPlace(0, at), keyed, TransactionTrace(goes_on or {}), problem)


def judged(work: PartitionWork, notes: Sequence[InputNote], latest: Sequence[int]) -> list[Prospect]:
    counts = {GroupPlace(0, group): count for group, count in enumerate(latest)}
    found = compaction_prospects(work, {one.place: one for one in notes}, counts)
    return [found[place] for place in sorted(found)]


def with_aborted(work: PartitionWork, *producer_ids: int) -> PartitionWork:
    aborted = tuple(AbortedTransaction(producer_id, 0, 1, 2) for producer_id in producer_ids)
    return replace(work, aborted=aborted)


def test_a_single_segment_that_loses_no_key_is_tried_first() -> None:
    work = work_of(0, [1, 1, 1, 1], groups=[(0, 0), (1, 1), (2, 3)])
    found = judged(work, [note(0), note(1), note(2), note(3)], [10, 9, 20])
    assert found == [Rewrite(is_certain=False, latest=10), Rewrite(latest=9), Rewrite(latest=20)]


def test_group_gets_the_transactions_that_continue_from_earlier_groups() -> None:
    work = work_of(0, [1, 1, 1], groups=[(0, 0), (1, 1), (2, 2)])
    notes = [note(0, goes_on={7: True, 8: True}), note(1, goes_on={7: False}), note(2)]
    found = judged(work, notes, [5, 5, 5])
    assert found == [Rewrite(latest=5), Rewrite(frozenset({7, 8}), latest=5), Rewrite(frozenset({8}), latest=5)]


def test_unreadable_group_is_kept_and_later_groups_keep_every_abort_marker() -> None:
    work = with_aborted(work_of(0, [1, 1, 1], groups=[(0, 0), (1, 1), (2, 2)]), 9)
    found = judged(work, [note(0), note(1, problem="torn"), note(2)], [5, 5, 5])
    assert found == [Rewrite(latest=5), FailedGroup("torn"), Rewrite(frozenset({9}), latest=5)]


def test_group_behind_an_unreadable_one_keeps_all_its_own_markers() -> None:
    """The committed data of producer 5 may be in the damaged input."""
    work = work_of(0, [1, 1, 1, 1], groups=[(0, 0), (1, 1), (2, 2), (3, 3)])
    notes = [note(0), note(1, problem="torn"), note(2, goes_on={5: False}), note(3, goes_on={6: False})]
    found = judged(work, notes, [5, 5, 5, 5])
    assert found == [
        Rewrite(latest=5),
        FailedGroup("torn"),
        Rewrite(frozenset({5, 6}), latest=5),
        Rewrite(frozenset({5, 6}), latest=5),
    ]


def test_groups_behind_an_unreadable_input_without_a_group_are_not_rewritten() -> None:
    work = work_of(0, [1, 1, 1], groups=[(0, 0), (2, 2)])
    found = judged(work, [note(0), note(1, problem="torn"), note(2)], [5, 5])
    assert found == [Rewrite(latest=5), FailedGroup("torn")]


def test_every_group_gets_the_offset_of_the_first_unread_batch_of_any_input() -> None:
    work = work_of(0, [1, 1, 1, 1], groups=[(0, 0), (2, 2), (3, 3)])
    notes = [note(0), replace(note(1), unread_from=15), replace(note(2), unread_from=21), note(3)]
    found = judged(work, notes, [5, 5, 5])
    assert found == [Rewrite(unread_from=15, latest=5)] * 3


def test_erasure_rewrites_only_groups_with_erased_keys() -> None:
    work = work_of(0, [1, 1, 1])
    notes = [ErasureNote(InputPlace(0, at), at) for at in (0, 1)] + [ErasureNote(InputPlace(0, 2), 0, "torn")]
    found = erasure_prospects(work, notes)
    assert [found[place] for place in sorted(found)] == [UnchangedGroup(), Rewrite(), FailedGroup("torn")]
