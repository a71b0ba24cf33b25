import pytest

from tests.log.batches import batch, marker, plain, transactional
from tierd.log import iter_batches
from tierd.log.transactions import CompletedTransaction, OpenTransactions


def apply(*batches: bytes) -> tuple[OpenTransactions, list[CompletedTransaction]]:
    state = OpenTransactions()
    completed = [state.apply(b, b.control_type()) for b in iter_batches(b"".join(batches), name="file")]
    return state, [c for c in completed if c is not None]


@pytest.mark.spec("log-format PSM-10")
def test_a_transaction_spans_its_batches_and_ends_with_its_marker() -> None:
    state, completed = apply(transactional(16, 7, 5), transactional(21, 7, 5), marker(40, 7, commit=True))
    assert completed == [CompletedTransaction(7, 16, 40, is_aborted=False)]
    assert state.first_unstable_offset is None


@pytest.mark.spec("log-format PSM-31")
def test_overlapping_transactions_leave_the_earliest_open_one() -> None:
    opened = [transactional(0, 1), transactional(1, 2), transactional(2, 3)]
    assert apply(*opened, marker(3, 1, commit=True))[0].first_unstable_offset == 1
    assert apply(*opened, marker(3, 1, commit=True), marker(4, 3, commit=False))[0].first_unstable_offset == 1
    assert apply(*opened, marker(3, 2, commit=True))[0].first_unstable_offset == 0


@pytest.mark.spec("log-format PSM-32")
def test_a_marker_without_data_completes_nothing() -> None:
    state, completed = apply(marker(0, 1, commit=True), marker(1, 1, commit=False), plain(2), transactional(30, 1))
    assert (completed, state.first_unstable_offset) == ([], 30)


@pytest.mark.spec("log-format PSM-27")
def test_an_emptied_control_batch_is_ignored() -> None:
    emptied = batch(5, [], transactional=True, control=True, producer_id=7, producer_epoch=0)
    state, completed = apply(transactional(0, 7), emptied)
    assert (completed, state.first_unstable_offset) == ([], 0)


def test_batches_without_a_transaction_change_nothing() -> None:
    assert (
        apply(plain(0), batch(1, [(0, None, None)], producer_id=3, producer_epoch=0, base_sequence=0))[0].first_offsets
        == {}
    )
