"""Records that a round keeps (Kafka: LogCleanerTest)."""

from pathlib import Path

import numpy as np
import pytest

from tests.log.batches import forged
from tests.log.logs import NOW_MS
from tests.pipeline.rewriting.compacted_log import LATER_MS, CompactedLog
from tests.pipeline.rewriting.rounds import DAY_MS, SECRET, Round, rewrite, rolled_segments, scan
from tierd.errors import CorruptRecordError, InvalidRecordError
from tierd.log import Compression, NewRecord, encode_batch
from tierd.pipeline.rewriting import InputLog, OffsetSet, RewriteRules, RewrittenSegment, rewrite_group, scan_keys

ALL = Round(now_ms=NOW_MS)


@pytest.fixture
def log(tmp_path: Path) -> CompactedLog:
    return CompactedLog(tmp_path)


def records(*keys: int, size: int = 5, timestamp_ms: int = NOW_MS) -> list[NewRecord]:
    return [NewRecord(b"%d" % key, b"v" * size, timestamp_ms) for key in keys]


def rules_of(end_offset: int, *, compacts: bool = True) -> RewriteRules:
    return RewriteRules(
        now_ms=NOW_MS,
        delete_retention_ms=DAY_MS,
        compacts=compacts,
        aborted=(),
        producers={},
        round_end_offset=end_offset,
    )


def rewritten(
    data: bytes, tmp_path: Path, *, end_offset: int, latest: list[int], piece_bytes: int = 64
) -> tuple[RewrittenSegment, bytes]:
    """Rewrite one input in small pieces; the last batch of the round is not part of it."""
    pieces = [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
    output = rewrite_group(
        [InputLog(name="a.log", start_offset=0, end_offset=end_offset - 1, pieces=pieces)],
        rules_of(end_offset + 1),
        OffsetSet.of(0, end_offset, np.array(latest, dtype=np.int64)),
        base_offset=0,
        output=tmp_path / "out.log",
        input_snapshot=b"snapshot",
        input_epochs=b"epochs",
        open_producers=(),
    )
    return output, output.data.log.read_bytes()


@pytest.mark.spec("log-format CLN-01")
def test_superseded_records_are_removed_and_all_records_are_read(log: CompactedLog, tmp_path: Path) -> None:
    for start in (0, 4, 8):
        for key in range(start, start + 4):
            log.write(key)
        log.roll()
    segments = rolled_segments(log.directory)
    rules = ALL.rules(log.directory, round_end_offset=1 << 40)
    latest, _ = scan(segments, rules)
    kept = latest[~np.isin(latest, [1, 3, 5, 7, 9])]  # key and offset are the same here
    output = rewrite(segments, rules, kept, tmp_path, open_producers=frozenset())
    assert output.statistics.bytes_read == sum(segment.path("log").stat().st_size for segment in segments)
    assert output.statistics.records_superseded == 5
    data = output.data.log.read_bytes()
    found = scan_keys([data], rules, name="out.log", secret=SECRET)
    assert [offset for columns in found for offset in columns.offset.tolist()] == [0, 2, 4, 6, 8, 10, 11]


@pytest.mark.spec("log-format CLN-09")
def test_pieces_without_surviving_records_do_not_end_the_cleaning(log: CompactedLog) -> None:
    for _ in range(100):
        log.write(1)  # twelve of them make a piece
    log.write(2)
    log.roll()
    log.clean()
    assert (log.keys(), log.offsets()) == ([1, 2], [99, 100])


@pytest.mark.spec("log-format CLN-16")
def test_a_batch_larger_than_many_pieces_is_cleaned(tmp_path: Path) -> None:
    data = encode_batch(records(1, 2, size=5000)) + encode_batch(records(1), base_offset=2)
    output, content = rewritten(data, tmp_path, end_offset=3, latest=[1, 2], piece_bytes=7)
    assert output.data.record_count == 2
    assert len(content) < len(data) - 5000


@pytest.mark.spec("log-format CLN-16")
def test_an_impossible_magic_is_a_corrupt_record_and_leaves_no_output(tmp_path: Path) -> None:
    first = encode_batch(records(1))
    damaged = bytearray(encode_batch(records(2), base_offset=1))
    damaged[16] = 9
    with pytest.raises(CorruptRecordError, match=rf"a.log: magic 9 does not exist at position {len(first)}"):
        rewritten(first + damaged, tmp_path, end_offset=2, latest=[0, 1])
    assert not (tmp_path / "out.log").exists()


@pytest.mark.spec("log-format CLN-16")
def test_a_batch_that_claims_more_bytes_than_are_left_is_a_corrupt_record(tmp_path: Path) -> None:
    first = encode_batch(records(1))
    torn = encode_batch(records(2), base_offset=1)[:-1]
    with pytest.raises(CorruptRecordError, match=rf"a.log: an incomplete batch, {len(torn)} bytes at .* {len(first)}"):
        rewritten(first + torn, tmp_path, end_offset=2, latest=[0, 1])
    assert not (tmp_path / "out.log").exists()


def test_a_wrong_checksum_is_a_corrupt_record(tmp_path: Path) -> None:
    damaged = bytearray(encode_batch(records(1)))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="wrong checksum"):
        rewritten(bytes(damaged), tmp_path, end_offset=1, latest=[0])


