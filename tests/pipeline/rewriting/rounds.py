"""Round of the rewriting over a partition directory, in place of the cleaner of a broker: no Spark, no store."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from itertools import pairwise
from pathlib import Path

import numpy as np

from tierd.kernels import latest_per_key
from tierd.log import (
    AbortedTransaction,
    KeyHashes,
    ProducerStateEntry,
    RecordBatch,
    build_indexes,
    check_segment,
    read_producer_snapshot,
)
from tierd.log.indexes.transaction_index import read_transaction_index
from tierd.pipeline.rewriting import (
    InputLog,
    KeyHashing,
    OffsetSet,
    RewriteRules,
    RewrittenSegment,
    TransactionTrace,
    UnreadBatches,
    rewrite_group,
    scan_keys,
)

SECRET = bytes(range(16))
SMALL, LARGE = 1000, 4 << 20  # pieces whose ends cut nearly every batch, and hardly one
DAY_MS = 86_400_000

_NOTHING = np.zeros((3, 0), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class RolledSegment:
    """Segment that is no longer written."""

    directory: Path
    base_offset: int
    end_offset: int

    def path(self, suffix: str) -> Path:
        return self.directory / f"{self.base_offset:020d}.{suffix}"

    def pieces(self, piece_bytes: int) -> Iterator[bytes]:
        content = self.path("log").read_bytes()
        return (content[at : at + piece_bytes] for at in range(0, len(content), piece_bytes))

    def input(self, piece_bytes: int) -> InputLog:
        return InputLog(
            name=self.path("log").name,
            start_offset=self.base_offset,
            end_offset=self.end_offset,
            pieces=self.pieces(piece_bytes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Parameters of a round of a partition; every rolled segment is an input.

    Attributes:
        group_bases: base offset of every output; one output for everything when there is none.
        producers: known producers; None takes those of the newest snapshot.
    """

    now_ms: int
    delete_retention_ms: int = DAY_MS
    compacts: bool = True
    group_bases: Sequence[int] = ()
    producers: Mapping[int, ProducerStateEntry] | None = None
    expire_before_ms: int | None = None
    erased_keys: frozenset[bytes] = frozenset()
    removes_unread: bool = False

    def run(self, directory: Path, scratch: Path) -> list[RewrittenSegment]:
        """Rewrite the rolled segments of ``directory``, and put the outputs in their place."""
        rolled = rolled_segments(directory)
        rules, unread = self.rules(directory, round_end_offset=rolled[-1].end_offset + 1), UnreadBatches()
        latest, traces = scan(rolled, rules, unread)
        rules = changed(rules, unread_from=unread.first_offset)
        outputs: list[RewrittenSegment] = []
        scratch.mkdir(exist_ok=True)
        for group in grouped(rolled, self.group_bases or (rolled[0].base_offset,)):
            before = TransactionTrace()
            for segment, trace in zip(rolled, traces, strict=True):
                if segment.base_offset < group[0].base_offset:
                    before.extend(trace)
            outputs.append(rewrite(group, rules, latest, scratch, open_producers=before.open_producers))
            assert_describes_itself(outputs[-1], group)
        replace(directory, rolled, outputs)
        return outputs

    def rules(self, directory: Path, *, round_end_offset: int) -> RewriteRules:
        producers = newest_producers(directory) if self.producers is None else self.producers
        return RewriteRules(
            now_ms=self.now_ms,
            delete_retention_ms=self.delete_retention_ms,
            compacts=self.compacts,
            aborted=tuple(aborted_in(directory)),
            producers=producers,
            round_end_offset=round_end_offset,
            expire_before_ms=self.expire_before_ms,
            erased_keys=self.erased_keys,
            removes_unread=self.removes_unread,
        )


def rolled_segments(directory: Path) -> list[RolledSegment]:
    bases = sorted(int(path.stem) for path in directory.glob("[0-9]*.log"))
    return [RolledSegment(directory, base, following - 1) for base, following in pairwise(bases)]


def aborted_in(directory: Path) -> Iterator[AbortedTransaction]:
    for path in sorted(directory.glob("*.txnindex")):
        yield from read_transaction_index(path, base_offset=int(path.stem)).entries


def newest_producers(directory: Path) -> dict[int, ProducerStateEntry]:
    snapshots = sorted(directory.glob("*.snapshot"))
    return {entry.producer_id: entry for entry in read_producer_snapshot(snapshots[-1])} if snapshots else {}


def scan(
    segments: Iterable[RolledSegment], rules: RewriteRules, unread: UnreadBatches | None = None
) -> tuple[np.ndarray, list[TransactionTrace]]:
    """Scan keys and transactions as map stage and shuffle do: the latest offset of every key, and each trace."""
    columns, traces = [], []
    for segment in segments:
        one_by_one, _ = _scanned(segment, rules, SMALL, None if unread is None else UnreadBatches())
        together, trace = _scanned(segment, rules, LARGE, unread)
        assert np.array_equal(np.hstack(one_by_one or [_NOTHING]), np.hstack(together or [_NOTHING]))
        columns += together
        traces.append(trace)
    if not columns:
        return np.zeros(0, dtype=np.int64), traces
    return latest_per_key(*np.hstack(columns))[2], traces


