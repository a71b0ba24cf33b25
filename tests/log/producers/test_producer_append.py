from pathlib import Path

import pytest

from tests.coded import coded
from tests.log.producer_steps import (
    ABORT,
    CLIENT,
    COMMIT,
    COORDINATOR,
    MAX_INT,
    NOW_MS,
    REPLICATION,
    append,
    data,
    data_offsets,
    end,
    manager_of,
    open_transactions,
    reloaded,
    unstable,
)
from tierd.errors import TierErrorCode
from tierd.log.log_errors import AppendError, InvalidTransactionStateError
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.transactions import CompletedTransaction, EndMarker
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.log_offset import LogOffset


@pytest.fixture
def manager(tmp_path: Path) -> ProducerStateManager:
    return manager_of(tmp_path)


class TestSequences:
    @pytest.mark.spec("log-format PSM-01")
    def test_sequences_of_a_client_are_consecutive_and_begin_at_0_in_a_new_epoch(
        self, manager: ProducerStateManager
    ) -> None:
        append(manager, data(0, 0), data(1, 1))
        with pytest.raises(
            AppendError,
            check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE),
            match=r"orders-0: producer 1.*sequence 1 does not follow 1",
        ):
            append(manager, data(2, 1))
        with pytest.raises(AppendError, check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE)):
            append(manager, data(2, 5))
        append(manager, data(2, 0, epoch=1))
        with pytest.raises(AppendError, check=coded(TierErrorCode.INVALID_PRODUCER_EPOCH), match="epoch 0 is below 1"):
            append(manager, data(3, 0, epoch=0))

    @pytest.mark.spec("log-format PSM-02")
    def test_producer_known_from_a_marker_begins_with_sequence_0(self, manager: ProducerStateManager) -> None:
        end(manager, ABORT, 0, producer_id=23)
        with pytest.raises(
            AppendError, check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE), match="sequence 17 does not follow -1"
        ):
            append(manager, data(1, 17, producer_id=23))
        append(manager, data(1, 0, producer_id=23))

    @pytest.mark.spec("log-format PSM-03")
    def test_sequence_0_follows_the_largest_sequence(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, MAX_INT))
        with pytest.raises(AppendError, check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE)):
            append(manager, data(1, 1))
        append(manager, data(1, 0))
        known = manager.last_entry(1)
        assert known is not None
        assert known.last_sequence == 0

    @pytest.mark.spec("log-format PSM-04")
    def test_sequences_may_wrap_within_a_batch(self, manager: ProducerStateManager) -> None:
        append(manager, data(2000, MAX_INT - 10, count=21), origin=REPLICATION)
        known = manager.last_entry(1)
        assert known is not None
        assert (known.first_sequence, known.last_sequence) == (MAX_INT - 10, 9)
        assert data_offsets(known) == (2000, 2020)

    @pytest.mark.spec("log-format PSM-05")
    def test_a_replica_may_begin_with_any_sequence(self, manager: ProducerStateManager) -> None:
        append(manager, data(100, 16), origin=REPLICATION)
        known = manager.last_entry(1)
        assert known is not None
        assert (known.producer_epoch, known.first_sequence, known.last_sequence) == (0, 16, 16)
        assert data_offsets(known) == (100, 100)

    @pytest.mark.spec("log-format PSM-18")
    def test_sequence_gap_is_refused_from_a_client_and_accepted_by_a_replica(
        self, manager: ProducerStateManager
    ) -> None:
        append(manager, data(0, 0))
        with pytest.raises(AppendError, check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE)):
            append(manager, data(1, 3))
        append(manager, data(1, 3), origin=REPLICATION)
        known = manager.last_entry(1)
        assert known is not None
        assert known.last_sequence == 3

    @pytest.mark.spec("log-format PSM-24")
    def test_a_coordinator_may_write_without_sequences(self, manager: ProducerStateManager) -> None:
        append(manager, *(data(at, -1, transactional=True) for at in range(3)), origin=COORDINATOR)
        known = manager.last_entry(1)
        assert known is not None
        assert (known.last_sequence, data_offsets(known)[1]) == (-1, 2)

    def test_sequences_within_one_append_must_be_consecutive(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, 0))
        prepared = manager.prepare_update(1, CLIENT)
        prepared.append(data(1, 1))
        with pytest.raises(
            AppendError, check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE), match="sequence 3 does not follow 1"
        ):
            prepared.append(data(2, 3))

    def test_unknown_producer_may_leave_gaps_in_its_first_append(self, manager: ProducerStateManager) -> None:
        prepared = manager.prepare_update(1, CLIENT)
        prepared.append(data(0, 5))
        prepared.append(data(1, 9))
        manager.update(prepared)
        known = manager.last_entry(1)
        assert known is not None
        assert known.last_sequence == 9

    def test_replica_accepts_a_batch_of_an_old_epoch(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, 0, epoch=3), data(1, 0, epoch=2), origin=REPLICATION)
        known = manager.last_entry(1)
        assert known is not None
        assert (known.producer_epoch, len(known.batches)) == (2, 1)

    @pytest.mark.spec("log-format APP-04")
    def test_a_duplicate_is_found_by_its_exact_sequences_among_the_last_five(
        self, manager: ProducerStateManager
    ) -> None:
        append(manager, *(data(at, at) for at in range(6)), data(6, 6, count=3))
        known = manager.last_entry(1)
        assert known is not None
        whole = known.find_duplicate(data(-1, 6, count=3))
        assert whole is not None
        assert (whole.first_offset, whole.last_offset, whole.timestamp_ms) == (6, 8, NOW_MS)
        oldest = known.find_duplicate(data(-1, 2))
        assert oldest is not None
        assert oldest.first_offset == 2
        assert known.find_duplicate(data(-1, 1)) is None
        assert known.find_duplicate(data(-1, 6, count=2)) is None
        assert known.find_duplicate(data(-1, 6, count=3, epoch=1)) is None


