"""Staging of one segment: its log whole, cut or rewritten, under its name, with its indexes (4.2, steps 3, 5 and 6)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tierd.kernels import crc32c_of_file
from tierd.log import (
    BatchHeader,
    build_indexes,
    check_segment,
    encode_empty_batch,
    file_name,
    forget_producer,
    iter_headers,
    open_source,
    set_leader_epoch,
)
from tierd.restore.log_dir.kept_batches import KeptBatches
from tierd.restore.log_dir.staged_files import copy_range, link_durably, write_durably

IMPORTED_EPOCH = 0
_MOST_OFFSETS = (1 << 31) - 1  # of a segment, and of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSegment:
    """Segment in the staged directory.

    Attributes:
        log: path of its log.
        base_offset: in its name.
        end_offset: exclusive end of its batches.
        snapshot: path of a fetched producer snapshot at ``end_offset``, which may not exist; None after a cut.
        has_rebuilt_indexes: its offset and time index were built anew.
        lacks_transaction_index: its transaction index has to be built anew.
    """

    log: Path
    base_offset: int
    end_offset: int
    batch_count: int
    size_bytes: int
    crc32c: int
    snapshot: Path | None
    has_rebuilt_indexes: bool
    lacks_transaction_index: bool


def stage_segment(batches: KeptBatches, directory: Path, *, has_wrong_transactions: bool) -> StagedSegment:
    """Write kept batches as a segment of ``directory``; what was fetched and is right is linked. Blocking.

    Args:
        batches: of one log.
        directory: the staged partition directory.
        has_wrong_transactions: the fetched transaction index does not agree with the batches.

    Raises:
        LogError: the fetched file changed, or cannot be read.
        OSError: the disk is full or failing.
    """
    if batches.is_whole:
        return _linked(batches, directory, has_wrong_transactions=has_wrong_transactions)
    log = directory / file_name(batches.base_offset, ".log")
    copy_range(batches.log.path, log, batches.begin, batches.end)
    staged = _with_new_indexes(log, batches.base_offset)
    return replace(staged, end_offset=batches.end_offset)


def _linked(batches: KeptBatches, directory: Path, *, has_wrong_transactions: bool) -> StagedSegment:
    source, facts = batches.log.path, batches.log.checked
    log = directory / file_name(batches.base_offset, ".log")
    link_durably(source, log)
    has_indexes = source.with_suffix(".index").exists()  # they are kept both, or none
    if has_indexes:
        link_durably(source.with_suffix(".index"), log.with_suffix(".index"))
        link_durably(source.with_suffix(".timeindex"), log.with_suffix(".timeindex"))
    else:
        _build_indexes(log, batches.base_offset)
    transactions = source.with_suffix(".txnindex")
    if transactions.exists() and not has_wrong_transactions:
        link_durably(transactions, log.with_suffix(".txnindex"))
    return StagedSegment(
        log=log,
        base_offset=batches.base_offset,
        end_offset=batches.end_offset,
        batch_count=facts.batch_count,
        size_bytes=facts.size_bytes,
        crc32c=crc32c_of_file(facts.checksums),
        snapshot=source.with_suffix(".snapshot"),
        has_rebuilt_indexes=not has_indexes,
        lacks_transaction_index=facts.has_abort_markers and has_wrong_transactions,
    )


def _with_new_indexes(log: Path, base_offset: int) -> StagedSegment:
    facts = check_segment(log, base_offset=base_offset, next_base_offset=None)
    _build_indexes(log, base_offset)
    return StagedSegment(
        log=log,
        base_offset=base_offset,
        end_offset=facts.last_offset + 1,
        batch_count=facts.batch_count,
        size_bytes=facts.size_bytes,
        crc32c=crc32c_of_file(facts.checksums),
        snapshot=None,
        has_rebuilt_indexes=True,
        lacks_transaction_index=facts.has_abort_markers,
    )


def stage_imported(
    batches: KeptBatches, directory: Path, *, is_aborted: Callable[[BatchHeader], bool]
) -> StagedSegment | None:
    """Write kept batches as those of a new topic; None if none is left. Blocking.

    Leader epochs become 0. Producer ids, epochs and sequences become -1, because a new cluster issues the ids again and
    takes a batch with the same ones for a repetition. Control batches and data of aborted transactions are left out
    (DESIGN 13, trap 1).

    Args:
        batches: of one log.
        directory: the staged partition directory.
        is_aborted: tells data of aborted transactions.

    Raises:
        LogError: the fetched file changed, or cannot be read.
        OSError: the disk is full or failing.
    """
    log = directory / file_name(batches.first_offset, ".log")
    write_durably(log, _imported(batches, is_aborted))
    if not log.stat().st_size:
        log.unlink()
        return None
    return _with_new_indexes(log, batches.first_offset)


def stage_gap(directory: Path, start_offset: int, end_offset: int, *, leader_epoch: int) -> list[int]:
    """Write segments of empty batches for offsets ``[start_offset, end_offset)`` that have no records. Blocking.

    A compacted log has such batches too. Over them a reader at the end of the records reaches the log end, and so does
    a follower: where no batch covers an offset below the log end, both wait there until the next record comes. The last
    segment is the active one, so that the empty batch is read together with the next records: librdkafka takes an
    answer with empty batches alone for one that is too small, and gives up after some of them.

    Returns:
        The base offsets of the segments, ascending.

    Raises:
        OSError: the disk is full or failing.
    """
    bases = list(range(start_offset, end_offset, _MOST_OFFSETS))
    for base in bases:
        last = min(base + _MOST_OFFSETS, end_offset) - 1
        log = directory / file_name(base, ".log")
        write_durably(log, encode_empty_batch(base_offset=base, last_offset=last, leader_epoch=leader_epoch))
        _build_indexes(log, base)
    return bases


def _imported(batches: KeptBatches, is_aborted: Callable[[BatchHeader], bool]) -> Iterator[bytearray]:
    with open_source(batches.log.path) as source:
        for header in iter_headers(source, position=batches.begin, end=batches.end, may_be_torn=False):
            if header.is_control or is_aborted(header):
                continue
            data = bytearray(source.read(header.position, header.size_bytes))
            if len(data) < header.size_bytes:
                raise source.changed()
            if header.magic >= 2:
                set_leader_epoch(data, IMPORTED_EPOCH)
                forget_producer(data)
            yield data


def _build_indexes(log: Path, base_offset: int) -> None:
    offsets, times = build_indexes(log, base_offset=base_offset)
    write_durably(log.with_suffix(".index"), offsets)
    write_durably(log.with_suffix(".timeindex"), times)
