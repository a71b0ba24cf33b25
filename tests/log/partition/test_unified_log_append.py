from pathlib import Path

import pytest

from tests.coded import coded
from tests.log.batches import TOPIC_ID, TOPIC_ID_TEXT, legacy, wrapper
from tests.log.logs import (
    NOW_MS,
    end_marker,
    follow,
    headers_of,
    lead,
    lead_marker,
    open_log,
    read_all,
    records,
    rows,
)
from tierd.errors import CorruptRecordError, LogDirOfflineError, TierErrorCode
from tierd.log.files.offline import OfflineFlag
from tierd.log.log_errors import AppendError, LogClosedError, RecordValidationError
from tierd.log.partition.append_info import AppendInfo, AppendRequest
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import encode_batch
from tierd.log.records.compression import Compression
from tierd.log.records.log_config import MAX_LONG, LogConfig, TimestampType
from tierd.log.records.new_record import NewRecord, Producer
from tierd.log.records.record_rules import ValidationCounters
from tierd.log.segments.offset_lookup import LATEST
from tierd.model import IsolationLevel


@pytest.mark.spec("log-format APP-01")
def test_leader_assigns_offsets_to_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert lead(log, records(3)).first_offset == 0
    assert lead(log, records(3)).first_offset == 3
    log.roll(now_ms=NOW_MS)
    info = lead(log, records(3))
    assert (info.first_offset, info.last_offset, info.log_start_offset) == (6, 8, 0)


def test_leader_refuses_to_assign_the_largest_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    follow(log, records(base_offset=MAX_LONG - 1))
    with pytest.raises(RecordValidationError, match="leaves none"):
        lead(log, records())
    assert log.log_end_offset == MAX_LONG


@pytest.mark.spec("log-format APP-02")
def test_set_of_a_raft_leader_must_begin_at_the_log_end_in_its_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    def append(base_offset: int, *, epoch: int = 0) -> AppendInfo:
        return lead(log, records(3, base_offset=base_offset, epoch=epoch), origin=AppendOrigin.RAFT_LEADER)

    append(0)
    assert log.log_end_offset == 3
    with pytest.raises(AppendError, check=coded(TierErrorCode.UNEXPECTED_APPEND_OFFSET)):
        append(1)
    append(3)
    assert log.log_end_offset == 6
    with pytest.raises(RecordValidationError, match="of epoch 1 from the leader of 0"):
        append(6, epoch=1)


@pytest.mark.spec("log-format APP-03")
def test_gap_in_the_sequence_of_a_client_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(producer=Producer(1, 0, 0)))
    with pytest.raises(AppendError, check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE)):
        lead(log, records(producer=Producer(1, 0, 2)))


@pytest.mark.spec("log-format APP-04")
def test_repeated_batch_of_a_client_is_answered_and_not_written_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    def send(sequence: int, count: int = 1) -> AppendInfo:
        return lead(log, records(count, producer=Producer(1, 0, sequence)))

    singles = [send(sequence) for sequence in range(6)]
    triple = send(6, 3)
    end = log.log_end_offset
    size_bytes = log.size_bytes

    again = send(6, 3)
    assert (again.first_offset, again.last_offset, again.is_duplicate) == (
        triple.first_offset,
        triple.last_offset,
        True,
    )
    assert not triple.is_duplicate
    for sequence, count in ((7, 2), (6, 2)):  # a part of the last batch
        with pytest.raises(AppendError, check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE)):
            send(sequence, count)
    assert send(2).first_offset == singles[2].first_offset  # the oldest of the five remembered batches
    with pytest.raises(AppendError, check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE)):
        send(1)
    assert (log.log_end_offset, log.size_bytes) == (end, size_bytes)

    newest = send(9)
    assert send(9).first_offset == newest.first_offset


@pytest.mark.spec("log-format APP-05")
def test_each_batch_of_a_set_of_a_follower_keeps_its_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    producers = [Producer(pid, pid, pid * 10) for pid in range(1, 5)]
    follow(log, b"".join(records(base_offset=at, producer=each) for at, each in enumerate(producers)))
    found = headers_of(log)
    assert [Producer(h.producer_id, h.producer_epoch, h.base_sequence) for h in found] == producers
    assert [h.base_offset for h in found] == [0, 1, 2, 3]


