from tests.log.producer_steps import ABORT, COMMIT, data
from tierd.log import AbortedTransaction, BatchHeader, ControlRecordType
from tierd.pipeline.rewriting import TransactionTrace
from tierd.pipeline.rewriting.transaction_pass import AbortedTransactions, TransactionPass

FIRST = AbortedTransaction(producer_id=1, first_offset=10, last_offset=20, last_stable_offset=21)
SECOND = AbortedTransaction(producer_id=1, first_offset=30, last_offset=40, last_stable_offset=41)
ABORTED = AbortedTransactions.of((SECOND, FIRST))


def written(offset: int, *, producer_id: int = 1, transactional: bool = True) -> BatchHeader:
    return data(offset, 0, producer_id=producer_id, transactional=transactional)


def marker(offset: int, *, producer_id: int = 1) -> BatchHeader:
    return data(offset, -1, producer_id=producer_id, transactional=True, control=True)


def test_data_between_the_first_offset_and_the_marker_is_aborted() -> None:
    aborted = [offset for offset in range(50) if ABORTED.is_aborted(written(offset))]
    assert aborted == [*range(10, 21), *range(30, 41)]
    assert not ABORTED.is_aborted(written(15, transactional=False))
    assert not ABORTED.is_aborted(written(15, producer_id=2))


def test_batch_that_begins_before_and_ends_within_a_transaction_is_part_of_it() -> None:
    assert ABORTED.is_aborted(data(8, 0, count=4, transactional=True))


def test_marker_is_discardable_when_no_batch_of_its_transaction_is_left() -> None:
    walk = TransactionPass(ABORTED, open_producers=())
    assert walk.on_control(marker(20), ABORT)
    assert walk.on_data(written(31))
    assert not walk.on_control(marker(40), ABORT)
    assert walk.entry_of(marker(40)) == SECOND
    assert not walk.on_data(written(50))
    assert not walk.on_control(marker(51), COMMIT)
    assert walk.on_control(marker(52), COMMIT)


def test_marker_of_a_transaction_that_began_in_an_earlier_group_is_kept() -> None:
    walk = TransactionPass(ABORTED, open_producers={1})
    assert not walk.on_control(marker(20), ABORT)
    assert walk.on_control(marker(40), ABORT)


def test_control_batches_that_end_no_transaction_are_kept_and_emptied_ones_are_discardable() -> None:
    walk = TransactionPass(ABORTED, open_producers={1})
    assert not walk.on_control(marker(5), ControlRecordType.LEADER_CHANGE)
    assert not walk.on_control(marker(6), ControlRecordType.UNKNOWN)
    assert walk.on_control(marker(7), None)
    assert not walk.on_control(marker(8), COMMIT)


def test_traces_of_log_parts_combine_to_the_open_transactions_at_their_end() -> None:
    first, second = TransactionTrace(), TransactionTrace()
    for producer_id in (1, 2, 3):
        first.note(written(producer_id, producer_id=producer_id), None)
    first.note(written(4, producer_id=4, transactional=False), None)
    first.note(marker(5, producer_id=3), COMMIT)
    second.note(marker(6, producer_id=1), ABORT)
    second.note(marker(7, producer_id=2), None)
    assert first.open_producers == {1, 2, 3} - {3}
    first.extend(second)
    assert first.open_producers == {2}
