"""Whatever is asked and whatever fails: what the manager shows is what the store holds."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, PARTITION, segment, step
from tierd.errors import (
    BackendUnavailableError,
    FencedError,
    InvalidMetadataError,
    InvalidSegmentTransitionError,
    OutcomeUnknownError,
    RemoteResourceNotFoundError,
)
from tierd.metadata import (
    MemoryKeyValueStore,
    MetadataKeyFactory,
    PartitionView,
    RemoteLogMetadataManager,
    read_partition,
)
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState

KEYS = MetadataKeyFactory("cluster")
_T = TypeVar("_T")
_REFUSED = (InvalidMetadataError, InvalidSegmentTransitionError, RemoteResourceNotFoundError)
faults = st.sampled_from([None, None, None, *(fault for fault in Fault if fault is not Fault.HANG)])


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
            tombstone_retention_s=100,
            strict_kafka_compat=self.strict,
        )

    def run(self, work: Coroutine[object, object, _T]) -> _T:
        return self.loop.run_until_complete(work)

    def attempt(self, call: Callable[[], Awaitable[None]], fault: Fault | None) -> bool:
        """Call with a fault; True when it was acknowledged."""
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
    def what_was_acknowledged_is_there_or_has_a_tombstone_or_was_deleted(self) -> None:
        view = self.stored()
        known = {metadata.segment.id for metadata in view.list()} | set(view.tombstones)
        missing = self.acknowledged - known
        self.acknowledged -= missing
        assert all(self.clock.monotonic_s() > 100 for _ in missing)  # only an expired tombstone goes


class KafkaBrokers(Brokers):
    strict = True


_SETTINGS = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestBrokers = Brokers.TestCase
TestBrokers.settings = _SETTINGS
TestKafkaBrokers = KafkaBrokers.TestCase
TestKafkaBrokers.settings = _SETTINGS