@pytest.mark.spec("log-format APP-06")
def test_follower_accepts_repeated_sequences(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    follow(log, b"".join(records(base_offset=at, producer=Producer(1, 0, at)) for at in range(2)))
    follow(log, b"".join(records(base_offset=2 + at, producer=Producer(1, 0, at)) for at in range(2)))
    assert log.log_end_offset == 4


@pytest.mark.spec("log-format APP-07")
def test_follower_accepts_a_repeated_batch_within_one_set(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    sent = [(1, 0), (2, 0), (1, 1), (2, 0), (2, 1)]  # producer 2 repeats its first batch
    follow(log, b"".join(records(base_offset=at, producer=Producer(pid, 0, seq)) for at, (pid, seq) in enumerate(sent)))
    assert log.log_end_offset == 5


@pytest.mark.spec("log-format APP-08")
def test_a_producer_with_an_old_epoch_is_fenced(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(producer=Producer(1, 1, 0)))
    with pytest.raises(AppendError, check=coded(TierErrorCode.INVALID_PRODUCER_EPOCH)):
        lead(log, records(producer=Producer(1, 0, 1)))
    assert log.log_end_offset == 1


@pytest.mark.spec("log-format APP-09")
def test_unknown_producer_may_begin_with_any_sequence(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(producer=Producer(1, 1, 3), transactional=True))
    assert log.first_unstable_offset == 0


@pytest.mark.spec("log-format APP-10")
def test_batches_of_a_follower_with_offsets_out_of_order_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(AppendError, check=coded(TierErrorCode.OFFSETS_OUT_OF_ORDER)):
        follow(log, b"".join(records(base_offset=offset) for offset in (0, 1, 3, 2, 4)))
    assert log.log_end_offset == 0


@pytest.mark.spec("log-format APP-11")
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_set_of_a_follower_that_begins_below_the_log_end_is_refused(
    tmp_path: Path, magic: int, codec: Compression
) -> None:
    log = open_log(tmp_path)
    follow(log, records(2))
    if magic == 2:
        data = records(1, codec=codec)
    else:
        data = legacy(magic, 0, b"k", b"v")
        data = wrapper(magic, 0, data, codec=codec) if codec else data
    with pytest.raises(
        AppendError, check=coded(TierErrorCode.UNEXPECTED_APPEND_OFFSET), match="records 0 to 0 begin below"
    ):
        follow(log, data)


def test_refusal_of_a_compressed_legacy_entry_names_its_first_inner_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    follow(log, records(9))
    inner = b"".join(legacy(1, offset, b"k", b"v") for offset in range(3))
    with pytest.raises(
        AppendError, check=coded(TierErrorCode.UNEXPECTED_APPEND_OFFSET), match="records 4 to 6 begin below"
    ):
        follow(log, wrapper(1, 6, inner))


@pytest.mark.spec("log-format APP-12")
def test_refusal_of_a_set_names_its_first_and_last_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    with pytest.raises(
        AppendError, check=coded(TierErrorCode.UNEXPECTED_APPEND_OFFSET), match="records 4 to 6 begin below"
    ):
        follow(log, records(3, base_offset=4))


@pytest.mark.spec("log-format APP-13")
def test_follower_accepts_gaps_and_reads_skip_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=1000))
    offsets = [*range(50), *range(50, 200, 7)]
    for offset in offsets:
        follow(log, records(base_offset=offset))
    assert log.segment_count > 1
    for wanted in range(offsets[-1] + 1):
        found = read_all(log, start=wanted)[0].offset
        assert found == next(offset for offset in offsets if offset >= wanted)


@pytest.mark.spec("log-format APP-14")
def test_set_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    data = records(value=b"v" * 200)
    log = open_log(tmp_path, config=LogConfig(segment_bytes=len(data) - 1))
    with pytest.raises(AppendError, check=coded(TierErrorCode.RECORD_BATCH_TOO_LARGE)):
        lead(log, data)
    assert log.log_end_offset == 0


