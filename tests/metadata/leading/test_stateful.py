"""Any calls with any faults: the view of the manager equals the rows of the store."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeVar
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, PARTITION, STARTED, segment, step
from tierd.errors import (
    BackendUnavailableError,
    FencedError,
    InvalidMetadataError,
    InvalidSegmentTransitionError,
    OutcomeUnknownError,
    RefusedError,
    RemoteResourceNotFoundError,
)
from tierd.metadata import (
    MemoryKeyValueStore,
    MetadataKeyFactory,
    MetadataManagerSettings,
    PartitionView,
    RemoteLogMetadataManager,
    read_partition,
)
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, SoftDelete

KEYS = MetadataKeyFactory("cluster")
_T = TypeVar("_T")
_REFUSED = (RefusedError, InvalidMetadataError, InvalidSegmentTransitionError, RemoteResourceNotFoundError)
faults = st.sampled_from([None, None, None, *(fault for fault in Fault if fault is not Fault.HANG)])
rare_faults = st.sampled_from([None, None, None, None, None, Fault.LOSE_ANSWER])


@dataclass(frozen=True)
class Replacement:
    """An output that has begun, and its inputs as its leader saw them at that time."""

    output: RemoteLogSegmentMetadata
    inputs: tuple[RemoteLogSegmentMetadata, ...]


class Brokers(RuleBasedStateMachine):
    """Two brokers, one partition, and a store that fails in every way."""

    strict = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.store = FaultyKeyValueStore(MemoryKeyValueStore())
        self.managers = [self._start(0), self._start(1)]
        self.claimed = [0, 0]
        self.segments: list[RemoteLogSegmentMetadata] = []
        self.acknowledged: set[UUID] = set()
        self.replacements: list[Replacement] = []
        self.compacted_to = -1
        self.epoch = 0
        self.sessions = 0

    def teardown(self) -> None:
        self.loop.close()

    def _start(self, broker: int, session: int = 0) -> RemoteLogMetadataManager:
        return RemoteLogMetadataManager(
            self.store,
            cluster_id="cluster",
            broker_id=broker,
            session_id=UUID(int=session * 2 + broker + 1),
            clock=self.clock,
            settings=MetadataManagerSettings(tombstone_retention_s=100, strict_kafka_compat=self.strict),
        )

    def run(self, work: Coroutine[object, object, _T]) -> _T:
        return self.loop.run_until_complete(work)

    def attempt(self, call: Callable[[], Awaitable[None]], fault: Fault | None) -> bool:
        """Call with a fault; return True when the call was acknowledged."""
        self.store.apply_faults.clear()
        self.store.apply_faults.append(fault)

        async def attempted() -> bool:
            try:
                await call()
            except (FencedError, BackendUnavailableError, OutcomeUnknownError, *_REFUSED):
                return False
            except RuntimeError as error:
                assert "broken for a test" in str(error)  # noqa: PT017  any other is a bug
                return False
            return True

        acknowledged = self.run(attempted())
        self.store.apply_faults.clear()
        return acknowledged

    @initialize()
    def lead(self) -> None:
        self.announce(broker=0, grow=1, fault=None)

    @rule(broker=st.integers(0, 1), grow=st.integers(-1, 1), fault=faults)
    def announce(self, broker: int, grow: int, fault: Fault | None) -> None:
        epoch = max(0, self.epoch + grow)
        self.epoch = max(self.epoch, epoch)
        if self.attempt(lambda: self.managers[broker].become_leader(PARTITION, epoch), fault):
            self.claimed[broker] = epoch

    @rule(broker=st.integers(0, 1))
    def restart(self, broker: int) -> None:
        self.sessions += 1
        self.managers[broker] = self._start(broker, self.sessions)

    @rule(
        broker=st.integers(0, 1),
        span=st.tuples(st.integers(0, 20), st.integers(0, 12)),
        first_epoch=st.integers(0, 2),
        split=st.integers(0, 12),
        fault=faults,
    )
    def add(self, broker: int, span: tuple[int, int], first_epoch: int, split: int, fault: Fault | None) -> None:
        manager, number, (start, length) = self.managers[broker], len(self.segments), span
        epochs = {first_epoch: start, **({first_epoch + 1: start + split} if 0 < split <= length else {})}
        metadata = segment(
            start,
            start + length,
            epochs,
            segment_id=UUID(int=number + 1000),
            leader_epoch=self.claimed[broker],
            session_id=manager.session_id,
        )
        self.segments.append(metadata)
        if self.attempt(lambda: manager.add(metadata), fault):
            self.acknowledged.add(metadata.segment.id)

    @precondition(lambda self: self.segments)
    @rule(
        broker=st.integers(0, 1),
        which=st.integers(0, 1000),
        state=st.sampled_from([FINISHED, FINISHED, DELETE_STARTED, DELETE_FINISHED]),
        fault=faults,
    )
    def update(self, broker: int, which: int, state: RemoteLogSegmentState, fault: Fault | None) -> None:
        metadata = self.segments[which % len(self.segments)]
        update = step(metadata, state, event_timestamp_ms=self.clock.now_ms())
        self.attempt(lambda: self.managers[broker].update(update), fault)

    def leader(self) -> int:
        """Return a broker that is ready; announce one if there is none."""
        ready = next((broker for broker in (0, 1) if self.managers[broker].is_ready(PARTITION)), None)
        if ready is None:
            self.announce(broker=0, grow=1, fault=None)
        return ready or 0

    def begun(self, broker: int, start: int, end: int, epochs: dict[int, int]) -> RemoteLogSegmentMetadata:
        metadata = segment(
            start,
            end,
            epochs,
            segment_id=UUID(int=len(self.segments) + 1000),
            leader_epoch=self.claimed[broker],
            session_id=self.managers[broker].session_id,
        )
        self.segments.append(metadata)
        return metadata

    @rule(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), rolls=st.booleans())
    def copy(self, lengths: list[int], rolls: bool) -> None:
        """Copy neighbours behind all other segments, and finish them one by one."""
        broker, stored = self.leader(), self.stored()
        start, epoch = max((m.end_offset for m in stored.list()), default=-1) + 1, max(stored.epochs, default=0)
        for length in lengths if start < 60 else []:
            epochs = {epoch: start, **({epoch + 1: start + 1} if rolls and length > 3 else {})}
            metadata = self.begun(broker, start, start + length - 1, epochs)
            start, epoch = start + length, max(epochs)
            if self.attempt(partial(self.managers[broker].add, metadata), None):
                self.acknowledged.add(metadata.segment.id)
                self.attempt(partial(self.managers[broker].update, step(metadata, FINISHED)), None)

    @rule(first=st.integers(0, 1000), count=st.integers(1, 4), rarely=rare_faults, goes_on=st.booleans(), fault=faults)
    def compact(self, first: int, count: int, rarely: Fault | None, goes_on: bool, fault: Fault | None) -> None:
        """Begin an output for a run of neighbours that the leader knows, and perhaps commit it."""
        self.copy([4, 4], rolls=True)
        broker = self.leader()
        manager = self.managers[broker]
        inputs = _neighbours(manager.view(PARTITION), first)[:count] if manager.is_ready(PARTITION) else ()
        if not inputs:
            return
        starts: dict[int, int] = {}
        for metadata in inputs:
            for entry in metadata.segment_leader_epochs:
                starts.setdefault(entry.epoch, entry.start_offset)
        epochs = {epoch: starts[epoch] for epoch in sorted(starts)}
        if list(epochs.values()) != sorted(set(epochs.values())):  # of two branches; no plan joins them
            return
        output = self.begun(broker, inputs[0].start_offset, inputs[-1].end_offset, epochs)
        output = replace(output, event_timestamp_ms=max(m.event_timestamp_ms for m in inputs) + 1)
        self.segments[-1] = output
        if self.attempt(lambda: manager.begin_outputs([output]), rarely):
            self.acknowledged.add(output.segment.id)
            self.replacements.append(Replacement(output, inputs))
            if goes_on:
                self.replace(stranger=None, age=0, compacts=True, fault=fault)

    @precondition(lambda self: self.replacements)
    @rule(stranger=st.sampled_from([None, None, 0, 1]), age=st.integers(0, 3), compacts=st.booleans(), fault=faults)
    def replace(self, stranger: int | None, age: int, compacts: bool, fault: Fault | None) -> None:
        """Replace at any later time, by any broker, once or twice: the whole replacement happens or no part of it."""
        wanted = self.replacements[max(0, len(self.replacements) - 1 - age)]
        broker = self.leader() if stranger is None else stranger
        before = self.stored()
        done = replace(wanted.output, state=FINISHED, event_timestamp_ms=self.clock.now_ms())
        soft_delete = SoftDelete.replaced(delete_after_ms=self.clock.now_ms())
        compacted_to = done.end_offset + 1 if compacts else None
        self.attempt(
            lambda: self.managers[broker].replace_segments(
                done, wanted.inputs, soft_delete=soft_delete, compacted_to=compacted_to
            ),
            fault,
        )
        after = self.stored()
        was, now = before.segments.get(done.segment.id), after.segments.get(done.segment.id)
        if was is not None and was.state is STARTED and now is not None and now.state is FINISHED:
            assert all(after.segments[m.segment.id].state is DELETE_STARTED for m in wanted.inputs)
            _assert_found(before, after, wanted)
        else:
            assert after.segments == before.segments
        self.compacted_to = max(self.compacted_to, after.compacted_to or -1)

    @rule(broker=st.integers(0, 1), offset=st.integers(0, 40), fault=faults)
    def advance(self, broker: int, offset: int, fault: Fault | None) -> None:
        before = self.stored().log_start_offset or 0
        self.attempt(lambda: self.managers[broker].advance_log_start_offset(PARTITION, offset), fault)
        assert (self.stored().log_start_offset or 0) >= before

    @rule(broker=st.integers(0, 1))
    def reload(self, broker: int) -> None:
        self.attempt(lambda: self.managers[broker].ensure_ready(PARTITION), None)

    @rule()
    def land_late(self) -> None:
        self.run(self.store.land_late())

    @rule(seconds=st.integers(1, 150))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    def stored(self) -> PartitionView:
        return self.run(read_partition(self.store.inner, KEYS, PARTITION, strict_kafka_compat=self.strict))

    @invariant()
    def a_ready_view_of_the_owner_is_what_the_store_holds(self) -> None:
        stored = self.stored()
        for manager in self.managers:
            if manager.is_ready(PARTITION):
                view = manager.view(PARTITION)
                if view.claim == stored.claim:
                    assert view == stored

    @invariant()
    def epochs_and_segments_agree(self) -> None:
        view = self.stored()
        for epoch, state in view.epochs.items():
            for metadata in view.list_epoch(epoch):
                assert epoch in {entry.epoch for entry in metadata.segment_leader_epochs}
            assert not state.unreferenced & set(state.ids)
        if not self.strict:
            mentioned = {m.segment.id for epoch in view.epochs for m in view.list_epoch(epoch)}
            assert mentioned == {m.segment.id for m in view.list()}

    @invariant()
    def compaction_never_moves_back(self) -> None:
        assert (self.stored().compacted_to or -1) >= self.compacted_to

    @invariant()
    def what_was_acknowledged_is_there_or_has_a_tombstone_or_was_deleted(self) -> None:
        view = self.stored()
        known = {metadata.segment.id for metadata in view.list()} | set(view.tombstones)
        missing = self.acknowledged - known
        self.acknowledged -= missing
        assert all(self.clock.monotonic_s() > 100 for _ in missing)  # only an expired tombstone goes


def _neighbours(view: PartitionView, first: int) -> tuple[RemoteLogSegmentMetadata, ...]:
    """Return neighbouring readable segments of any epochs, without a gap or overlap, beginning at any of them."""
    readable = [m for m in view.list() if m.state is FINISHED and view.is_readable(m)]
    readable.sort(key=lambda m: (m.start_offset, m.end_offset))
    chosen = readable[first % len(readable) :] if readable else []
    ends = (n for n, (a, b) in enumerate(pairwise(chosen), start=1) if b.start_offset != a.end_offset + 1)
    return tuple(chosen[: next(ends, len(chosen))])


def _assert_found(before: PartitionView, after: PartitionView, done: Replacement) -> None:
    """Check that each lookup of an input finds the output, and that other lookups find the same segment as before."""
    gone = {metadata.segment.id for metadata in done.inputs}
    for epoch in before.epochs:
        assert after.highest_offset_for_epoch(epoch) == before.highest_offset_for_epoch(epoch)
        for offset in range(100):
            was, now = before.segment_for(epoch, offset), after.segment_for(epoch, offset)
            if was is not None and was.segment.id in gone:
                assert now is not None
                assert now.segment.id not in gone
            elif was is not None:
                assert now is not None
                assert now.segment.id in {was.segment.id, done.output.segment.id}


class KafkaBrokers(Brokers):
    strict = True


_SETTINGS = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestBrokers = Brokers.TestCase
TestBrokers.settings = _SETTINGS
TestKafkaBrokers = KafkaBrokers.TestCase
TestKafkaBrokers.settings = _SETTINGS
