"""A group keeps its promises whatever its clients, its timers, its store and its coordinators do."""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kio.schema.errors import ErrorCode

from tierd.serve.kafka.groups.protocol.classic_group import ClassicGroup
from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup
from tierd.serve.kafka.groups.protocol.group_body import MembershipLimits
from tierd.serve.kafka.groups.protocol.group_effects import (
    Answer,
    GroupEffect,
    GroupNote,
    JoinAnswer,
    PlainAnswer,
    StoreRow,
    SyncAnswer,
)
from tierd.serve.kafka.groups.protocol.group_events import (
    CommitRequested,
    DeleteRequested,
    GroupEvent,
    GroupGone,
    HeartbeatReceived,
    JoinProtocol,
    JoinRequested,
    LeaveRequested,
    LeavingMember,
    Moment,
    RowNotStored,
    RowStored,
    SyncRequested,
    TimePassed,
)
from tierd.serve.kafka.groups.protocol.group_state import ClassicGroupState

LIMITS = MembershipLimits(max_members=4)
_IDS = st.integers(0, 7)
_INSTANCE = st.sampled_from((None, None, "i1", "i2"))
_PROTOCOLS = st.sampled_from(("range", "sticky", "range sticky", "sticky range"))
EMPTY, STABLE = ClassicGroupState.EMPTY, ClassicGroupState.STABLE


