"""UndecidedTransactions: transactions that hold the last stable offset below the high watermark (log-format 4.5)."""

from bisect import bisect_left
from typing import NamedTuple

from tierd.log.producers.transactions import CompletedTransaction
from tierd.log.records.log_offset import LogOffset


class _Transaction(NamedTuple):
    """One transaction; no two begin at one offset."""

    first_offset: int
    last_offset: int  # of its marker; -1 while it is open
    producer_id: int
    place: LogOffset


class UndecidedTransactions:
    """The transactions of a log that are *ongoing*, or whose marker is *unreplicated*.

    ::

        begin ──► ongoing ──complete──► unreplicated ──high watermark above the marker──► forgotten
    """

    def __init__(self) -> None:
        self._ongoing: list[_Transaction] = []  # invariant of both: ascending by first offset
        self._unreplicated: list[_Transaction] = []

    @property
    def first_unstable(self) -> LogOffset | None:
        """Return the start of the earliest undecided transaction; None without one."""
        if not self._unreplicated:
            return self._ongoing[0].place if self._ongoing else None
        if not self._ongoing:
            return self._unreplicated[0].place
        return min(self._ongoing[0], self._unreplicated[0], key=_first_offset).place

    @property
    def has_unreplicated(self) -> bool:
        """Return True if a transaction has a marker that is not replicated yet and so may be truncated away."""
        return bool(self._unreplicated)

    def begin(self, producer_id: int, place: LogOffset) -> None:
        """Take note of a transaction that begins at ``place``."""
        _insert(self._ongoing, _Transaction(place.offset, -1, producer_id, place))

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset once ``completed`` is decided: the begin of the earliest other transaction.

        Like Kafka, it leaves out every ongoing transaction of the same producer, not ``completed`` alone.
        """
        others = (t.first_offset for t in self._ongoing if t.producer_id != completed.producer_id)
        return next(others, completed.last_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """Take an ongoing transaction for decided.

        Raises:
            ValueError: it is not ongoing.
        """
        index = _index(self._ongoing, completed.first_offset)
        if index == len(self._ongoing) or self._ongoing[index].first_offset != completed.first_offset:
            raise ValueError(f"{completed} was not begun")
        transaction = self._ongoing.pop(index)
        _insert(self._unreplicated, transaction._replace(last_offset=completed.last_offset))

    def forget_below(self, offset: int) -> None:
        """Forget the decided ones whose markers lie below ``offset``."""
        if self._unreplicated:
            self._unreplicated = [t for t in self._unreplicated if t.last_offset >= offset]

    def clear(self) -> None:
        """Forget all."""
        self._ongoing.clear()
        self._unreplicated.clear()


def _first_offset(transaction: _Transaction) -> int:
    return transaction.first_offset


def _index(transactions: list[_Transaction], first_offset: int) -> int:
    return bisect_left(transactions, first_offset, key=_first_offset)


def _insert(transactions: list[_Transaction], transaction: _Transaction) -> None:
    """Add a transaction in its place; it replaces a transaction with the same first offset."""
    index = _index(transactions, transaction.first_offset)
    is_there = index < len(transactions) and transactions[index].first_offset == transaction.first_offset
    transactions[index : index + is_there] = [transaction]
