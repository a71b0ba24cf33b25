"""Cases that the crash simulation found: a log whose machine loses power and all bytes that were not synced."""

import random
from contextlib import suppress

import pytest

from tests.crash.host import DIRECTORY, Host
from tests.crash.records import stored
from tests.fakes.simulated_disk import PowerLostError
from tierd.errors import LogDirOfflineError
from tierd.log.records.batch_builder import Producer, encode_batch, encode_end_marker
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import NewRecord
from tierd.log.records.record import ControlRecordType

NOW_MS = 1_700_000_000_000


@pytest.fixture
def host() -> Host:
    return Host(random.Random(1), LogConfig(segment_bytes=100_000, index_interval_bytes=0, segment_index_bytes=240))


def append(host: Host, count: int = 1, *, epoch: int = 1) -> None:
    """Append ``count`` batches of one record, as a follower."""
    for _ in range(count):
        batch = encode_batch([NewRecord(b"key", b"value" * 20, NOW_MS)], base_offset=0)
        data = stored(batch, base_offset=host.log.log_end_offset, leader_epoch=epoch).data
        host.log.append_as_follower(data, now_ms=NOW_MS)


def offsets(host: Host) -> list[int]:
    return [batch.base_offset for segment in host.segments() for batch in segment.batches]


def restart(host: Host) -> None:
    host.disk.lose_power()
    host.start()


def roll(host: Host) -> None:
    host.log.roll(now_ms=NOW_MS)


def test_housekeeping_after_a_truncation_leaves_the_recovery_point_within_the_log(host: Host) -> None:
    host.start()
    append(host, 5)
    roll(host)
    append(host, 5)
    host.truncate(3)
    host.log.housekeep(NOW_MS)
    assert host.log.recovery_point <= 3


def test_truncated_records_do_not_return_below_records_flushed_later(host: Host) -> None:
    host.start()
    append(host, 10)
    host.log.flush()
    host.truncate(5)
    roll(host)
    append(host, 3, epoch=2)
    host.log.flush()
    host.checkpoint()
    restart(host)
    assert offsets(host) == list(range(8))


def test_a_segment_that_was_flushed_before_it_was_rolled_keeps_its_trimmed_index(host: Host) -> None:
    host.start()
    append(host, 5)
    host.log.flush()
    roll(host)
    append(host, 1)
    host.log.flush()
    host.checkpoint()
    restart(host)
    assert host.log.segments[0].offset_index.entries == 4
    assert host.offset_by_timestamp(NOW_MS) == 0


def test_lost_log_start_leaves_no_torn_segment_after_a_crash(host: Host) -> None:
    host.start()
    append(host, 5)
    roll(host)
    append(host, 5)
    host.log.update_high_watermark(10)
    host.log.delete_records(7)
    host.log.flush()
    restart(host)
    assert host.log.log_start_offset == 0
    assert offsets(host) == list(range(10))


def test_recovery_point_above_the_log_end_is_lowered_by_the_load(host: Host) -> None:
    host.start()
    append(host, 20)
    host.log.flush()
    host.checkpoint()
    host.log.truncate_to(5, now_ms=NOW_MS)  # and before the manager can write its recovery point:
    restart(host)
    append(host, 5)
    roll(host)
    append(host, 20)
    restart(host)
    assert offsets(host) == list(range(5))


def test_log_with_a_segment_without_index_behind_a_torn_one_loads(host: Host) -> None:
    host.start()
    append(host, 5)
    roll(host)
    append(host, 5)
    host.log.flush()
    host.kill()
    host.disk.unlink(DIRECTORY / "00000000000000000005.index")
    file = host.disk.open(DIRECTORY / "00000000000000000000.log")
    file.write(300, [bytes(200)])
    file.close()
    host.start()
    assert offsets(host) == [0]


def test_log_with_a_marker_lost_at_the_end_of_a_segment_loads(host: Host) -> None:
    host.start()
    producer = Producer(7, 0, 0)
    data = encode_batch([NewRecord(b"k", b"v", NOW_MS)], base_offset=0, producer=producer, is_transactional=True)
    marker = encode_end_marker(
        kind=ControlRecordType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=NOW_MS
    )
    plain = encode_batch([NewRecord(b"k", b"v", NOW_MS)], base_offset=0, producer=Producer(7, 0, 1))
    for offset, batch in enumerate((data, marker, plain)):
        if offset == 2:
            roll(host)
        host.log.append_as_follower(stored(batch, base_offset=offset, leader_epoch=1).data, now_ms=NOW_MS)
    host.kill()
    file = host.disk.open(DIRECTORY / "00000000000000000000.log")
    file.truncate(file.size_bytes - len(marker))
    file.close()
    for name in host.disk.list_names(DIRECTORY):
        if name.endswith(".snapshot"):
            host.disk.unlink(DIRECTORY / name)
    host.start()
    assert offsets(host) == [0]


def epochs(host: Host) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in host.log.leader_epochs.entries]


def test_truncated_epoch_does_not_return_when_the_log_is_longer_again(host: Host) -> None:
    host.start()
    append(host, 5, epoch=1)
    append(host, 5, epoch=5)
    host.truncate(4)
    append(host, 10, epoch=1)
    host.log.flush()
    restart(host)
    assert (host.log.log_end_offset, epochs(host)) == (14, [(1, 0)])


def test_epoch_of_lost_records_does_not_return_when_the_log_is_longer_again(host: Host) -> None:
    host.start()
    append(host, 5, epoch=1)
    host.log.flush()
    append(host, 5, epoch=5)
    restart(host)
    assert (host.log.log_end_offset, epochs(host)) == (5, [(1, 0)])
    append(host, 10, epoch=1)
    host.log.flush()
    restart(host)
    assert (host.log.log_end_offset, epochs(host)) == (15, [(1, 0)])


@pytest.mark.parametrize("changes", range(0, 60, 2))
def test_full_truncation_that_a_power_cut_ends_leaves_no_hole(host: Host, changes: int) -> None:
    host.start()
    for _ in range(3):
        append(host, 4)
        roll(host)
    host.log.flush(including_active=True)
    host.disk.power_fails_at = host.disk.moment + changes
    with suppress(PowerLostError, LogDirOfflineError):
        host.truncate_fully(6)
    restart(host)
    assert offsets(host) in ([], *(list(range(end)) for end in (4, 8, 12)))