class GroupMachine(RuleBasedStateMachine):
    """One group, its store, and clients that know each other's member ids and generations."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.stored = DurableGroup(empty_since_ms=0)
        self.asked: DurableGroup | None = None  # a write that is under way
        self.group = ClassicGroup(self.stored, LIMITS, self.now())
        self.last_waiter = 0
        self.joins: dict[int, JoinRequested] = {}
        self.syncs: dict[int, SyncRequested] = {}
        self.given: list[str] = [""]  # member ids that any client was ever told
        self.announced = 0
        self.leaders: dict[int, str] = {}  # by generation: instance id, or else member id
        self.answer: object = None  # of the last request

    def now(self) -> Moment:
        return Moment(self.now_s, round(self.now_s * 1000))

    def step(self, event: GroupEvent) -> None:
        for effect in self.group.step(event, self.now()):
            self.take(effect)

    def take(self, effect: GroupEffect) -> None:
        match effect:
            case StoreRow():
                assert self.asked is None, "one write at a time"
                assert effect.row.generation >= self.stored.generation
                self.asked = effect.row
            case GroupNote(event="generation_begun"):
                assert effect.generation > self.announced
                self.announced = effect.generation
            case Answer():
                self.answer = effect.answer
                self.check_answer(effect.waiter)

    def check_answer(self, waiter: int) -> None:
        match self.answer:
            case JoinAnswer() as answer:
                request = self.joins.pop(waiter)  # a second answer to the same request fails here
                if answer.error in (ErrorCode.none, ErrorCode.member_id_required):
                    self.given.append(answer.member_id)
                if answer.error is ErrorCode.none:
                    self.check_joined(request, answer)
            case SyncAnswer() as answer:
                request_of_sync = self.syncs.pop(waiter)
                if answer.error is ErrorCode.none:
                    assert request_of_sync.generation == self.group.generation
                    assert self.group.state is STABLE

    def check_joined(self, request: JoinRequested, answer: JoinAnswer) -> None:
        assert answer.generation == self.announced <= self.stored.generation, "first durable, then visible"
        if request.instance_id is not None:
            stored = {each.instance_id: each.member_id for each in self.stored.static_members}
            assert stored[request.instance_id] == answer.member_id, "its place outlives a restart"
        assert answer.protocol_name in {each.name for each in request.protocols}
        if answer.members:
            member = next(each for each in self.group.members if each.member_id == answer.member_id)
            leader = member.instance_id or member.member_id
            assert self.leaders.setdefault(answer.generation, leader) == leader, "one leader in a generation"
            assert {each.member_id for each in answer.members} == {each.member_id for each in self.group.members}

    def waiter(self) -> int:
        self.last_waiter += 1
        return self.last_waiter

    def member_id(self, number: int) -> str:
        """Return a member id: the members' own are likelier than those that are gone."""
        present = [each.member_id for each in self.group.members]
        ids = [*present, *self.given[-1:], "never-given"]
        return ids[number % len(ids)]

    @rule(
        number=_IDS,
        is_new=st.booleans(),
        instance=_INSTANCE,
        protocols=_PROTOCOLS,
        needs_id=st.booleans(),
        skips=st.booleans(),
        session_s=st.sampled_from((6.0, 30.0)),
    )
    def join(
        self,
        *,
        instance: str | None,
        protocols: str,
        number: int = 0,
        is_new: bool = True,
        needs_id: bool = True,
        skips: bool = True,
        session_s: float = 30.0,
    ) -> None:
        request = JoinRequested(
            waiter=self.waiter(),
            member_id="" if is_new else self.member_id(number),
            new_member_id=f"member-{self.last_waiter}",
            instance_id=instance,
            client_id="client",
            client_host="host",
            session_timeout_s=session_s,
            rebalance_timeout_s=20.0,
            protocol_type="consumer",
            protocols=tuple(JoinProtocol(each, b"") for each in protocols.split()),
            needs_member_id=needs_id,
            may_skip_assignment=skips,
        )
        self.joins[request.waiter] = request
        self.step(request)

    @initialize(instances=st.lists(st.sampled_from((None, "i1", "i2")), max_size=3))
    def begin_with_members(self, instances: list[str | None]) -> None:
        for instance in instances:
            self.join(instance=instance, protocols="range sticky", needs_id=False)
        if instances:
            self.wait(7.0)
            self.become_stable("range sticky")

    @precondition(lambda self: len(self.group.members) > 0)
    @rule(protocols=_PROTOCOLS)
    def all_join_again(self, protocols: str) -> None:
        for number, member in enumerate(self.group.members):
            if self.is_member(member.member_id):
                self.join(instance=member.instance_id, protocols=protocols, number=number, is_new=False)

    @precondition(lambda self: len(self.group.members) > 0)
    @rule(protocols=_PROTOCOLS)
    def generation_begins(self, protocols: str) -> None:
        self.all_join_again(protocols)
        while self.asked is not None:
            self.write_succeeds()

    @precondition(lambda self: self.group.state is ClassicGroupState.COMPLETING_REBALANCE)
    @rule()
    def last_member_asks_for_its_assignment(self) -> None:
        self.sync(len(self.group.members) - 1, None, 0)

    @precondition(lambda self: len(self.group.members) > 0)
    @rule(protocols=_PROTOCOLS)
    def become_stable(self, protocols: str) -> None:
        if self.group.state is ClassicGroupState.PREPARING_REBALANCE:
            self.generation_begins(protocols)
        for number in range(len(self.group.members)):
            self.sync(number, None, 0)

    @precondition(lambda self: any(each.instance_id for each in self.group.members))
    @rule(skips=st.booleans())
    def static_member_comes_back(self, skips: bool) -> None:
        member = next(each for each in self.group.members if each.instance_id is not None)
        self.join(instance=member.instance_id, protocols="range sticky", skips=skips)

    @rule(number=_IDS, instance=_INSTANCE, behind=st.sampled_from((0, 0, 0, 1)))
    def sync(self, number: int, instance: str | None, behind: int) -> None:
        request = SyncRequested(
            waiter=self.waiter(),
            member_id=self.member_id(number),
            instance_id=instance,
            generation=self.announced - behind,
            protocol_type=None,
            protocol_name=None,
            assignments={each.member_id: b"x" for each in self.group.members},
        )
        self.syncs[request.waiter] = request
        self.step(request)

    @rule(number=_IDS, behind=st.sampled_from((0, 0, 1)))
    def beat(self, number: int, behind: int) -> None:
        generation = self.announced - behind
        event = HeartbeatReceived(
            waiter=self.waiter(), member_id=self.member_id(number), instance_id=None, generation=generation
        )
        self.step(event)
        assert isinstance(self.answer, PlainAnswer)
        is_alive = self.answer.error in (ErrorCode.none, ErrorCode.rebalance_in_progress)
        assert is_alive == (self.is_member(event.member_id) and generation == self.group.generation)

    @rule(number=_IDS, is_simple=st.booleans(), behind=st.sampled_from((0, 0, 1)))
    def commit(self, number: int, is_simple: bool, behind: int) -> None:
        event = CommitRequested(
            waiter=self.waiter(),
            member_id="" if is_simple else self.member_id(number),
            instance_id=None,
            generation=-1 if is_simple else self.announced - behind,
        )
        self.step(event)
        assert isinstance(self.answer, PlainAnswer)
        if self.answer.error is ErrorCode.none:
            is_current = self.is_member(event.member_id) and event.generation == self.announced
            assert is_current or (event.generation < 0 and self.group.state is EMPTY)

    @rule(number=_IDS, instance=_INSTANCE, is_nameless=st.booleans())
    def leave(self, number: int, instance: str | None, is_nameless: bool) -> None:
        leaving = LeavingMember("" if is_nameless else self.member_id(number), instance)
        self.step(LeaveRequested(self.waiter(), (leaving,)))

    @rule()
    def delete(self) -> None:
        self.step(DeleteRequested(self.waiter()))
        assert isinstance(self.answer, PlainAnswer)
        assert (self.answer.error is ErrorCode.none) == (self.group.state is EMPTY)

    @rule(delay_s=st.sampled_from((0.5, 3.0, 7.0, 25.0)))
    def wait(self, delay_s: float) -> None:
        end_s = self.now_s + delay_s
        while self.group.wake_at_s <= end_s:
            self.now_s = max(self.now_s, self.group.wake_at_s)
            self.step(TimePassed())
            assert self.group.wake_at_s > self.now_s, "the group is never woken twice at one moment"
        self.now_s = end_s

    @precondition(lambda self: self.asked is not None)
    @rule()
    def write_succeeds(self) -> None:
        assert self.asked is not None
        self.stored, self.asked = self.asked, None
        self.step(RowStored(self.stored))

    @precondition(lambda self: self.asked is not None)
    @rule(has_landed=st.booleans())
    def write_fails(self, has_landed: bool) -> None:
        assert self.asked is not None
        if has_landed:
            self.stored = self.asked
        self.asked = None
        self.step(RowNotStored())
        if has_landed:
            self.step(RowStored(self.stored))  # as it is read back before the next write

    @rule(has_landed=st.booleans())
    def another_daemon_takes_over(self, has_landed: bool) -> None:
        if self.asked is not None and has_landed:
            self.stored = self.asked
        self.step(GroupGone("another daemon"))
        assert not self.joins
        assert not self.syncs
        self.asked = None
        self.group = ClassicGroup(self.stored, LIMITS, self.now())
        assert self.group.generation >= self.announced

    def is_member(self, member_id: str) -> bool:
        return any(each.member_id == member_id for each in self.group.members)

    @invariant()
    def members_are_consistent(self) -> None:
        instances = [each.instance_id for each in self.group.members if each.instance_id is not None]
        assert len(instances) == len(set(instances))
        ids = [each.member_id for each in self.group.members]
        assert (self.group.leader_id in ids) == bool(ids)
        assert not ids or self.group.state is not EMPTY

    @invariant()
    def waiting_requests_are_those_of_members(self) -> None:
        assert set(self.joins) == _numbers(each.join_waiter for each in self.group.members)
        assert set(self.syncs) == _numbers(each.sync_waiter for each in self.group.members)
        assert not self.joins or self.group.state in (ClassicGroupState.PREPARING_REBALANCE, STABLE)
        assert not self.syncs or self.group.state is ClassicGroupState.COMPLETING_REBALANCE

    def teardown(self) -> None:
        """Without further requests, and with a store that answers, every client is answered, and the group is empty."""
        for _ in range(40):
            if self.asked is not None:
                self.write_succeeds()
            self.wait(25.0)
        assert not self.joins
        assert not self.syncs
        assert self.group.state is EMPTY
        assert self.group.is_idle
        assert (self.stored.generation, self.stored.static_members) == (self.group.generation, ())


def _numbers(waiters: Iterable[int | None]) -> set[int]:
    return {each for each in waiters if each is not None}


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestGroupStateMachine = GroupMachine.TestCase
