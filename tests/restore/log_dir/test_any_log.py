"""Any log that brokers and jobs of tierd may leave comes back with its records, in each mode (changelog-restore 4)."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import Row, batch, legacy
from tests.log.logs import end_marker
from tests.restore.log_dir.lab import PARTITION, Lab
from tierd.log import (
    BatchBuilder,
    Compression,
    Damage,
    NewRecord,
    Record,
    RecordBatch,
    UnifiedLog,
    build_indexes,
    encode_empty_batch,
    encode_lineage,
    file_name,
    inspect_path,
    iter_batches,
    repair_partition,
)
from tierd.log.files.checkpoints import encode_topic_id
from tierd.log.producers.snapshot_rebuild import rebuild_producers
from tierd.log.records.batch_builder import Producer
from tierd.log.records.compression import compress
from tierd.model import EpochEntry, IsolationLevel, Lineage
from tierd.restore.live_cluster.batch_transform import AbortedRanges
from tierd.restore.plan.partition_plan import RestoreMode

_IDS = (7, (1 << 31) + 5, (1 << 62) + 1)  # a producer id has 63 bits
_KEYS = st.sampled_from([None, b"", b"a", b"b"])
_VALUES = st.sampled_from([None, b"", b"value", b"v" * 300])
_TIMES = st.sampled_from([-1, 0, 1_000, 5_000, 1_700_000_000_000])
_ROWS = st.lists(st.tuples(_TIMES, _KEYS, _VALUES), min_size=1, max_size=4)
_CODECS = st.sampled_from(Compression)


@dataclass
class Transaction:
    """Open transaction of a producer."""

    first_offset: int
    records: list[Record] = field(default_factory=list)


@dataclass
class AnyLog:
    """Log of several segments, and what readers see in it.

    Attributes:
        segments: bytes of each, by base offset.
        records: of all batches that are not control batches, ascending.
        aborted: offsets of records of aborted transactions.
        batches: headers of all batches, ascending.
    """

    segments: dict[int, bytes] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    open: dict[int, Transaction] = field(default_factory=dict)
    producer_epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    end_offset: int = 0
    batches: list[RecordBatch] = field(default_factory=list)

    def add(self, data: bytes) -> list[RecordBatch]:
        """Append batches to the last segment, and return them."""
        base = max(self.segments)
        self.segments[base] += data
        found = list(iter_batches(data, name="source"))
        self.end_offset = found[-1].last_offset + 1
        for each in found:
            if not each.is_control:
                self.records += each.records()
        self.batches += found
        return found

    def decided_end(self, start: int) -> int:
        """Return the highest end at which no transaction is open that has a batch at or above ``start``."""
        undecided: set[int] = set()
        end = start
        for each in self.batches:
            if each.last_offset < start:
                continue
            if each.is_control:
                undecided.discard(each.producer_id)
            elif each.is_transactional:
                undecided.add(each.producer_id)
            if not undecided:
                end = each.last_offset + 1
        return end

    def roll(self, skipped: int) -> None:
        """Begin a segment, some offsets behind the end."""
        self.end_offset += skipped
        self.segments[self.end_offset] = b""


@st.composite
def any_logs(draw: st.DrawFn) -> AnyLog:
    """Return a log of two to four segments whose batches are plain, thinned out, emptied, legacy or transactional."""
    log = AnyLog()
    for _ in range(draw(st.integers(2, 4))):
        log.roll(draw(st.sampled_from([0, 0, 3])))
        for _ in range(draw(st.integers(1, 5))):
            _add_one(draw, log)
    return log


def _add_one(draw: st.DrawFn, log: AnyLog) -> None:
    kinds = ["plain", "stamped", "thinned", "emptied", "emptied of a producer", "legacy", "wrapped", "data", "data"]
    kind = draw(st.sampled_from([*kinds, "end", "end of nothing"]))
    offset, codec, rows = log.end_offset, draw(_CODECS), draw(_ROWS)
    match kind:
        case "plain":
            log.add(batch(offset, rows, codec=codec, headers=draw(st.sampled_from([(), (("h", None),)]))))
        case "stamped":
            log.add(batch(offset, rows, codec=codec, log_append_ms=9_000))
        case "thinned":
            log.add(_thinned(draw, offset, rows, codec))
        case "emptied":
            log.add(encode_empty_batch(base_offset=offset, last_offset=offset + 4, leader_epoch=0))
        case "emptied of a producer":
            producer = Producer(draw(st.sampled_from(_IDS[:2])) + 100, 0, 5)
            log.add(encode_empty_batch(base_offset=offset, last_offset=offset, leader_epoch=0, producer=producer))
        case "legacy":
            magic = draw(st.sampled_from([0, 1]))
            log.add(b"".join(_legacy(magic, offset, rows)))
        case "wrapped":
            magic = draw(st.sampled_from([0, 1]))
            inner = compress(Compression.GZIP, b"".join(_legacy(magic, 0 if magic else offset, rows)), magic=magic)
            newest = max(timestamp_ms for timestamp_ms, _, _ in rows)
            last = offset + len(rows) - 1
            log.add(legacy(magic, last, None, inner, timestamp_ms=newest, attributes=Compression.GZIP))
        case "data":
            _add_data(log, draw(st.sampled_from(_IDS)), rows, codec)
        case "end" if log.open:
            _end(log, draw(st.sampled_from(sorted(log.open))), commit=draw(st.booleans()))
        case _:  # the marker of a transaction whose data compaction has removed
            _end(log, draw(st.sampled_from([9, (1 << 31) + 9])), commit=draw(st.booleans()))


def _thinned(draw: st.DrawFn, offset: int, rows: Sequence[Row], codec: Compression) -> bytes:
    builder, at = BatchBuilder(base_offset=offset, compression=codec), offset
    for timestamp_ms, key, value in rows:
        at += draw(st.integers(0, 3))
        builder.append(NewRecord(key, value, timestamp_ms), offset=at)
        at += 1
    return builder.build()


def _legacy(magic: int, offset: int, rows: Sequence[Row]) -> list[bytes]:
    return [
        legacy(magic, offset + index, key, value, timestamp_ms=timestamp_ms)
        for index, (timestamp_ms, key, value) in enumerate(rows)
    ]


def _add_data(log: AnyLog, producer_id: int, rows: Sequence[Row], codec: Compression) -> None:
    sequence, epoch = log.sequences.get(producer_id, 0), log.producer_epochs.get(producer_id, 0)
    transaction = log.open.setdefault(producer_id, Transaction(log.end_offset))
    found = log.add(
        batch(
            log.end_offset,
            rows,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
    )
    transaction.records += [record for each in found for record in each.records()]
    log.sequences[producer_id] = sequence + len(rows)


def _end(log: AnyLog, producer_id: int, *, commit: bool) -> None:
    """End a transaction; the marker raises the producer's epoch (KIP-890)."""
    epoch = log.producer_epochs.get(producer_id, 0) + 1
    log.producer_epochs[producer_id], log.sequences[producer_id] = epoch, 0
    ended = log.open.pop(producer_id, None)
    log.add(end_marker(producer_id, commit=commit, base_offset=log.end_offset, producer_epoch=epoch))
    if ended is not None and not commit:
        log.aborted |= {record.offset for record in ended.records}