def test_batches_that_do_not_ascend_or_are_not_of_the_segment_are_corrupt(tmp_path: Path) -> None:
    data = encode_batch(records(1), base_offset=1)
    with pytest.raises(CorruptRecordError, match="offsets 1 to 1 where 2 to 2 are possible"):
        rewritten(data * 2, tmp_path, end_offset=3, latest=[0])
    with pytest.raises(CorruptRecordError, match="offsets 1 to 1 where 0 to 0 are possible"):
        rewritten(data, tmp_path, end_offset=1, latest=[0])


def test_records_that_cannot_be_decoded_are_invalid_and_named(tmp_path: Path) -> None:
    sound = encode_batch(records(1), compression=Compression.GZIP)
    with pytest.raises(InvalidRecordError, match=r"a\.log"):
        rewritten(forged(sound, count=2), tmp_path, end_offset=1, latest=[0])


@pytest.mark.spec("log-format CLN-17")
def test_deleted_keys_are_removed_and_their_tombstones_after_the_delete_retention(log: CompactedLog) -> None:
    for key in range(20):
        log.write(key)
    for key in range(0, 20, 2):
        log.write(key, value=None)
    log.roll()
    log.clean()
    assert log.keys() == list(range(1, 20, 2))
    assert len(log.offsets()) == 20
    stats = log.clean(LATER_MS)
    assert log.keys() == list(range(1, 20, 2))
    assert len(log.offsets()) == 10
    assert stats.records_tombstone == 10


@pytest.mark.spec("log-format CLN-18")
def test_statistics_count_records_read_and_kept(log: CompactedLog) -> None:
    for key in (0, 1, 0, 1, 0):
        log.write(key)
    log.roll()
    stats = log.clean()
    assert (stats.records_read, stats.records_kept, stats.records_keyless) == (5, 2, 0)
    assert (stats.records_superseded, stats.records_read - stats.records_kept) == (3, 3)
    assert (stats.batches_read, stats.batches_copied, stats.batches_removed) == (5, 2, 3)
    assert stats.bytes_read == 5 * stats.bytes_written // 2


@pytest.mark.spec("log-format CLN-24")
def test_records_without_a_key_are_removed_and_counted(log: CompactedLog) -> None:
    for key in range(10):
        log.send([NewRecord(None, b"nobody's", NOW_MS)])
        log.write(key)
    log.roll()
    stats = log.clean()
    assert log.keys() == list(range(10))
    assert stats.records_keyless == 10


