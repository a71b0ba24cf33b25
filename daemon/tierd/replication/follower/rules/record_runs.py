"""Records of a leader, checked by their headers and cut into runs that one append each can take (push-replication 2.9).

The CRC of a batch is checked by the log, before the log writes anything. Records of more than one run are checked here
too, so that a damaged batch in the second run leaves the first run unwritten; so are records that are only compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tierd.errors import CorruptRecordError
from tierd.kernels import crc32c
from tierd.log import BatchHeader, parse_header
from tierd.replication.model.messages import RecordBytes
from tierd.replication.model.push_error_code import PushErrorCode

_MAX_SPAN: Final = (1 << 31) - 1


class BadRecordsError(ValueError):
    """Records that a follower refuses; ``code`` is the answer."""

    def __init__(self, problem: str, code: PushErrorCode) -> None:
        super().__init__(problem)
        self.code = code


@dataclass(frozen=True, slots=True)
class LeaderBatches:
    """Whole batches of a leader, in one buffer.

    Attributes:
        data: the bytes.
        headers: one for each batch; positions are relative to ``data``.
    """

    data: memoryview
    headers: tuple[BatchHeader, ...]

    @property
    def first_offset(self) -> int:
        """Return the base offset of the first batch."""
        return self.headers[0].base_offset

    @property
    def next_offset(self) -> int:
        """Return the offset behind the last batch."""
        return self.headers[-1].last_offset + 1

    @property
    def last_epoch(self) -> int:
        """Return the leader epoch of the last batch."""
        return self.headers[-1].partition_leader_epoch

    def split_at(self, count: int) -> "tuple[LeaderBatches, LeaderBatches]":
        """Return the first ``count`` batches, and the others."""
        return LeaderBatches(self.data, self.headers[:count]), LeaderBatches(self.data, self.headers[count:])

    def runs(self, *, max_bytes: int) -> tuple[memoryview, ...]:
        """Return the batches in runs of at most ``max_bytes``, or of one batch, none with too many offsets to index."""
        first, last = self.headers[0], self.headers[-1]
        if last.end_position - first.position <= max_bytes and last.last_offset - first.base_offset <= _MAX_SPAN:
            return (self.data[first.position : last.end_position],)
        runs: list[memoryview] = []
        begun: BatchHeader | None = None
        end = 0
        for header in self.headers:
            is_too_much = begun is not None and (
                header.end_position - begun.position > max_bytes or header.last_offset - begun.base_offset > _MAX_SPAN
            )
            if begun is None or is_too_much:
                if begun is not None:
                    runs.append(self.data[begun.position : end])
                begun = header
            end = header.end_position
        if begun is not None:
            runs.append(self.data[begun.position : end])
        if len(runs) > 1:
            self.check_sums()
        return tuple(runs)

    def check_sums(self) -> None:
        """Compare the checksum of each batch with its bytes.

        Raises:
            BadRecordsError: one is wrong.
        """
        for header in self.headers:
            if crc32c(self.data[header.position + header.crc_start : header.end_position]) != header.crc:
                problem = f"the batch at offset {header.base_offset} has a wrong checksum"
                raise BadRecordsError(problem, PushErrorCode.CORRUPT_MESSAGE)


def read_batches(records: RecordBytes | Sequence[RecordBytes], *, may_be_torn: bool = False) -> LeaderBatches:
    """Parse the headers of whole batches.

    Args:
        records: one piece or several.
        may_be_torn: leave out an incomplete batch at the end, as the answer to a fetch may have one.

    Raises:
        BadRecordsError: an impossible or incomplete batch, or one of an old format.
    """
    data = memoryview(records if isinstance(records, bytes | memoryview) else _joined(records))
    headers: list[BatchHeader] = []
    at = 0
    while at < len(data):
        header = _header_at(data, at)
        if header is None or header.end_position > len(data):
            if may_be_torn:
                break
            raise BadRecordsError(f"the batch at byte {at} is incomplete", PushErrorCode.CORRUPT_MESSAGE)
        if header.magic != 2:
            problem = f"the batch at offset {header.base_offset} is of format {header.magic}"
            raise BadRecordsError(problem, PushErrorCode.INVALID_RECORD)
        headers.append(header)
        at = header.end_position
    return LeaderBatches(data, tuple(headers))


def check_order(batches: LeaderBatches, *, from_offset: int, from_epoch: int, leader_epoch: int) -> None:
    """Check that offsets rise, and that leader epochs never fall and are not above the leader's.

    Args:
        batches: at least one.
        from_offset: smallest offset that is possible.
        from_epoch: smallest epoch that is possible.
        leader_epoch: of the leader.

    Raises:
        BadRecordsError: they are not in order.
    """
    offset, epoch = from_offset, max(from_epoch, 0)
    for header in batches.headers:
        if header.base_offset < offset or header.last_offset < header.base_offset:
            problem = f"a batch begins at offset {header.base_offset}, below {offset}"
            raise BadRecordsError(problem, PushErrorCode.INVALID_RECORD)
        if not epoch <= header.partition_leader_epoch <= leader_epoch:
            problem = (
                f"the batch at offset {header.base_offset} is of leader epoch {header.partition_leader_epoch}, "
                f"which is not from {epoch} to {leader_epoch}"
            )
            raise BadRecordsError(problem, PushErrorCode.INVALID_RECORD)
        offset, epoch = header.last_offset + 1, header.partition_leader_epoch


def _header_at(data: memoryview, at: int) -> BatchHeader | None:
    try:
        return parse_header(data, at, name="records of the leader", position=at)
    except CorruptRecordError as error:
        raise BadRecordsError(str(error), PushErrorCode.CORRUPT_MESSAGE) from error


def _joined(pieces: Sequence[RecordBytes]) -> RecordBytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
