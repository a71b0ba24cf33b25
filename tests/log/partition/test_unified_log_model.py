"""A log compared with the simplest model of one: a list of batches."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.log.logs import NOW_MS, follow, lead, open_log, read_all, records
from tierd.log.partition.append_info import AppendInfo, AppendRequest
from tierd.log.records.log_config import LogConfig
from tierd.model import IsolationLevel

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=60, segment_index_bytes=400, retention_bytes=600)


class LogModel(RuleBasedStateMachine):
    """``batches``: (first, last offset) of the readable batches."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.batches: list[tuple[int, int]] = []
        self.end = 0
        self.now_ms = NOW_MS

    @initialize()
    def begin(self) -> None:
        self.log = open_log(Path(self.folder.name), config=CONFIG)

    def teardown(self) -> None:
        self.log.close_handles()
        self.folder.cleanup()

    def _appended(self, first: int, count: int) -> None:
        self.batches.append((first, first + count - 1))
        self.end = first + count

    @rule(count=st.integers(1, 4))
    def append_as_leader(self, count: int) -> None:
        assert lead(self.log, records(count), now_ms=self.now_ms).first_offset == self.end
        self._appended(self.end, count)

    @rule(gap=st.integers(0, 3), counts=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def append_as_follower(self, gap: int, counts: list[int]) -> None:
        data, base = b"", self.end + gap
        for count in counts:
            data += records(count, base_offset=base)
            self._appended(base, count)
            base += count
        follow(self.log, data, now_ms=self.now_ms)

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=6))
    def append_a_group(self, counts: list[int]) -> None:
        requests = [AppendRequest(records(count), leader_epoch=0) for count in counts]
        for count, outcome in zip(counts, self.log.append_many(requests, now_ms=self.now_ms), strict=True):
            assert isinstance(outcome, AppendInfo)
            assert outcome.first_offset == self.end
            self._appended(self.end, count)

    @rule()
    def roll(self) -> None:
        self.log.roll(now_ms=self.now_ms)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = round(part * (self.end + 1))
        if self.log.truncate_to(offset, now_ms=self.now_ms):
            self.batches = [batch for batch in self.batches if batch[1] < offset]
            self.end = offset

    @rule(offset=st.integers(0, 50))
    def truncate_fully(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset, now_ms=self.now_ms)
        self.batches, self.end = [], offset

    @rule(part=st.floats(0, 1))
    def move_high_watermark(self, part: float) -> None:
        self.log.update_high_watermark(round(part * (self.end + 3)))

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.log.delete_records(round(part * self.log.high_watermark))

    @rule()
    def apply_retention(self) -> None:
        before = self.log.size_bytes
        self.log.delete_old_segments(self.now_ms)
        assert self.log.size_bytes >= min(before, CONFIG.retention_bytes) or self.log.log_start_offset > 0

    @rule(minutes=st.integers(0, 3))
    def housekeep(self, minutes: int) -> None:
        self.now_ms += minutes * 60_000
        self.log.housekeep(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule(clean=st.booleans())
    def load_again(self, clean: bool) -> None:
        """Load the log again; its end may fall into a gap of a truncation, and no record is lost."""
        start, recovery_point = self.log.log_start_offset, self.log.recovery_point
        if clean:
            self.log.close()
            recovery_point = self.log.recovery_point
        else:
            self.log.close_handles()
        self.log = open_log(
            Path(self.folder.name),
            config=CONFIG,
            clean=clean,
            log_start_offset=start,
            recovery_point=recovery_point,
            now_ms=self.now_ms,
        )
        last = self.batches[-1][1] + 1 if self.batches else 0
        assert min(last, self.end) <= self.log.log_end_offset <= self.end
        self.end = self.log.log_end_offset

    @invariant()
    def appended_batches_are_readable(self) -> None:
        log = self.log
        assert log.log_end_offset == self.end
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= self.end
        assert log.recovery_point <= self.end
        for isolation, end in ((None, self.end), (IsolationLevel.READ_UNCOMMITTED, log.high_watermark)):
            readable = [batch for batch in self.batches if batch[1] < end]  # a batch across the end is not readable
            expected = [offset for first, last in readable for offset in range(first, last + 1)]
            found = [record.offset for record in read_all(log, isolation=isolation)]
            assert found == [offset for offset in expected if offset >= log.log_start_offset]


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
