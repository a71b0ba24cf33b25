"""The transaction index of a segment compared with its batches, at the largest size of a segment."""

from dataclasses import replace

from tests.log.logs import records
from tierd.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from tierd.log.loading.artefact_checks import TransactionIndexCheck
from tierd.log.records.batch_header import parse_header
from tierd.log.records.record import ControlRecordType

ABORTED = 100_000


def test_a_segment_full_of_aborted_transactions_is_checked_in_one_pass() -> None:
    header = parse_header(records(), 0, name="it", position=0)
    assert header is not None
    marker = replace(header, producer_id=7)
    check = TransactionIndexCheck(TransactionIndex(tuple(AbortedTransaction(7, n, n, n) for n in range(ABORTED))))
    for offset in range(ABORTED):
        check.follow(replace(marker, last_offset=offset), ControlRecordType.ABORT, None)
    assert len(check.answered) == ABORTED
    assert not check.finish()