def _scanned(
    segment: RolledSegment, rules: RewriteRules, piece_bytes: int, unread: UnreadBatches | None
) -> tuple[list[np.ndarray], TransactionTrace]:
    trace = TransactionTrace()
    name = segment.path("log").name
    found = scan_keys(segment.pieces(piece_bytes), rules, name=name, secret=SECRET, trace=trace, unread=unread)
    return [np.stack((one.hash_hi, one.hash_lo, one.offset)) for one in found], trace


def grouped(segments: Sequence[RolledSegment], bases: Sequence[int]) -> list[list[RolledSegment]]:
    bounds = [*bases, segments[-1].end_offset + 1]
    return [[s for s in segments if start <= s.base_offset < end] for start, end in pairwise(bounds)]


def rewrite(
    group: Sequence[RolledSegment],
    rules: RewriteRules,
    latest: np.ndarray,
    scratch: Path,
    *,
    open_producers: frozenset[int],
) -> RewrittenSegment:
    """Return the output, which is the same for batches rewritten one by one or many at a time."""
    base_offset, end_offset = group[0].base_offset, group[-1].end_offset + 1
    mine = latest[(latest >= base_offset) & (latest < end_offset)]
    one_by_one, together = (
        rewrite_group(
            [segment.input(piece_bytes) for segment in group],
            rules,
            OffsetSet.of(base_offset, end_offset, mine) if rules.compacts else None,
            base_offset=base_offset,
            output=scratch / f"{base_offset:020d}{suffix}",
            input_snapshot=b"",
            input_epochs=b"",
            open_producers=open_producers,
            hashing=KeyHashing(SECRET, base_offset=base_offset, max_share=1e9),
        )
        for piece_bytes, suffix in ((SMALL, ".log.small"), (LARGE, ".log"))
    )
    assert one_by_one.data.log.read_bytes() == together.data.log.read_bytes()
    assert changed(one_by_one, data=changed(one_by_one.data, log=together.data.log)) == together
    one_by_one.data.log.unlink()
    assert_hashes_say_what_a_scan_says(together, group, rules)
    return together


def assert_hashes_say_what_a_scan_says(
    output: RewrittenSegment, group: Sequence[RolledSegment], rules: RewriteRules
) -> None:
    """Compare the hashes of the output's keys with its scan, whatever transactions are known to be aborted.

    An output has no hashes exactly if the scan notes more than keys, or the output is empty.
    """
    start_offset, end_offset = group[0].base_offset, group[-1].end_offset
    pieces, unread, trace, batches = [output.data.log.read_bytes()], UnreadBatches(), TransactionTrace(), 0
    found = list(scan_keys(pieces, rules, name="output", secret=SECRET, trace=trace, unread=unread))
    whole = InputLog(name="output", start_offset=start_offset, end_offset=end_offset, pieces=pieces)
    for run in whole.runs():
        one_by_one = [run] if isinstance(run, RecordBatch) else [run.batch(index) for index in range(len(run))]
        batches += sum(batch.is_control or batch.is_transactional for batch in one_by_one)
    assert (output.data.key_hashes is None) == bool(batches or unread.count or not pieces[0])
    if output.data.key_hashes is not None:
        hashes = KeyHashes.from_bytes(output.data.key_hashes, start_offset, "hashes", end_offset=end_offset)
        assert hashes is not None
        scanned = np.hstack([_NOTHING, *(np.stack((one.hash_hi, one.hash_lo, one.offset)) for one in found)])
        assert np.array_equal(np.stack((hashes.hi, hashes.lo, hashes.offsets(slice(None)))), scanned)
        assert (trace.goes_on, unread.count) == ({}, 0)


def assert_describes_itself(output: RewrittenSegment, group: Sequence[RolledSegment]) -> None:
    """Check that the description of the output is that of the copy of such a segment."""
    data, base_offset = output.data, group[0].base_offset
    check = check_segment(data.log, base_offset=base_offset, next_base_offset=group[-1].end_offset + 1)
    assert (data.log_checksums, output.max_timestamp_ms) == (check.checksums, check.max_timestamp_ms)
    assert (data.batch_count, data.record_count) == (check.batch_count, check.record_count)
    assert (data.offset_index, data.time_index) == build_indexes(data.log, base_offset=base_offset)
    read = sum(segment.path("log").stat().st_size for segment in group)
    assert (output.statistics.bytes_read, output.statistics.bytes_written) == (read, check.checksums.size_bytes)
    assert output.statistics.records_read - output.statistics.records_kept == sum(
        getattr(output.statistics, f"records_{reason}")
        for reason in ("superseded", "keyless", "tombstone", "aborted", "marker", "expired", "erased")
    )


def replace(directory: Path, inputs: Iterable[RolledSegment], outputs: Iterable[RewrittenSegment]) -> None:
    """Replace the inputs by the cleaned segment, as a broker does; the snapshots stay."""
    for segment in inputs:
        for suffix in ("log", "index", "timeindex", "txnindex"):
            segment.path(suffix).unlink(missing_ok=True)
    for output in outputs:
        path, data = directory / output.data.log.name, output.data
        output.data.log.rename(path)
        path.with_suffix(".index").write_bytes(data.offset_index)
        path.with_suffix(".timeindex").write_bytes(data.time_index)
        if data.transaction_index:
            path.with_suffix(".txnindex").write_bytes(data.transaction_index)
