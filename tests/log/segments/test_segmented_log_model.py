"""Any sequence of calls leaves a log that agrees with a list of batches, before and after it is opened again."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.log.batches import plain
from tests.log.segmented_logs import NOW_MS, all_offsets, append, new_log, reopen
from tierd.log.records.log_config import LogConfig


class SegmentedLogMachine(RuleBasedStateMachine):
    @initialize(start=st.integers(0, 50), interval=st.sampled_from([0, 100, 4096]), preallocate=st.booleans())
    def begin(self, start: int, interval: int, preallocate: bool) -> None:
        self.folder = TemporaryDirectory()
        self.config = LogConfig(
            segment_index_bytes=800, index_interval_bytes=interval, preallocate=preallocate, segment_bytes=1 << 16
        )
        self.log = new_log(Path(self.folder.name), self.config, start=start)
        self.batches: list[tuple[int, int]] = []  # first and last offset
        self.end = start
        self.now_ms = NOW_MS

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.log.close_handles()
            self.folder.cleanup()

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=4), gap=st.integers(0, 3))
    def append(self, counts: list[int], gap: int) -> None:
        self.end = max(self.end + gap, self.log.active.base_offset)  # a follower may leave gaps
        for count in counts:
            append(self.log, plain(self.end, count, size=20), write=False)
            self.batches.append((self.end, self.end + count - 1))
            self.end += count
        self.log.write_out()

    @rule(above=st.integers(-3, 4))
    def roll(self, above: int) -> None:
        expected = self.end + max(above, 0)
        if expected < self.log.active.base_offset:
            return  # an earlier roll above the log end: the next one cannot go below it
        assert self.log.roll(self.end + above, now_ms=self.now_ms).base_offset == expected

    @rule(extra=st.integers(0, 1))
    def flush(self, extra: int) -> None:
        self.log.flush(self.end + extra)
        self.log.mark_flushed(self.end)

    @rule(back=st.integers(-1, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.end - back, 0)
        if offset >= self.log.log_end.offset:
            assert self.log.truncate_to(offset, now_ms=self.now_ms) == []
            return
        self.log.truncate_to(offset, now_ms=self.now_ms)
        self.batches = [batch for batch in self.batches if batch[1] < offset]
        self.end = offset

    @rule(offset=st.integers(0, 200))
    def truncate_fully(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset, now_ms=self.now_ms)
        self.batches, self.end = [], offset

    @rule()
    def delete_oldest(self) -> None:
        if len(self.log.segments) > 1 and self.log.segments.values[1].base_offset <= self.end:
            self.log.delete_segments(self.log.segments.values[:1], now_ms=self.now_ms)
            first = self.log.segments.values[0].base_offset
            self.batches = [batch for batch in self.batches if batch[0] >= first]

    @rule(passed_ms=st.integers(0, 90_000))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.log.run_due_deletions(self.now_ms)

    @rule(number=st.integers(0, 3))
    def rename(self, number: int) -> None:
        self.log.rename_directory(f"orders-{number}")

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = reopen(self.log.directory, self.config)
        self.end = self.log.log_end.offset
        last = self.batches[-1][1] + 1 if self.batches else 0
        assert self.end == max(last, self.log.active.base_offset)

    @invariant()
    def holds_what_was_appended(self) -> None:
        expected = [offset for first, last in self.batches for offset in range(first, last + 1)]
        assert all_offsets(self.log) == expected
        assert self.log.log_end.offset == self.end
        assert self.log.recovery_point <= self.end
        assert self.log.log_end.position == self.log.active.size_bytes


@pytest.mark.spec("log-format TRN-01")
def test_any_sequence_of_calls_agrees_with_a_list() -> None:
    run_state_machine_as_test(
        SegmentedLogMachine, settings=settings(max_examples=20, stateful_step_count=15, deadline=None)
    )
