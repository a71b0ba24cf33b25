"""PartitionAnswer: the answer to a Fetch for one partition."""

from dataclasses import dataclass, replace
from typing import Final

from kio.schema.errors import ErrorCode

from tierd.log import AbortedTransaction
from tierd.model import EpochEndOffset, IsolationLevel
from tierd.serve.kafka.served.served_cluster import ServedPartition
from tierd.serve.kafka.served.served_log import LogBounds, LogRead
from tierd.serve.kafka.wire.fetch_answer import Pieces

UNKNOWN_OFFSET: Final = -1
_PROMPT_ERRORS: Final = frozenset(
    (ErrorCode.offset_out_of_range, ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower)
)
"""Errors that a client acts on: its next request is another one."""


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """Answer for one partition. Offsets are -1 with an error.

    Attributes:
        aborted: sorted by first offset; None for uncommitted reads and errors.
        diverging: end of the last epoch that the log and the client may have in common; None without divergence.
        leader: names the leader to go to, with errors that send the client elsewhere (KIP-951).
    """

    error: ErrorCode = ErrorCode.none
    high_watermark: int = UNKNOWN_OFFSET
    last_stable_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    records: Pieces = ()
    aborted: tuple[AbortedTransaction, ...] | None = None
    diverging: EpochEndOffset | None = None
    leader: ServedPartition | None = None

    @classmethod
    def of_read(cls, read: LogRead, isolation: IsolationLevel) -> "PartitionAnswer":
        """Return the answer with the records of a read."""
        is_committed = isolation is IsolationLevel.READ_COMMITTED
        return cls._of(read.bounds, read.records, _sorted(read.aborted) if is_committed else None)

    @classmethod
    def empty(cls, bounds: LogBounds, isolation: IsolationLevel) -> "PartitionAnswer":
        """Return an answer without records."""
        return cls._of(bounds, (), () if isolation is IsolationLevel.READ_COMMITTED else None)

    @classmethod
    def _of(
        cls, bounds: LogBounds, records: Pieces, aborted: tuple[AbortedTransaction, ...] | None
    ) -> "PartitionAnswer":
        return cls(
            ErrorCode.none,
            bounds.high_watermark,
            bounds.last_stable_offset,
            bounds.log_start_offset,
            records,
            aborted,
        )

    def diverging_at(self, end: EpochEndOffset) -> "PartitionAnswer":
        """Return this answer without records, and with the end of the last epoch in common."""
        return replace(self, records=(), diverging=end)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all records."""
        return sum(len(each) if isinstance(each, bytes) else each.size_bytes for each in self.records)

    @property
    def bytes_in_memory(self) -> int:
        """Return the bytes of the records that are not in a file."""
        return sum(len(each) for each in self.records if isinstance(each, bytes))

    @property
    def is_worth_telling(self) -> bool:
        """Return True if an answer of a session has to have the partition, whatever the client knows of it."""
        return bool(self.records) or self.diverging is not None or self.error is not ErrorCode.none

    @property
    def is_prompt(self) -> bool:
        """Return False for an error after which clients repeat the same request at once."""
        return self.error is ErrorCode.none or self.error in _PROMPT_ERRORS


NO_ANSWER: Final = PartitionAnswer()


def _sorted(aborted: tuple[AbortedTransaction, ...]) -> tuple[AbortedTransaction, ...]:
    """Return each transaction once, by first offset. A compacted tier may name one twice (remote-tiering 14.4)."""
    if len(aborted) < 2:
        return aborted
    unique = {(each.first_offset, each.producer_id, each.last_offset): each for each in aborted}
    return tuple(unique[key] for key in sorted(unique))
