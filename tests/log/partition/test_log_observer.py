"""LogObserver: changes of a log as its observer is told of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.log.logs import NOW_MS, follow, lead, open_log, records
from tierd.errors import LogError
from tierd.log.partition.append_info import AppendRequest
from tierd.log.partition.log_observer import AppendedRecords, owned_bytes
from tierd.log.records.log_config import LogConfig
from tierd.model import Lineage


class RecordingObserver:
    """Observer that keeps what it is told."""

    def __init__(self) -> None:
        self.appends: list[AppendedRecords] = []
        self.groups: list[int] = []
        self.lineage = Lineage()
        self.high_watermarks: list[int] = []
        self.log_starts: list[int] = []
        self.truncations: list[tuple[int, int]] = []

    def on_appended(self, appends: Sequence[AppendedRecords], lineage: Lineage) -> None:
        self.groups.append(len(appends))
        self.appends += appends
        self.lineage = lineage

    def on_high_watermark(self, high_watermark: int) -> None:
        self.high_watermarks.append(high_watermark)

    def on_log_start_offset(self, log_start_offset: int) -> None:
        self.log_starts.append(log_start_offset)

    def on_truncated(self, log_end_offset: int, log_start_offset: int, lineage: Lineage) -> None:
        self.lineage = lineage
        self.truncations.append((log_end_offset, log_start_offset))


def test_observer_gets_the_bytes_of_each_append_with_their_place_across_rolls(tmp_path: Path) -> None:
    size = len(records())
    log = open_log(tmp_path, config=LogConfig(segment_bytes=3 * size))
    lead(log, records())
    observer = RecordingObserver()
    log.observe(observer)
    requests = [AppendRequest(records(), leader_epoch=7) for _ in range(5)]
    log.append_many(requests, now_ms=NOW_MS)
    assert [(each.append_offset, each.next_offset) for each in observer.appends] == [
        (offset, offset + 1) for offset in range(1, 6)
    ]
    for each in observer.appends:
        content = each.path.read_bytes()
        assert content[each.position : each.position + len(each.records)] == each.records
    assert observer.groups == [5]
    assert len({each.path for each in observer.appends}) == 2
    assert observer.lineage.latest == (7, 1)


def test_refused_and_repeated_sets_are_not_reported(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    observer = RecordingObserver()
    log.observe(observer)
    outcomes = log.append_many([AppendRequest(b"x" * 61), AppendRequest(records(), leader_epoch=1)], now_ms=NOW_MS)
    assert isinstance(outcomes[0], LogError)
    assert [each.append_offset for each in observer.appends] == [0]


def test_appends_of_a_follower_are_reported_with_the_gap_before_them(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    observer = RecordingObserver()
    log.observe(observer)
    follow(log, records(base_offset=5))
    assert [(each.append_offset, each.next_offset) for each in observer.appends] == [(0, 6)]


@pytest.mark.spec("log-format TRN-17")
def test_observer_is_told_of_each_later_high_watermark(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(2))
    log.update_high_watermark(1)
    observer = RecordingObserver()
    log.observe(observer)
    heard = observer.high_watermarks
    assert not heard
    log.maybe_increment_high_watermark(2)
    assert heard == [2]
    log.truncate_to(1, now_ms=NOW_MS)
    assert heard == [2, 1]
    log.truncate_fully_and_start_at(0, now_ms=NOW_MS)
    assert heard[-1] == 0
    log.close()


def test_watermark_log_start_and_truncation_are_reported_in_their_order(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(9):
        lead(log, records())
    observer = RecordingObserver()
    log.observe(observer)
    log.update_high_watermark(8)
    log.delete_records(4)
    log.truncate_to(6, now_ms=NOW_MS)
    log.truncate_fully_and_start_at(20, now_ms=NOW_MS)
    assert observer.high_watermarks[0] == 8
    assert observer.log_starts == [4]
    assert observer.truncations == [(6, 4), (20, 20)]
    assert not observer.lineage


def test_local_start_of_a_tiered_log_is_reported_when_retention_raises_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(remote_storage_enable=True, local_retention_ms=1000))
    lead(log, records())
    log.update_high_watermark(1)
    log.replace_highest_remote_offset(0, epoch=0)
    observer = RecordingObserver()
    log.observe(observer)
    log.delete_old_segments(NOW_MS + 2000)
    assert (observer.log_starts, log.log_start_offset, log.local_log_start_offset) == ([1], 0, 1)


def test_log_without_an_observer_keeps_no_appends(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    observer = RecordingObserver()
    log.observe(observer)
    lead(log, records())
    log.observe(None)
    lead(log, records())
    assert len(observer.appends) == 1


def test_whole_bytes_are_reported_without_a_copy_and_parts_of_buffers_with_one() -> None:
    whole = b"records"
    assert owned_bytes(memoryview(whole)) is whole
    buffer = bytearray(whole)
    copied = owned_bytes(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert copied == whole
    assert owned_bytes(memoryview(whole)[1:]) == whole[1:]
