"""Job of a run without Spark: one thread, one group after the other, the same steps."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from tierd.errors import TierError
from tierd.kernels import latest_per_key
from tierd.model import ByteRange, IndexType, RemoteLogSegmentMetadata
from tierd.pipeline.committing import LeaderClient
from tierd.pipeline.planning import PartitionWork, WorkKind, WorkOrder
from tierd.pipeline.rewriting import (
    InputLog,
    KeyColumns,
    OffsetSet,
    RewriteRules,
    RewrittenSegment,
    TransactionTrace,
    rewrite_group,
    scan_keys,
)
from tierd.remote import SegmentStorage

_PIECE_BYTES = 10_000
_T = TypeVar("_T")


class PlainJob:
    """Job that carries out an order in a thread of its own; the storage is used on its event loop."""

    def __init__(self, socket: Path, storage: SegmentStorage, scratch: Path) -> None:
        self._socket = socket
        self._storage = storage
        self._scratch = scratch
        self._loop = asyncio.get_running_loop()

    def run(self) -> None:
        """Connect, carry out the order, report its end."""
        self._scratch.mkdir(exist_ok=True)
        with LeaderClient.connect(self._socket) as leader:
            order = leader.order()
            for work in order.partitions:
                self._partition(leader, order, work)
                leader.progress("rewriting", done=work.index + 1, total=len(order.partitions))
            leader.done({})

    def _partition(self, leader: LeaderClient, order: WorkOrder, work: PartitionWork) -> None:
        if work.kind is WorkKind.AUDIT:
            self._audit(leader, work)
        else:
            refused = self._rewrite(leader, order, work, range(len(work.groups)))
            assert not refused, refused

    def _rewrite(self, leader: LeaderClient, order: WorkOrder, work: PartitionWork, groups: Sequence[int]) -> list[str]:
        """Have groups replaced; return the reasons against the others."""
        rules = RewriteRules(
            now_ms=order.now_ms,
            delete_retention_ms=work.delete_retention_ms,
            compacts=work.compacts,
            aborted=work.aborted,
            producers=work.live_producers(),
            round_end_offset=work.round_end_offset,
            expire_before_ms=work.expire_before_ms,
            erased_keys=work.erased_keys,
        )
        latest, traces = self._scan(order, work, rules)
        changed = [group for group in groups if not self._is_unchanged(work, group, rules, latest, traces)]
        for group in set(groups) - set(changed):
            leader.unchanged(work.index, group)
        begun = leader.begin(work.index, changed)
        refused = [each.reason for each in begun.refused]
        for output in begun.outputs:
            segment = self._rewritten(work, output.group, rules, latest, traces)
            row = replace(
                output.metadata,
                size_bytes=segment.data.log_checksums.size_bytes,
                max_timestamp_ms=segment.max_timestamp_ms,
                txn_index_empty=segment.txn_index_empty,
            )
            manifest = self._wait(self._storage.stage_log_segment_data(row, segment.data, key_seed=output.key_seed))
            erased = work.erased_places(segment.erased)
            verdict = leader.written(output, manifest, asdict(segment.statistics), erased=erased)
            if not verdict.committed:
                refused.append(verdict.reason)
        return refused

    def _audit(self, leader: LeaderClient, work: PartitionWork) -> None:
        """Check that every batch is whole."""
        for group in range(len(work.groups)):
            (metadata,) = work.group_inputs(group)
            try:
                assert self._input(metadata).count_batches()
            except TierError as error:
                leader.failed(work.index, group, str(error))
            else:
                leader.unchanged(work.index, group)

    def _scan(
        self, order: WorkOrder, work: PartitionWork, rules: RewriteRules
    ) -> tuple[np.ndarray, list[TransactionTrace]]:
        columns: list[KeyColumns] = []
        traces: list[TransactionTrace] = []
        for metadata in work.inputs:
            traces.append(TransactionTrace())
            name = str(metadata.segment)
            columns += scan_keys(self._pieces(metadata), rules, name=name, secret=order.secret, trace=traces[-1])
        if not columns:
            return np.zeros(0, dtype=np.int64), traces
        hi, lo, offset = (np.concatenate([getattr(c, f) for c in columns]) for f in ("hash_hi", "hash_lo", "offset"))
        return latest_per_key(hi, lo, offset)[2], traces

    def _is_unchanged(
        self,
        work: PartitionWork,
        group: int,
        rules: RewriteRules,
        latest: np.ndarray,
        traces: list[TransactionTrace],
    ) -> bool:
        is_alone = len(work.group_inputs(group)) == 1
        return is_alone and self._rewritten(work, group, rules, latest, traces).statistics.is_unchanged

    def _rewritten(
        self,
        work: PartitionWork,
        group: int,
        rules: RewriteRules,
        latest: np.ndarray,
        traces: list[TransactionTrace],
    ) -> RewrittenSegment:
        inputs = work.group_inputs(group)
        first, last = inputs[0].start_offset, inputs[-1].end_offset
        before = TransactionTrace()
        for trace in traces[: work.groups[group].first]:
            before.extend(trace)
        mine = latest[(latest >= first) & (latest <= last)]
        return rewrite_group(
            [self._input(metadata) for metadata in inputs],
            rules,
            OffsetSet.of(first, last + 1, mine) if work.compacts else None,
            base_offset=first,
            output=self._scratch / f"{inputs[0].segment.id}.log",
            input_snapshot=self._wait(self._storage.fetch_index(inputs[-1], IndexType.PRODUCER_SNAPSHOT)),
            input_epochs=self._wait(self._storage.fetch_index(inputs[-1], IndexType.LEADER_EPOCH)),
            open_producers=before.open_producers,
        )

    def _input(self, metadata: RemoteLogSegmentMetadata) -> InputLog:
        return InputLog(
            name=str(metadata.segment),
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            pieces=self._pieces(metadata),
        )

    def _pieces(self, metadata: RemoteLogSegmentMetadata) -> Iterator[bytes]:
        for at in range(0, metadata.size_bytes, _PIECE_BYTES):
            yield self._wait(self._storage.fetch_log_segment(metadata, ByteRange.of_size(at, _PIECE_BYTES)))

    def _wait(self, call: Coroutine[object, object, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(60)
