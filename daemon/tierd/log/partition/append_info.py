"""AppendRequest and AppendInfo: a set of records to append, its analysis, and the result (log-format 4.2).

The analysis reads the bytes, the origin and the settings, and does no I/O; it decides nothing about the log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tierd.errors import CorruptRecordError, TierErrorCode
from tierd.kernels import crc32c
from tierd.log.files.disk import Buffer
from tierd.log.log_errors import AppendError, RecordValidationError
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_header import CRC_START_V2, BatchHeader, headers_in
from tierd.log.records.compression import Compression
from tierd.log.records.log_config import MAX_INT, MAX_LONG
from tierd.log.records.record_batch import with_data
from tierd.log.records.record_rules import ValidationCounters

UNKNOWN_OFFSET = -1
NO_TIMESTAMP = -1


class AppendRequest(NamedTuple):
    """A set of records to append.

    Attributes:
        records: whole batches; an incomplete batch at the end is left out.
        leader_epoch: of the leader that appends; the batches of a follower have epochs of their own.
        headers: of all batches, if the caller has parsed ``records``; positions are relative to ``records``.
    """

    records: Buffer
    origin: AppendOrigin = AppendOrigin.CLIENT
    leader_epoch: int = -1
    headers: Sequence[BatchHeader] | None = None

    def __repr__(self) -> str:
        return f"AppendRequest({len(self.records)} bytes, {self.origin.value}, epoch {self.leader_epoch})"


class AppendInfo(NamedTuple):
    """Result of an append (Kafka: LogAppendInfo).

    Attributes:
        first_offset: of the set; -1 when nothing was appended, or for a legacy set that has its offsets already.
        last_offset: inclusive; -1 when nothing was appended.
        max_timestamp_ms: of the set; -1 without one.
        shallow_offset_of_max_timestamp: last offset of the earliest batch with that timestamp.
        log_append_time_ms: the timestamp that the log gave the records; -1 when they keep their own.
        log_start_offset: of the log after the append.
        size_bytes: bytes that were appended; 0 for a duplicate.
        is_duplicate: the batch was in the log before, at these offsets, and was not written again.
    """

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    shallow_offset_of_max_timestamp: int
    log_append_time_ms: int
    log_start_offset: int
    size_bytes: int
    is_duplicate: bool = False


@dataclass(slots=True)
class Analysis:
    """Facts read from the headers of a set of records; most change again when a leader numbers the records.

    Attributes:
        records: the whole batches.
        batches: their headers; positions are relative to ``records``.
        first_offset: base offset of the first batch; -1 for a legacy one, whose records may begin lower.
        last_offset: inclusive.
        shallow_offset_of_max_timestamp: last offset of the earliest batch with the largest timestamp.
        source_compression: codec of the last batch that has one.
        has_producers: whether any batch has a producer id.
    """

    records: memoryview
    batches: list[BatchHeader]
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    shallow_offset_of_max_timestamp: int
    source_compression: Compression
    has_producers: bool

    @property
    def first_or_last_offset_of_first_batch(self) -> int:
        """Return the least offset that is certain without opening the records."""
        return self.batches[0].last_offset if self.first_offset == UNKNOWN_OFFSET else self.first_offset


def analyze(request: AppendRequest, *, max_message_bytes: int, name: str, counters: ValidationCounters) -> Analysis:
    """Check every batch of a set, as far as that is possible without the log (log-format 4.2, step 2).

    Args:
        request: the set.
        max_message_bytes: of a batch, its header included; does not bind followers.
        name: of the log, for errors.
        counters: a batch with a wrong checksum is counted here.

    Raises:
        CorruptRecordError: an impossible header, or a wrong checksum.
        AppendError: a batch above ``max_message_bytes``.
        RecordValidationError: a client's batch that is numbered, one of another epoch than its raft leader, or the
            largest offset that there is; a numbered set that spans more offsets than a segment may.
        AppendError: numbered batches that do not ascend. Kafka looks at their last offsets only;
            but of batches that overlap, a recovery would take the second for damage.
    """
    view = memoryview(request.records)
    is_replica = request.origin is AppendOrigin.REPLICATION
    parsed: Iterable[BatchHeader] = headers_in(view, name=name) if request.headers is None else request.headers
    batches: list[BatchHeader] = []
    at, ascends, has_producers, codec = 0, True, False, Compression.NONE
    last_offset = shallow_offset = UNKNOWN_OFFSET
    max_timestamp_ms = NO_TIMESTAMP
    for batch in parsed:
        end = at + batch.size_bytes
        if not is_replica:
            _check_batch(batch, request, max_message_bytes)
        if not _is_valid(batch, view, at, end):
            counters.invalid_checksum += 1
            raise CorruptRecordError(name, at, "wrong checksum of the batch", remedy="send the records again")
        ascends = ascends and batch.base_offset > last_offset
        last_offset = batch.last_offset
        if batch.max_timestamp_ms > max_timestamp_ms:
            max_timestamp_ms, shallow_offset = batch.max_timestamp_ms, last_offset
        if batch.attributes & 7:
            codec = batch.compression
        if batch.producer_id >= 0:
            has_producers = True
        batches.append(batch)
        at = end
    if not ascends and not request.origin.assigns_offsets:
        offsets = ", ".join(str(batch.last_offset) for batch in batches[:50])
        raise AppendError(
            f"{name}: the last offsets of the batches do not ascend: {offsets}", code=TierErrorCode.OFFSETS_OUT_OF_ORDER
        )
    check_last_offset(last_offset, name=name)
    first_offset = batches[0].base_offset if batches and batches[0].magic >= 2 else UNKNOWN_OFFSET
    found = Analysis(
        view[:at], batches, first_offset, last_offset, max_timestamp_ms, shallow_offset, codec, has_producers
    )
    if batches and not request.origin.assigns_offsets:
        _check_span(found, name)
    return found


def _check_span(found: Analysis, name: str) -> None:
    """Refuse a set whose offsets span more than a segment can index: a set goes into one segment as a whole."""
    first = found.first_or_last_offset_of_first_batch
    if found.last_offset - first > MAX_INT:
        raise RecordValidationError(
            f"{name}: a set of records from offset {first} to {found.last_offset} fits no segment",
            remedy="append its batches one at a time",
        )


def analyze_numbered(records: Buffer, *, name: str) -> list[BatchHeader]:
    """Return the headers of a set that the validation returned: whole batches with right checksums."""
    return list(headers_in(memoryview(records), name=name))


def check_last_offset(offset: int, *, name: str) -> None:
    """Check that the log end can lie behind ``offset``.

    Raises:
        RecordValidationError: it is the largest that there is.
    """
    if offset >= MAX_LONG:
        raise RecordValidationError(f"{name}: offset {offset} leaves none for the record behind it")


def check_sizes(batches: list[BatchHeader], *, max_message_bytes: int) -> None:
    """Check the batches' sizes once more, after they were compressed anew (log-format 4.2, step 3).

    Raises:
        AppendError: one is above ``max_message_bytes``.
    """
    for batch in batches:
        if batch.size_bytes > max_message_bytes:
            raise _too_large(batch, max_message_bytes)


def _check_batch(batch: BatchHeader, request: AppendRequest, max_message_bytes: int) -> None:
    """Check the rules for a batch that does not come from replication.

    Raises:
        RecordValidationError: the batch breaks a rule of its origin.
        AppendError: the batch is larger than ``max_message_bytes``.
    """
    if request.origin is AppendOrigin.CLIENT and batch.magic >= 2 and batch.base_offset:
        raise RecordValidationError(
            f"{batch.name}: a client's batch begins at offset {batch.base_offset}; it has to begin at 0"
        )
    if request.origin is AppendOrigin.RAFT_LEADER and batch.partition_leader_epoch != request.leader_epoch:
        raise RecordValidationError(
            f"{batch.name}: a batch of epoch {batch.partition_leader_epoch} from the leader of {request.leader_epoch}"
        )
    if batch.size_bytes > max_message_bytes:
        raise _too_large(batch, max_message_bytes)


def _is_valid(batch: BatchHeader, view: memoryview, at: int, end: int) -> bool:
    if batch.magic >= 2:
        return crc32c(view[at + CRC_START_V2 : end]) == batch.crc
    return with_data(batch, view[at:end]).is_valid


def _too_large(batch: BatchHeader, limit: int) -> AppendError:
    return AppendError(
        f"{batch.name}: a batch of {batch.size_bytes} bytes is above max.message.bytes, {limit}",
        remedy="send smaller batches, or raise max.message.bytes of the topic",
        code=TierErrorCode.RECORD_TOO_LARGE,
    )
