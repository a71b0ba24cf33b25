"""The isolation level of a reader (Kafka: IsolationLevel)."""

from enum import Enum


class IsolationLevel(Enum):
    """Records that a reader gets.

    Attributes:
        READ_UNCOMMITTED: all records below the high watermark.
        READ_COMMITTED: the records below the last stable offset, without those of aborted transactions.
    """

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