@pytest.mark.spec("log-format APP-15")
def test_batch_above_max_message_bytes_is_refused_except_on_a_follower(tmp_path: Path) -> None:
    small, large = records(value=b"v" * 10), records(value=b"v" * 11)
    log = open_log(tmp_path, config=LogConfig(max_message_bytes=len(small)))
    lead(log, small)
    with pytest.raises(AppendError, check=coded(TierErrorCode.RECORD_TOO_LARGE)):
        lead(log, large)
    assert follow(log, records(value=b"v" * 11, base_offset=1)).last_offset == 1


def test_batch_that_grows_above_the_limit_by_recompression_is_refused(tmp_path: Path) -> None:
    packed = records(100, value=b"v" * 100, codec=Compression.GZIP)
    log = open_log(tmp_path, config=LogConfig(max_message_bytes=len(packed), compression_type="uncompressed"))
    with pytest.raises(AppendError, check=coded(TierErrorCode.RECORD_TOO_LARGE)):
        lead(log, packed)
    assert log.log_end_offset == 0


@pytest.mark.spec("log-format APP-16")
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_record_without_a_key_is_refused_on_a_compacted_topic(tmp_path: Path, codec: Compression) -> None:
    log = open_log(tmp_path, config=LogConfig(cleanup_policy=frozenset({"compact"})))
    keyed, keyless = NewRecord(b"k", b"v", NOW_MS), NewRecord(None, b"v", NOW_MS)
    for batch, index in (([keyed, keyless], 1), ([keyless, keyed], 0)):
        with pytest.raises(RecordValidationError) as raised:
            lead(log, encode_batch(batch, compression=codec))
        assert [at for at, _ in raised.value.record_errors] == [index]
    lead(log, encode_batch([keyed, keyed], compression=codec))
    assert log.log_end_offset == 2


@pytest.mark.spec("log-format APP-17")
def test_a_record_without_value_and_timestamp_is_read_back_as_it_was(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(value=None, timestamp_ms=-1))
    (record,) = read_all(log)
    assert (record.value, record.timestamp_ms) == (None, -1)


@pytest.mark.spec("log-format APP-18")
def test_leader_writes_its_epoch_into_each_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(50):
        lead(log, records(), epoch=72)
    assert {header.partition_leader_epoch for header in headers_of(log)} == {72}
    assert log.leader_epochs.entries == ((72, 0),)


@pytest.mark.spec("log-format APP-19")
def test_follower_takes_leader_epochs_from_the_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    follow(log, b"".join(records(base_offset=offset, epoch=42) for offset in range(5)))
    assert log.leader_epochs.latest == (42, 0)
    follow(log, records(base_offset=5, epoch=43))
    assert log.leader_epochs.entries == ((42, 0), (43, 5))
    with pytest.raises(RecordValidationError, match="no leader epoch"):
        follow(log, records(base_offset=6, epoch=-1))


@pytest.mark.spec("log-format LEG-11")
def test_legacy_batch_clears_the_leader_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    follow(log, records(epoch=3))
    follow(log, legacy(1, 1, b"k", b"v"))
    assert not log.leader_epochs
    follow(log, records(base_offset=2, epoch=3))
    assert log.leader_epochs.entries == ((3, 2),)


@pytest.mark.spec("log-format APP-20")
def test_high_watermark_is_clipped_to_the_bounds_of_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records())
    assert log.high_watermark == 0
    lead(log, records())
    assert log.maybe_increment_high_watermark(1)
    assert not log.maybe_increment_high_watermark(1)
    with pytest.raises(ValueError, match="above the log end"):
        log.maybe_increment_high_watermark(3)
    lead(log, records())
    assert log.update_high_watermark(5) == 3
    follow(log, b"".join(records(base_offset=offset) for offset in range(3, 6)))
    assert log.high_watermark == 3
    assert log.update_high_watermark(6) == 6
    log.truncate_to(3, now_ms=NOW_MS)
    assert log.high_watermark == 3
    log.truncate_fully_and_start_at(4, now_ms=NOW_MS)
    assert (log.log_end_offset, log.log_start_offset, log.high_watermark) == (4, 4, 4)


