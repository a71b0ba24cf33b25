"""Check that a segment's index can be parsed, as a reader parses it. No I/O."""

from tierd.errors import CorruptIndexError
from tierd.log.files.checkpoints import parse_lineage
from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import TransactionIndex
from tierd.log.producers.producer_state import parse_producer_snapshot
from tierd.model import IndexType


def check_index(index_type: IndexType, content: bytes, *, base_offset: int, log_bytes: int, name: str) -> None:
    """Parse an index.

    Args:
        index_type: which one it is.
        content: all of it.
        base_offset: of its segment.
        log_bytes: size of the segment's log, behind which nothing may point.
        name: for messages.

    Raises:
        LogError: it cannot be understood.
    """
    match index_type:
        case IndexType.OFFSET:
            index = OffsetIndex.from_bytes(content, base_offset, name)
            if len(index) and index[len(index) - 1].position >= log_bytes:
                raise CorruptIndexError(f"{name}: points behind the end of the log")
        case IndexType.TIMESTAMP:
            TimeIndex.from_bytes(content, base_offset, name)
        case IndexType.TRANSACTION:
            TransactionIndex.from_bytes(content, base_offset, name)
        case IndexType.PRODUCER_SNAPSHOT:
            parse_producer_snapshot(content, name)
        case IndexType.LEADER_EPOCH:
            parse_lineage(content, name=name)