def _write(log: AnyLog, directory: Path, *, is_indexed: bool) -> None:
    """Write the log as a broker leaves it; without the transaction index and the snapshots as a rebuild does."""
    directory.mkdir(parents=True)
    (directory / "partition.metadata").write_bytes(encode_topic_id(PARTITION.topic_id))
    (directory / "leader-epoch-checkpoint").write_bytes(encode_lineage(Lineage((EpochEntry(0, 0),))))
    logs: list[Path] = []
    bases = [*sorted(log.segments), log.end_offset]
    for base, following in pairwise(bases):
        path = directory / file_name(base, ".log")
        path.write_bytes(log.segments[base])
        logs.append(path)
        offsets, times = build_indexes(path, base_offset=base)
        path.with_suffix(".index").write_bytes(offsets)
        path.with_suffix(".timeindex").write_bytes(times)
        if is_indexed:
            _write_transactions(logs, directory, bases[0], following)
    (directory / file_name(log.end_offset, ".log")).touch()


def _write_transactions(logs: Sequence[Path], directory: Path, base: int, following: int) -> None:
    rebuilt = rebuild_producers(logs, (), start_offset=base, end_offset=following - 1)
    (directory / file_name(following, ".snapshot")).write_bytes(rebuilt.snapshot)
    earlier = b""
    if logs[1:]:
        earlier = rebuild_producers(logs[:-1], (), start_offset=base, end_offset=following - 1).transaction_index
    if own := rebuilt.transaction_index[len(earlier) :]:
        logs[-1].with_suffix(".txnindex").write_bytes(own)


def _content(records: Iterable[Record]) -> list[tuple[object, ...]]:
    return [(each.offset, each.timestamp_ms, each.key, each.value, each.headers) for each in records]


def _read(log: UnifiedLog, isolation: IsolationLevel) -> list[Record]:
    """Return the records that a consumer gets."""
    found: list[Record] = []
    offset = log.log_start_offset
    while (read := log.read(offset, max_bytes=1 << 20, isolation=isolation)).records:
        is_committed = isolation is IsolationLevel.READ_COMMITTED
        aborted = AbortedRanges(log.aborted_transactions(offset, log.log_end_offset) if is_committed else ())
        for each in iter_batches(read.records, name="restored"):
            is_aborted = each.is_transactional and aborted.contains(each.producer_id, each.base_offset)
            if not each.is_control and not is_aborted:
                found += [record for record in each.checked().records() if record.offset >= offset]
            offset = each.last_offset + 1
    return found


@given(any_logs(), st.sampled_from(RestoreMode), st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_restored_log_has_the_records_of_the_source(
    log: AnyLog, mode: RestoreMode, is_indexed: bool, data: st.DataObject
) -> None:
    start = data.draw(st.sampled_from([0, *(record.offset for record in log.records[:3])]), label="log start")
    with TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        source = lab.root / "lost" / str(PARTITION)
        _write(log, source, is_indexed=is_indexed)

        async def restored() -> None:
            segments = await lab.copy(source)
            first = max(start, segments[0].start_offset)
            await lab.restore(lab.plan(segments, mode=mode, log_start_offset=first, is_compacted=True))

        asyncio.run(restored())
        damage = [each for each in inspect_path(lab.log_dir, deep=True) if isinstance(each, Damage)]
        steps = repair_partition(lab.directory, now_ms=1, dry_run=True).plan.steps
        loaded = lab.load()
        loaded.maybe_increment_high_watermark(loaded.log_end_offset)
        every, committed = (_read(loaded, each) for each in IsolationLevel)
        stable, end = loaded.last_stable_offset, loaded.log_end_offset
        loaded.close()
    assert (damage, steps) == ([], ())
    restored_end = log.end_offset if mode is RestoreMode.REPLICA else log.decided_end(start)
    wanted = [each for each in log.records if start <= each.offset < restored_end]
    wanted_committed = [each for each in wanted if each.offset not in log.aborted and each.offset < stable]
    assert _content(every) == _content(wanted_committed if mode is RestoreMode.IMPORT else wanted)
    assert _content(committed) == _content(wanted_committed)
    assert end >= log.end_offset
    if mode is not RestoreMode.REPLICA:
        assert stable == end
