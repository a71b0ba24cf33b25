"""Transactions in a pass: aborted data, and markers that outlived their data (log-format 9.4)."""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Self

from tierd.log import AbortedTransaction, BatchHeader, ControlRecordType

_ENDS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


@dataclass(frozen=True, slots=True)
class AbortedTransactions:
    """Aborted transactions of a log, found by producer and offset."""

    _by_producer: dict[int, list[AbortedTransaction]]  # ascending; those of one producer do not overlap

    @classmethod
    def of(cls, transactions: Iterable[AbortedTransaction]) -> Self:
        """Return the aborted transactions from the entries of transaction indexes, in any order."""
        by_producer: dict[int, list[AbortedTransaction]] = {}
        for transaction in sorted(transactions, key=lambda transaction: transaction.last_offset):
            by_producer.setdefault(transaction.producer_id, []).append(transaction)
        return cls(by_producer)

    def around(self, batch: BatchHeader) -> AbortedTransaction | None:
        """Return the aborted transaction of a transactional batch of data or an ABORT marker; None if there is none."""
        of_producer = self._by_producer.get(batch.producer_id, [])
        index = bisect_left(of_producer, batch.base_offset, key=lambda transaction: transaction.last_offset)
        if index < len(of_producer) and of_producer[index].first_offset <= batch.last_offset:
            return of_producer[index]
        return None

    def is_aborted(self, batch: BatchHeader) -> bool:
        """Return True if the records of a batch of data were aborted."""
        return batch.is_transactional and self.around(batch) is not None


@dataclass(slots=True)
class TransactionTrace:
    """Transactions that go on after consecutive batches, by producer, with data that is still there.

    A trace costs little while a part of the log is read for another reason. The traces of consecutive parts, put
    together, show the open transactions with which a group begins.

    Attributes:
        goes_on: by producer, True if its last transactional batch is data and no marker.
    """

    goes_on: dict[int, bool] = field(default_factory=dict)

    def note(self, batch: BatchHeader, control_type: ControlRecordType | None) -> None:
        """Take the next batch, with the type of its control record, if it has one."""
        if not batch.is_control:
            if batch.is_transactional:
                self.goes_on[batch.producer_id] = True
        elif control_type in _ENDS:
            self.goes_on[batch.producer_id] = False

    def extend(self, following: "TransactionTrace") -> None:
        """Take all batches of ``following`` as the next ones."""
        self.goes_on.update(following.goes_on)

    @property
    def open_producers(self) -> frozenset[int]:
        """Return the producers whose transaction goes on behind these batches."""
        return frozenset(producer_id for producer_id, goes_on in self.goes_on.items() if goes_on)


class TransactionPass:
    """Transactions of one pass over a group, batch after batch in log order (Kafka: CleanedTransactionMetadata)."""

    def __init__(self, aborted: AbortedTransactions, open_producers: Collection[int]) -> None:
        """Begin at the start of the group.

        Args:
            aborted: every transaction that was aborted in the log.
            open_producers: producers whose transactions go on at the start, with batches left in earlier groups. With
                one too many, its marker stays longer than needed; with one too few, remaining data loses its marker.
        """
        self._aborted = aborted
        self._seen = TransactionTrace(dict.fromkeys(open_producers, True))

    def on_data(self, batch: BatchHeader) -> bool:
        """Return True if the records of the next batch, one of data, were aborted."""
        self._seen.note(batch, None)
        return self._aborted.is_aborted(batch)

    def on_control(self, batch: BatchHeader, control_type: ControlRecordType | None) -> bool:
        """Return True if the next batch, one of control, has no effect any more.

        A marker has none once no batch of its transaction is left. An emptied control batch has none. A control batch
        that does not end a transaction keeps its effect.
        """
        was_seen = self._seen.goes_on.get(batch.producer_id, False)
        self._seen.note(batch, control_type)
        return control_type is None or (control_type in _ENDS and not was_seen)

    @property
    def open_producers(self) -> frozenset[int]:
        """Return the producers whose transaction goes on behind the batches so far."""
        return self._seen.open_producers

    def entry_of(self, marker: BatchHeader) -> AbortedTransaction | None:
        """Return the entry of the transaction index for an ABORT marker; None when nothing was aborted."""
        return self._aborted.around(marker)