@pytest.mark.spec("log-format CLN-26")
def test_empty_batch_keeps_the_last_offset_of_a_round_without_surviving_records(tmp_path: Path) -> None:
    data = encode_batch(records(1, 2)) + encode_batch(records(3, 4), base_offset=2)
    pieces = [data]
    output = rewrite_group(
        [InputLog(name="a.log", start_offset=0, end_offset=3, pieces=pieces)],
        rules_of(4),
        OffsetSet(0, 4),
        base_offset=0,
        output=tmp_path / "out.log",
        input_snapshot=b"",
        input_epochs=b"",
        open_producers=(),
    )
    content = output.data.log.read_bytes()
    assert (output.data.batch_count, output.data.record_count, len(content)) == (1, 0, 61)
    assert int.from_bytes(content[:8], "big") + int.from_bytes(content[23:27], "big") == 3


def test_group_without_kept_records_is_an_empty_log(tmp_path: Path) -> None:
    output, content = rewritten(encode_batch(records(1, 2)), tmp_path, end_offset=2, latest=[])
    assert content == b""
    assert (output.data.log_checksums.size_bytes, output.data.log_checksums.crc32c) == (0, ())
    assert (output.data.offset_index, output.data.time_index, output.data.transaction_index) == (b"", b"", None)
    assert (output.max_timestamp_ms, output.txn_index_empty) == (-1, True)
    assert (output.data.producer_snapshot, output.data.leader_epoch_index) == (b"snapshot", b"epochs")


@pytest.mark.spec("log-format CLN-29")
def test_scan_yields_all_keys_of_its_pieces_with_the_last_batch_at_a_far_offset(log: CompactedLog) -> None:
    rules = rules_of(1 << 40)
    data = encode_batch(records(*range(500))) + encode_batch(records(500), base_offset=7_206_178)
    found = list(scan_keys([data[:999], data[999:]], rules, name="a.log", secret=SECRET, step=100))
    assert [offset for columns in found for offset in columns.offset.tolist()] == [*range(500), 7_206_178]
    hashes = {pair for one in found for pair in zip(one.hash_hi.tolist(), one.hash_lo.tolist(), strict=True)}
    assert len(hashes) == 501
    (again,) = scan_keys([encode_batch(records(7))], rules, name="b.log", secret=SECRET)
    assert (int(again.hash_hi[0]), int(again.hash_lo[0])) in hashes


@pytest.mark.spec("log-format CLN-32")
def test_tombstone_supersedes_a_record_with_a_later_timestamp(log: CompactedLog) -> None:
    log.send([NewRecord(b"0", b"value", NOW_MS + DAY_MS + 10_000)])
    log.roll()
    log.clean()
    log.send([NewRecord(b"0", None, NOW_MS - 10 * DAY_MS)])  # 1
    log.roll()
    log.clean()
    assert log.offsets() == [1]
    log.write(1)
    log.roll()
    log.clean()
    assert log.offsets() == [1, 2]
    log.clean(LATER_MS)
    assert log.offsets() == [2]


def test_rewrite_of_the_same_inputs_gives_the_same_bytes(log: CompactedLog, tmp_path: Path) -> None:
    for key in (1, 2, 1, 3, 2):
        log.in_transaction(5, key, key + 1)
    log.abort(5)
    log.roll()
    segments = rolled_segments(log.directory)
    rules = ALL.rules(log.directory, round_end_offset=1 << 40)
    latest, _ = scan(segments, rules)
    outputs = [rewrite(segments, rules, latest, tmp_path, open_producers=frozenset()) for _ in range(2)]
    assert outputs[0] == outputs[1]


def test_compaction_without_latest_offsets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="latest"):
        rewrite_group(
            [], rules_of(1), None, base_offset=0, output=tmp_path / "out.log", input_snapshot=b"", input_epochs=b"",
            open_producers=(),
        )  # fmt: skip
    assert not (tmp_path / "out.log").exists()
