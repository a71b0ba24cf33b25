"""rewrite_group: makes one segment of consecutive ones, as the log cleaner would write it (log-format 9)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tierd.log import TransactionIndex
from tierd.model import LogSegmentData
from tierd.pipeline.rewriting.batch_rewriter import BatchRewriter
from tierd.pipeline.rewriting.input_log import InputLog
from tierd.pipeline.rewriting.key_hashing import KeyHashing
from tierd.pipeline.rewriting.offset_set import OffsetSet
from tierd.pipeline.rewriting.output_log import OutputLog
from tierd.pipeline.rewriting.rewrite_statistics import RewriteStatistics
from tierd.pipeline.rewriting.rules import RewriteRules


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenSegment:
    """Output of a group.

    Attributes:
        max_timestamp_ms: of the batches; -1 without a batch that has a timestamp.
        txn_index_empty: True if no aborted transaction matters to readers of the output.
        erased: number of removed records by erased key.
    """

    data: LogSegmentData
    max_timestamp_ms: int
    txn_index_empty: bool
    statistics: RewriteStatistics
    erased: Mapping[bytes, int] = field(default_factory=dict, repr=False)


def rewrite_group(
    inputs: Sequence[InputLog],
    rules: RewriteRules,
    latest: OffsetSet | None,
    *,
    base_offset: int,
    output: Path,
    input_snapshot: bytes,
    input_epochs: bytes,
    open_producers: Collection[int],
    hashing: KeyHashing | None = None,
) -> RewrittenSegment:
    """Rewrite a group with a piece, a batch and its records in memory. Equal calls give equal bytes. Blocking.

    Args:
        inputs: the group's segments, ascending.
        rules: of the pass.
        latest: the offsets of the group that are the latest of their key in all of the round; None if the rules do not
            compact.
        base_offset: of the output: the start offset of the first input.
        output: path of the log, which may be empty in the end. After an error there is no file.
        input_snapshot: producer snapshot of the last input, which is the output's too.
        input_epochs: leader epochs of the last input, which are the output's too.
        open_producers: producers whose transaction is open where the group begins, and has batches in earlier inputs
            of the round, as ``TransactionTrace`` over these inputs finds. Too many producers are harmless.
        hashing: new, of the same base offset; None for an output without hashes of its keys.

    Raises:
        CorruptRecordError: a batch is damaged or misplaced; names the input and the position.
        OffsetOverflowError: the output would become larger than a segment can be.
        ValueError: the rules compact, and ``latest`` is None.
        OSError: the output cannot be written.
    """
    with OutputLog(output, base_offset=base_offset) as log:
        rewriter = BatchRewriter(rules, latest, log, open_producers=open_producers, hashing=hashing)
        for source in inputs:
            for found in source.runs():
                rewriter.take(found)
        checksums = log.finish()
    data = LogSegmentData(
        log=output,
        log_checksums=checksums,
        batch_count=log.batch_count,
        record_count=log.record_count,
        offset_index=log.offset_index,
        time_index=log.time_index,
        transaction_index=TransactionIndex(tuple(rewriter.aborted)).to_bytes() or None,
        producer_snapshot=input_snapshot,
        leader_epoch_index=input_epochs,
        chunk_timestamps=log.chunk_timestamps,
        key_hashes=None if hashing is None else hashing.finish(log.size_bytes),
    )
    return RewrittenSegment(
        data=data,
        max_timestamp_ms=log.max_timestamp_ms,
        txn_index_empty=not rewriter.aborted,
        statistics=rewriter.statistics,
        erased=rewriter.erased,
    )
