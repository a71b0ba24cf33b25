"""Any story of a broker's log: a listener was told a prefix of the log, or of a truncation."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.replication.tail.broker_log import BrokerLog
from tests.replication.tail.tail_listening import TailFollowing


class TailStory(RuleBasedStateMachine):
    """A broker writes, and a tail polls now and then. After a quiet moment the tail has all of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tail"))
        self.log_dirs = [self.folder / "a", self.folder / "b"]
        self.is_torn = False

    @initialize(room=st.booleans(), before=st.integers(0, 3), max_bytes=st.sampled_from([1, 300, 1 << 20]))
    def begin(self, *, room: bool, before: int, max_bytes: int) -> None:
        self.broker = BrokerLog(self.log_dirs[0], room_bytes=8192 if room else 0)
        self.log_dirs[1].mkdir()
        for _ in range(before):
            self.broker.append(2)
        self.tail = TailFollowing(self.broker, max_bytes=max_bytes)

    def teardown(self) -> None:
        self.tail.close()
        shutil.rmtree(self.folder)

    @rule(count=st.integers(1, 4), size=st.sampled_from([0, 30, 400]))
    def append(self, count: int, size: int) -> None:
        self._heal()
        self.broker.append(count, size=size)

    @precondition(lambda self: not self.is_torn)
    @rule(part=st.floats(0.01, 0.99))
    def write_half_a_batch(self, part: float) -> None:
        self.broker.begin_append(part)
        self.is_torn = True

    @rule()
    def roll(self) -> None:
        self._heal()
        self.broker.roll()

    @rule(index=st.integers(0, 12), is_new_epoch=st.booleans(), appended=st.integers(0, 4))
    def truncate(self, index: int, appended: int, *, is_new_epoch: bool) -> None:
        self.is_torn = False
        self.broker.truncate(index)
        if is_new_epoch:
            self.broker.begin_epoch()
        for _ in range(appended):
            self.broker.append(2)

    @rule(keep_each=st.integers(1, 3))
    def clean(self, keep_each: int) -> None:
        self._heal()
        self.broker.clean(keep_each)

    @rule()
    def delete_oldest(self) -> None:
        self._heal()
        self.broker.delete_oldest()

    @rule()
    def lead_again(self) -> None:
        self._heal()
        self.broker.begin_epoch()

    @rule()
    def move(self) -> None:
        self._heal()
        self.log_dirs.reverse()
        self.broker.move_to(self.log_dirs[0])

    @rule()
    def poll_once(self) -> None:
        if self.tail.poll().is_gone:
            self.tail.log.move(self.broker.directory)

    @rule()
    def poll_to_the_end(self) -> None:
        while (done := self.tail.poll_to_the_end()).is_gone:
            self.tail.log.move(self.broker.directory)
        assert done.problem is None
        assert done.is_settled
        self._assert_prefix()
        log = self.tail.log
        untold = {batch.base_offset for batch in self.broker.history if batch.base_offset >= log.log_end_offset}
        assert untold <= self.broker.cleaned
        assert log.log_start_offset >= self.broker.segments[0].base_offset
        newest = self.broker.lineage.latest
        assert log.leader_epoch == (newest.epoch if newest is not None else 0)
        assert log.lineage == self.broker.lineage.truncated_from_end(log.log_end_offset + 1)

    @invariant()
    def bounds_are_in_order(self) -> None:
        if hasattr(self, "tail"):
            log = self.tail.log
            assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
            assert log.log_end_offset == self.tail.listener.next_offset

    def _heal(self) -> None:
        if self.is_torn:
            self.broker.finish_append()
            self.is_torn = False

    def _assert_prefix(self) -> None:
        listener, broker = self.tail.listener, self.broker
        history = {batch.base_offset: batch.data for batch in broker.history}
        assert all(history.get(offset) == data for offset, data in listener.told.items())
        due = {offset for offset in history if listener.start_offset <= offset < listener.next_offset}
        assert due - listener.told.keys() <= broker.cleaned


TestTailStory = TailStory.TestCase
TestTailStory.settings = settings(max_examples=50, stateful_step_count=20)