class TestTransactions:
    @pytest.mark.spec("log-format PSM-06")
    def test_a_marker_of_a_higher_epoch_fences_the_producer(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, 0, transactional=True))
        end(manager, ABORT, 1, epoch=1)
        known = manager.last_entry(1)
        assert known is not None
        assert (known.producer_epoch, known.batches, known.current_txn_first_offset) == (1, (), -1)
        for epoch in (1, 2):
            with pytest.raises(AppendError, check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE)):
                append(manager, data(2, 2, epoch=epoch))
        append(manager, data(2, 0, epoch=1))

    @pytest.mark.spec("log-format PSM-07")
    def test_open_transaction_keeps_its_log_position(self, manager: ProducerStateManager) -> None:
        place = LogOffset(990, segment_base_offset=990, position=234224)
        append(manager, data(990, 0, transactional=True), place=place)
        assert manager.first_unstable_offset == place
        assert open_transactions(manager) == [990]

    @pytest.mark.spec("log-format PSM-09")
    def test_prepared_update_changes_no_entry_until_it_is_applied(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, 0))
        prepared = manager.prepare_update(1, CLIENT)
        prepared.append(data(15, 1, count=5, transactional=True))
        known = manager.last_entry(1)
        assert known is not None
        assert (known.first_sequence, known.last_sequence, unstable(manager)) == (0, 0, None)
        prepared.append(data(30, 6, count=5, transactional=True))
        assert known.last_sequence == 0
        manager.update(prepared)
        assert (known.first_sequence, known.last_sequence, unstable(manager)) == (0, 10, 15)

    @pytest.mark.spec("log-format PSM-10")
    def test_a_transaction_is_completed_with_all_its_batches(self, manager: ProducerStateManager) -> None:
        append(manager, data(9, 0))
        prepared = manager.prepare_update(1, CLIENT)
        prepared.append(data(16, 1, count=5, transactional=True))
        prepared.append(data(26, 6, count=5, transactional=True))
        assert [place.offset for place in prepared.started] == [16]
        completed = prepared.append(
            data(40, -1, transactional=True, control=True), None, EndMarker(COMMIT, coordinator_epoch=15)
        )
        assert completed == CompletedTransaction(1, 16, 40, is_aborted=False)
        manager.update(prepared)
        known = manager.last_entry(1)
        assert known is not None
        assert (known.first_sequence, known.last_sequence, data_offsets(known)[1]) == (0, 10, 30)
        assert (known.current_txn_first_offset, known.coordinator_epoch) == (-1, 15)

    @pytest.mark.spec("log-format PSM-11")
    @pytest.mark.parametrize("origin", [CLIENT, REPLICATION])
    def test_data_outside_of_an_open_transaction_is_refused(
        self, manager: ProducerStateManager, origin: AppendOrigin
    ) -> None:
        append(manager, data(0, 0, transactional=True))
        with pytest.raises(InvalidTransactionStateError, match="not of the transaction begun at 0"):
            append(manager, data(1, 1), origin=origin)

    @pytest.mark.spec("log-format PSM-25")
    @pytest.mark.spec("log-format APP-28")
    @pytest.mark.spec("log-format APP-29")
    def test_markers_of_old_producer_and_coordinator_epochs_are_refused(
        self, manager: ProducerStateManager, tmp_path: Path
    ) -> None:
        append(manager, data(0, 0, epoch=5, transactional=True))
        with pytest.raises(AppendError, check=coded(TierErrorCode.INVALID_PRODUCER_EPOCH)):
            end(manager, COMMIT, 1, epoch=3)
        end(manager, COMMIT, 1, epoch=5, coordinator_epoch=1)
        assert end(manager, COMMIT, 2, epoch=5, coordinator_epoch=2) is None
        manager.take_snapshot(sync=False)
        for known in (manager, reloaded(manager, tmp_path)):
            with pytest.raises(
                AppendError,
                check=coded(TierErrorCode.TRANSACTION_COORDINATOR_FENCED),
                match="coordinator epoch 1 is below 2",
            ):
                end(known, COMMIT, 3, epoch=5, coordinator_epoch=1)

    def test_replica_accepts_a_marker_of_an_old_coordinator(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, 0, transactional=True), origin=REPLICATION)
        end(manager, COMMIT, 1, coordinator_epoch=2, origin=REPLICATION)
        end(manager, ABORT, 2, coordinator_epoch=1, origin=REPLICATION)
        known = manager.last_entry(1)
        assert known is not None
        assert known.coordinator_epoch == 1

    @pytest.mark.spec("log-format PSM-27")
    def test_an_emptied_control_batch_is_ignored(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, 0, transactional=True))
        prepared = manager.prepare_update(1, COORDINATOR)
        assert prepared.append(data(1, -1, count=0, transactional=True, control=True), None, None) is None
        manager.update(prepared)
        assert unstable(manager) == 0

    @pytest.mark.spec("log-format PSM-32")
    def test_empty_transactions_of_one_append_are_left_out(self, manager: ProducerStateManager) -> None:
        def mark(kind: EndMarker, offset: int) -> CompletedTransaction | None:
            return prepared.append(data(offset, -1, transactional=True, control=True), None, kind)

        commit, abort = EndMarker(COMMIT, 0), EndMarker(ABORT, 0)
        append(manager, data(16, 0, count=5, transactional=True))
        manager.on_high_watermark_updated(21)
        assert unstable(manager) == 16
        prepared = manager.prepare_update(1, CLIENT)
        completed = [mark(commit, 21), mark(commit, 22), mark(abort, 23)]
        prepared.append(data(24, 5, count=4, transactional=True))
        completed += [mark(abort, 28), mark(abort, 29)]
        prepared.append(data(30, 9, count=2, transactional=True))
        assert [place.offset for place in prepared.started] == [24, 30]
        manager.update(prepared)
        ended = [transaction for transaction in completed if transaction is not None]
        assert ended == [
            CompletedTransaction(1, 16, 21, is_aborted=False),
            CompletedTransaction(1, 24, 28, is_aborted=True),
        ]
        for transaction in ended:
            manager.complete(transaction)
        manager.on_high_watermark_updated(32)
        assert unstable(manager) == 30


def test_update_without_a_producer_id_is_refused(manager: ProducerStateManager) -> None:
    prepared = manager.prepare_update(-1, REPLICATION)
    prepared.append(data(0, -1, producer_id=-1))
    with pytest.raises(ValueError, match="producer id -1 is negative"):
        manager.update(prepared)
