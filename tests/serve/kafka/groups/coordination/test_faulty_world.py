"""No acknowledged commit is lost, whatever a store, two daemons and their views of each other do.

A seed decides on everything. Consumers commit to partitions of their own, so that each position has one writer.
"""

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest
from kio.schema.errors import ErrorCode

from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.manual_clock import ManualClock
from tests.fakes.served_partitions import FIRST_NODE, SECOND_NODE
from tests.serve.kafka.groups.asked_groups import AskedGroups, FakeConsumer, GroupAnswerError, settle
from tierd.metadata import MemoryKeyValueStore

OK, AWAY = ErrorCode.none, ErrorCode.coordinator_not_available
NODES = (FIRST_NODE, SECOND_NODE)
VIEWS = ((FIRST_NODE,), (SECOND_NODE,), NODES, NODES)
WRITE_FAULTS = (None, None, None, Fault.FAIL, Fault.LOSE_ANSWER, Fault.DROP_REQUEST, Fault.LAND_LATE)
STEPS = 90


class FaultyWorld:
    """Two endpoints over one store, three consumers, and what is known of their positions."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.store = FaultyKeyValueStore(MemoryKeyValueStore())
        self.clock = ManualClock()
        self.endpoints = [
            AskedGroups(self.store, clock=self.clock, nodes=nodes) for nodes in (NODES, tuple(reversed(NODES)))
        ]
        self.consumers = [
            FakeConsumer(self.endpoints[0], "alice"),
            FakeConsumer(self.endpoints[0], "bob"),
            FakeConsumer(self.endpoints[0], "carol", instance_id="one"),
        ]
        self.possible: list[set[int]] = [{-1} for _ in self.consumers]
        self.announced = 0
        self.leaders: dict[int, str] = {}
        self.joining: dict[int, asyncio.Task[None]] = {}
        self.last_offset = 0
        self.acknowledged = 0

    async def step(self) -> None:
        at = self.random.randrange(3)
        match self.random.randrange(12):
            case 0:
                endpoint = self.random.choice(self.endpoints)
                own = NODES[self.endpoints.index(endpoint)]
                view = self.random.choice(VIEWS)
                endpoint.served.set_nodes(*(view if own in view else (own,)))
            case 1:
                await self.store.land_late()
            case 2:
                self.store.apply_faults.append(self.random.choice(WRITE_FAULTS))
            case 3:
                await self.pass_time(self.random.choice((1.0, 4.0, 8.0)))
            case 4:
                self.consumers[at].endpoint = self.random.choice(self.endpoints)
            case 5 | 6:
                await self.join_and_sync(at)
            case _:
                await self.commit(at)
        await self.check_positions()

    async def join_and_sync(self, at: int) -> None:
        """Let one consumer join; once its generation has begun, the members ask for their assignments."""
        if at not in self.joining:
            self.joining[at] = asyncio.create_task(self.join(self.consumers[at]))
        await self.pass_time(3.0)
        for number, joining in tuple(self.joining.items()):
            if joining.done():
                await self.joining.pop(number)
        for consumer in self.consumers:
            if consumer.generation >= 0:
                await self.sync(consumer)

    async def sync(self, consumer: FakeConsumer) -> None:
        syncing = asyncio.create_task(consumer.sync())
        await settle()
        syncing.cancel()
        outcome, *_ = await asyncio.gather(syncing, return_exceptions=True)
        assert isinstance(outcome, bytes | GroupAnswerError | asyncio.CancelledError)

    async def join(self, consumer: FakeConsumer) -> None:
        error = await consumer.join()
        if error is OK:
            assert consumer.joined is not None
            # The answer of a coordinator that has lost the group meanwhile may come after that of the next one.
            self.announced = max(self.announced, consumer.generation)
            if consumer.joined.members and not consumer.joined.skip_assignment:
                leader = consumer.instance_id or consumer.member_id
                assert self.leaders.setdefault(consumer.generation, leader) == leader
        elif error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id, ErrorCode.not_coordinator):
            consumer.member_id, consumer.generation = "", -1
            consumer.endpoint = self.random.choice(self.endpoints)

    async def commit(self, at: int) -> None:
        consumer = self.consumers[at]
        self.last_offset += 1
        generation = consumer.generation
        error = await consumer.commit(self.last_offset, partition=at)
        if error is OK:
            assert generation < 0 or generation == self.announced, "a former generation commits nothing"
            self.possible[at] = {self.last_offset}
            self.acknowledged += 1
        elif error is AWAY:
            self.possible[at].add(self.last_offset)
        elif error is ErrorCode.unknown_member_id:
            consumer.member_id, consumer.generation = "", -1

    async def pass_time(self, delay_s: float) -> None:
        await settle()
        self.clock.advance(delay_s)
        await settle()

    async def check_positions(self) -> None:
        try:
            found = await self.random.choice(self.endpoints).committed(0, 1, 2)
        except GroupAnswerError as refused:
            if refused.error in (AWAY, ErrorCode.not_coordinator):
                return
            raise
        assert all(found[at] in possible for at, possible in enumerate(self.possible)), (found, self.possible)


@pytest.mark.parametrize("seed", range(12))
async def test_no_acknowledged_commit_is_lost(seed: int) -> None:
    world = FaultyWorld(seed)
    async with AsyncExitStack() as stack:
        for endpoint in world.endpoints:
            await stack.enter_async_context(endpoint.running())
        for _ in range(STEPS):
            await world.step()
        for joining in world.joining.values():
            joining.cancel()
        await asyncio.gather(*world.joining.values(), return_exceptions=True)
    assert world.acknowledged
    world.store.apply_faults.clear()
    async with AskedGroups(world.store).running() as endpoint:
        found = await endpoint.committed(0, 1, 2)
        assert all(found[at] in possible for at, possible in enumerate(world.possible))
        await world.store.land_late()
        consumer = FakeConsumer(endpoint, "dave")
        last_join = asyncio.create_task(consumer.join())
        await endpoint.pass_time(120.0, step_s=20.0)
        if last_join.done() and last_join.result() is OK:
            assert consumer.generation > world.announced
        last_join.cancel()