@pytest.mark.spec("log-format APP-21")
def test_update_of_the_high_watermark_returns_the_value_that_holds_from_then_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(100))
    for asked, held in ((99, 99), (99, 99), (100, 100), (101, 100)):
        assert log.update_high_watermark(asked) == held
        assert log.high_watermark == held


@pytest.mark.spec("log-format APP-22")
def test_read_at_or_below_the_high_watermark_returns_only_records_below(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for offset in range(6):
        lead(log, rows(0, [(NOW_MS, None, str(offset).encode())]))
    log.update_high_watermark(3)
    log.roll(now_ms=NOW_MS)
    lead(log, records(3))
    assert [record.value for record in read_all(log, isolation=IsolationLevel.READ_UNCOMMITTED)] == [b"0", b"1", b"2"]
    below = sum(header.size_bytes for header in headers_of(log)[:3])
    assert len(log.read(0, max_bytes=1 << 20).records) == below
    assert log.read(4, max_bytes=1 << 20).records == b""


@pytest.mark.spec("log-format APP-31")
def test_appends_and_reads_on_an_offline_log_dir_are_refused(tmp_path: Path) -> None:
    offline = OfflineFlag(tmp_path)
    log = open_log(tmp_path, offline=offline)
    lead(log, records())
    offline.mark(OSError("the disk is gone"))
    with pytest.raises(LogDirOfflineError):
        lead(log, records())
    with pytest.raises(LogDirOfflineError):
        follow(log, records(base_offset=1))
    with pytest.raises(LogDirOfflineError):
        log.read(0, max_bytes=100, isolation=None)


def test_damaged_records_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = bytearray(records())
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        lead(log, bytes(data))


def test_batch_of_a_client_that_does_not_begin_at_offset_0_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(RecordValidationError, match="has to begin at 0"):
        lead(log, records(base_offset=1))


def test_an_incomplete_batch_at_the_end_is_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    whole = records()
    follow(log, whole + records(base_offset=1)[:-1])
    assert (log.log_end_offset, log.size_bytes) == (1, len(whole))
    nothing = follow(log, records(base_offset=1)[:-1])
    assert (nothing.first_offset, nothing.last_offset, nothing.size_bytes) == (-1, -1, 0)


def test_log_append_time_is_reported(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert lead(log, records(timestamp_ms=5), now_ms=1234).log_append_time_ms == 1234
    assert read_all(log)[0].timestamp_ms == 1234
    log.update_config(LogConfig())
    assert lead(log, records(timestamp_ms=5)).log_append_time_ms == -1


class TestGroups:
    """Several sets in one call."""

    def test_sets_of_a_group_get_consecutive_offsets_and_are_readable(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        requests = [AppendRequest(records(count), leader_epoch=0) for count in (1, 2, 3)]
        infos = log.append_many(requests, now_ms=NOW_MS)
        assert [info.first_offset for info in infos if isinstance(info, AppendInfo)] == [0, 1, 3]
        assert len(read_all(log)) == 6

    def test_refused_set_of_a_group_leaves_the_other_sets_written(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        requests = [
            AppendRequest(records(producer=Producer(1, 0, 0)), leader_epoch=0),
            AppendRequest(records(producer=Producer(1, 0, 5)), leader_epoch=0),
            AppendRequest(b"", leader_epoch=0),
            AppendRequest(records(producer=Producer(1, 0, 1)), leader_epoch=0),
            AppendRequest(records(producer=Producer(1, 0, 0)), leader_epoch=0),
        ]
        first, gap, nothing, second, again = log.append_many(requests, now_ms=NOW_MS)
        assert isinstance(first, AppendInfo)
        assert first.last_offset == 0
        assert isinstance(gap, AppendError)
        assert gap.code is TierErrorCode.OUT_OF_ORDER_SEQUENCE
        assert isinstance(nothing, AppendInfo)
        assert nothing.last_offset == -1
        assert isinstance(second, AppendInfo)
        assert second.last_offset == 1
        assert isinstance(again, AppendInfo)
        assert (again.is_duplicate, again.last_offset) == (True, 0)
        assert log.log_end_offset == 2

    def test_a_group_may_fill_several_segments(self, tmp_path: Path) -> None:
        size = len(records())
        log = open_log(tmp_path, config=LogConfig(segment_bytes=3 * size))
        log.append_many([AppendRequest(records(), leader_epoch=0) for _ in range(10)], now_ms=NOW_MS)
        assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
        assert [record.offset for record in read_all(log)] == list(range(10))

    def test_group_writes_the_same_files_as_its_sets_one_by_one(self, tmp_path: Path) -> None:
        config = LogConfig(segment_bytes=600, index_interval_bytes=100)
        sets: list[AppendRequest] = []
        for round_number in range(8):
            data = records(2, producer=Producer(1, 0, round_number * 2), transactional=True)
            sets.append(AppendRequest(data, leader_epoch=round_number // 3))
            marker = end_marker(1, commit=bool(round_number % 2))
            sets.append(AppendRequest(marker, AppendOrigin.COORDINATOR, round_number // 3))
        together, apart = (
            open_log(tmp_path, name="together-0", config=config),
            open_log(tmp_path, name="apart-0", config=config),
        )
        together.append_many(sets, now_ms=NOW_MS)
        for each in sets:
            apart.append_many([each], now_ms=NOW_MS)
        for log in (together, apart):
            log.close()
        names = sorted(path.name for path in together.directory.iterdir())
        assert names == sorted(path.name for path in apart.directory.iterdir())
        for name in names:
            if not name.endswith(".snapshot"):
                assert (together.directory / name).read_bytes() == (apart.directory / name).read_bytes(), name


def test_log_is_flushed_after_flush_messages_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(flush_messages=3))
    lead(log, records(2))
    assert log.recovery_point == 0
    lead(log, records(1))
    assert log.recovery_point == 3


def test_append_to_a_closed_log_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.close()
    with pytest.raises(LogClosedError):
        lead(log, records())


def test_a_topic_id_is_on_disk_before_the_first_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    assert not (log.directory / "partition.metadata").exists()
    lead(log, records())
    assert TOPIC_ID_TEXT in (log.directory / "partition.metadata").read_text()


def test_marker_of_an_empty_transaction_changes_only_the_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert lead_marker(log, 1, commit=False).last_offset == 0
    assert log.first_unstable_offset is None
    assert log.producers.producers[1].producer_epoch == 0


def test_lookup_by_timestamp_finds_the_first_record_that_the_caller_may_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for at in range(10):
        lead(log, records(timestamp_ms=NOW_MS + at))
    log.update_high_watermark(5)
    found = log.offset_for_timestamp(NOW_MS + 3, isolation=IsolationLevel.READ_UNCOMMITTED)
    assert found is not None
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (3, NOW_MS + 3, 0)
    assert log.offset_for_timestamp(NOW_MS + 7, isolation=IsolationLevel.READ_UNCOMMITTED) is None
    latest = [log.offset_for_timestamp(LATEST, isolation=isolation) for isolation in (None, *IsolationLevel)]
    assert [found.offset for found in latest if found] == [10, 5, 5]


def test_refusals_are_counted_by_reason(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(cleanup_policy=frozenset({"compact"})))
    assert log.refused == ValidationCounters()
    sound = records()
    damaged = sound[:-1] + bytes([sound[-1] ^ 1])

    with pytest.raises(CorruptRecordError):
        lead(log, damaged)
    with pytest.raises(CorruptRecordError):
        follow(log, damaged)
    with pytest.raises(RecordValidationError):
        lead(log, encode_batch([NewRecord(None, b"value", NOW_MS)], base_offset=0))

    assert log.refused == ValidationCounters(invalid_checksum=2, no_key=1)
