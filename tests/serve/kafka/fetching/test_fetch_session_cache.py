"""Fetch sessions (KIP-227): clients that follow the protocol always know what the endpoint knows, within bounds."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from kio.schema.errors import ErrorCode

from tests.serve.kafka.fetching.fetch_endpoint import Want, fetch_request
from tierd.model import EpochEndOffset
from tierd.serve.kafka.fetching.fetch_demand import FetchDemand, FetchKey, PartitionFetch, fetch_demand
from tierd.serve.kafka.fetching.fetch_session import SessionOwner, SessionRefusal
from tierd.serve.kafka.fetching.fetch_session_cache import (
    MAX_SESSION_NUMBER,
    FetchSessionCache,
    FetchSessionLimits,
    FullFetch,
    IncrementalFetch,
)
from tierd.serve.kafka.fetching.partition_answer import PartitionAnswer

LIMITS = FetchSessionLimits(max_sessions=3, max_partitions=12, eviction_s=120.0)
KEYS = [FetchKey("orders", number) for number in range(6)]
OWNER = SessionOwner("User:alice", "plain", 1)
KEY_SETS = st.sets(st.sampled_from(KEYS), min_size=1)


def demand(
    keys: Iterable[FetchKey], *, session: tuple[int, int], forget: Iterable[FetchKey] = (), version: int = 12
) -> FetchDemand:
    wants = [Want(key.topic, key.partition, offset=3) for key in keys]
    request = fetch_request(wants, version=version, session=session, forget=tuple(forget))
    return fetch_demand(request)


def new_cache(limits: FetchSessionLimits = LIMITS) -> FetchSessionCache:
    return FetchSessionCache(limits, new_id=count(1).__next__)


@dataclass
class Client:
    """A client that follows KIP-227: it names what has changed, and believes what it was told last."""

    owner: SessionOwner
    session: tuple[int, int] = (0, 0)
    wanted: set[FetchKey] = field(default_factory=set)
    order: list[FetchKey] = field(default_factory=list)  # of the session, as the endpoint reads it
    known: dict[FetchKey, PartitionAnswer] = field(default_factory=dict)

    def lose_session(self) -> None:
        self.session = (self.session[0], 0)
        self.known.clear()
        self.order.clear()


class FetchSessionMachine(RuleBasedStateMachine):
    """Clients, partitions that change, time that passes, and a cache that is too small for all of them."""

    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.cache = new_cache()
        self.now_s = 1000.0
        self.connections = count(1)
        self.state = {key: PartitionAnswer(high_watermark=0, log_start_offset=0) for key in KEYS}

    @rule(target=clients, principal=st.sampled_from(["User:alice", "User:bob"]))
    def connect(self, principal: str) -> Client:
        return Client(SessionOwner(principal, "plain", next(self.connections)))

    @rule(key=st.sampled_from(KEYS), high_watermark=st.integers(0, 3), log_start=st.integers(0, 3))
    def move(self, key: FetchKey, high_watermark: int, log_start: int) -> None:
        self.state[key] = PartitionAnswer(high_watermark=high_watermark, log_start_offset=log_start)

    @rule(key=st.sampled_from(KEYS))
    def fail(self, key: FetchKey) -> None:
        self.state[key] = PartitionAnswer(ErrorCode.kafka_storage_error)

    @rule(key=st.sampled_from(KEYS))
    def append(self, key: FetchKey) -> None:
        self.state[key] = PartitionAnswer(high_watermark=4, log_start_offset=0, records=(b"records",))

    @rule(seconds=st.sampled_from([1.0, 60.0, 121.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(client=clients)
    def reconnect(self, client: Client) -> None:
        """Let a client come back on another connection: it asks for a new session, and closes the one that it had."""
        client.owner = SessionOwner(client.owner.principal, "plain", next(self.connections))
        client.lose_session()

    @rule(client=clients, wanted=KEY_SETS)
    def fetch(self, client: Client, wanted: set[FetchKey]) -> None:
        """Fetch as the session stands: everything at first, later only what has changed."""
        new, gone = wanted - client.wanted, client.wanted - wanted
        client.wanted = wanted
        if client.session[1] <= 0:
            self._full(client)
        else:
            self._incremental(client, new, gone)

    @rule(client=clients)
    def close(self, client: Client) -> None:
        opened = self._open(client, demand(client.wanted, session=(client.session[0], -1)))
        assert isinstance(opened, FullFetch)
        assert opened.finish({}, self.now_s).session_id == 0
        client.session = (0, 0)
        client.lose_session()

    @rule(client=clients, epoch=st.integers(1, 5))
    def send_a_request_of_another_epoch(self, client: Client, epoch: int) -> None:
        if client.session[0] and epoch != client.session[1]:
            opened = self._open(client, demand((), session=(client.session[0], epoch)))
            assert isinstance(opened, SessionRefusal)
            assert opened.error in (ErrorCode.invalid_fetch_session_epoch, ErrorCode.fetch_session_id_not_found)

    @rule(client=clients, epoch=st.integers(-1, 3))
    def use_a_session_of_another_principal(self, client: Client, epoch: int) -> None:
        stranger = SessionOwner("User:mallory", "plain", next(self.connections))
        before = self.cache.statistics().sessions
        opened = self.cache.open(demand((), session=(client.session[0], epoch)), stranger, self.now_s)
        assert isinstance(opened, FullFetch) or opened == SessionRefusal(ErrorCode.fetch_session_id_not_found)
        assert self.cache.statistics().sessions == before

    @invariant()
    def cache_is_within_its_bounds(self) -> None:
        statistics = self.cache.statistics()
        assert statistics.sessions <= LIMITS.max_sessions
        assert statistics.partitions <= LIMITS.max_partitions
        assert (statistics.sessions == 0) == (statistics.partitions == 0)

    def _open(self, client: Client, request: FetchDemand) -> FullFetch | IncrementalFetch | SessionRefusal:
        return self.cache.open(request, client.owner, self.now_s)

    def _full(self, client: Client) -> None:
        keys = sorted(client.wanted)
        opened = self._open(client, demand(keys, session=(client.session[0], 0)))
        assert isinstance(opened, FullFetch)
        answers = self._answers(opened.wanted)
        finished = opened.finish(answers, self.now_s)
        assert list(finished.told) == keys
        client.known = answers
        client.order = keys
        client.session = (finished.session_id, 1 if finished.session_id else 0)

    def _incremental(self, client: Client, new: set[FetchKey], gone: set[FetchKey]) -> None:
        opened = self._open(client, demand(sorted(new), session=client.session, forget=sorted(gone)))
        if isinstance(opened, SessionRefusal):
            assert opened.error is ErrorCode.fetch_session_id_not_found, "evicted, or too large"
            client.lose_session()
            return self._full(client)
        client.order = [key for key in client.order if key not in gone] + sorted(new)
        assert isinstance(opened, IncrementalFetch)
        assert list(opened.wanted) == client.order, "partitions are read in turn"
        answers = self._answers(opened.wanted)
        finished = opened.finish(answers, self.now_s)
        told = list(finished.told)
        assert told == [key for key in client.order if self._is_news(client, key)]
        client.known.update({key: answers[key] for key in told})
        for key in gone:
            client.known.pop(key, None)
        assert {key: self._facts(client.known[key]) for key in client.order} == {
            key: self._facts(self.state[key]) for key in client.order
        }, "the client knows all that the endpoint knows"
        client.order = [key for key in client.order if not answers[key].records] + [
            key for key in client.order if answers[key].records
        ]
        client.session = (client.session[0], client.session[1] + 1)
        return None

    def _answers(self, wanted: Iterable[FetchKey]) -> dict[FetchKey, PartitionAnswer]:
        return {key: self.state[key] for key in wanted}

    def _is_news(self, client: Client, key: FetchKey) -> bool:
        now, known = self.state[key], client.known.get(key)
        return known is None or bool(now.records) or bool(now.error) or self._facts(known) != self._facts(now)

    @staticmethod
    def _facts(answer: PartitionAnswer) -> tuple[int, int, int]:
        return answer.error, answer.high_watermark, answer.log_start_offset


TestFetchSessions = FetchSessionMachine.TestCase
TestFetchSessions.settings = settings(max_examples=40, stateful_step_count=25)


def open_session(
    cache: FetchSessionCache, keys: Iterable[FetchKey], *, owner: SessionOwner = OWNER, now_s: float = 0.0
) -> int:
    """Return the id of a new session; 0 without one."""
    opened = cache.open(demand(keys, session=(0, 0)), owner, now_s)
    assert isinstance(opened, FullFetch)
    answers = {key: PartitionAnswer(high_watermark=1, log_start_offset=0) for key in opened.wanted}
    return opened.finish(answers, now_s).session_id


def owner_of(connection_id: int) -> SessionOwner:
    return SessionOwner("User:alice", "plain", connection_id)


def test_session_epoch_after_the_largest_one_is_one() -> None:
    cache = new_cache()
    session_id = open_session(cache, KEYS[:1])
    opened = cache.open(demand((), session=(session_id, 1)), OWNER, 0.0)
    assert isinstance(opened, IncrementalFetch)
    opened.session.epoch = MAX_SESSION_NUMBER
    assert isinstance(cache.open(demand((), session=(session_id, MAX_SESSION_NUMBER)), OWNER, 0.0), IncrementalFetch)
    assert isinstance(cache.open(demand((), session=(session_id, 1)), OWNER, 0.0), IncrementalFetch)


@pytest.mark.parametrize(("first", "later"), [(12, 13), (13, 12)])
def test_session_that_named_topics_otherwise_is_refused(first: int, later: int) -> None:
    cache = new_cache()
    opened = cache.open(demand(KEYS[:1], session=(0, 0), version=first), OWNER, 0.0)
    assert isinstance(opened, FullFetch)
    session_id = opened.finish({KEYS[0]: PartitionAnswer()}, 0.0).session_id
    refused = cache.open(demand((), session=(session_id, 1), version=later), OWNER, 0.0)
    assert refused == SessionRefusal(ErrorCode.fetch_session_topic_id_error)


def test_session_without_partitions_is_closed() -> None:
    cache = new_cache()
    session_id = open_session(cache, KEYS[:1])
    opened = cache.open(demand((), session=(session_id, 1), forget=KEYS[:1]), OWNER, 0.0)
    assert isinstance(opened, FullFetch)
    assert opened.finish({}, 0.0).session_id == 0
    assert cache.statistics().sessions == 0


def test_request_without_partitions_makes_no_session() -> None:
    assert open_session(new_cache(), ()) == 0


def test_answer_to_a_request_that_a_later_one_overtook_is_an_error() -> None:
    cache = new_cache()
    session_id = open_session(cache, KEYS[:1])
    slow = cache.open(demand((), session=(session_id, 1)), OWNER, 0.0)
    quick = cache.open(demand((), session=(session_id, 2)), OWNER, 0.0)
    assert isinstance(slow, IncrementalFetch)
    assert isinstance(quick, IncrementalFetch)
    assert slow.finish({}, 0.0).error is ErrorCode.invalid_fetch_session_epoch
    assert quick.finish({}, 0.0).error is ErrorCode.none


def test_client_takes_its_session_along_to_another_connection() -> None:
    cache = new_cache()
    session_id = open_session(cache, KEYS[:1])
    assert isinstance(cache.open(demand((), session=(session_id, 1)), owner_of(2), 0.0), IncrementalFetch)


def test_new_session_of_a_connection_takes_the_place_of_its_earlier_one() -> None:
    cache = new_cache()
    first = open_session(cache, KEYS[:1])
    second = open_session(cache, KEYS[:2])
    assert cache.statistics().sessions == 1
    assert cache.open(demand((), session=(first, 1)), OWNER, 0.0) == SessionRefusal(
        ErrorCode.fetch_session_id_not_found
    )
    assert isinstance(cache.open(demand((), session=(second, 1)), OWNER, 0.0), IncrementalFetch)


def test_full_cache_evicts_the_longest_unused_session_after_its_time() -> None:
    cache = new_cache()
    ids = [open_session(cache, KEYS[:1], owner=owner_of(at), now_s=at) for at in (1, 2, 3)]
    assert open_session(cache, KEYS[:1], owner=owner_of(4), now_s=100.0) == 0, "all are in use"
    cache.open(demand((), session=(ids[0], 1)), owner_of(1), 100.0)
    assert open_session(cache, KEYS[:1], owner=owner_of(5), now_s=122.5) > 0
    assert cache.open(demand((), session=(ids[1], 1)), owner_of(2), 122.5) == SessionRefusal(
        ErrorCode.fetch_session_id_not_found
    )
    assert cache.statistics().evictions == 1


def test_session_whose_client_has_gone_away_expires() -> None:
    cache = new_cache()
    first, second = (open_session(cache, KEYS[:1], owner=owner_of(at), now_s=at) for at in (1, 2))
    expiry_s = FetchSessionLimits().expiry_s
    cache.open(demand((), session=(first, 1)), owner_of(1), expiry_s)
    assert cache.statistics().sessions == 2
    found = cache.open(demand((), session=(second, 1)), owner_of(2), 2 + expiry_s)
    assert found == SessionRefusal(ErrorCode.fetch_session_id_not_found)
    assert (cache.statistics().sessions, cache.statistics().evictions) == (1, 0)


def test_larger_session_evicts_a_smaller_one_that_is_not_new() -> None:
    cache = new_cache()
    for at in (1, 2, 3):
        session_id = open_session(cache, KEYS[: at + 1], owner=owner_of(at))
        cache.open(demand((), session=(session_id, 1)), owner_of(at), 110.0)
    assert open_session(cache, KEYS[:3], owner=owner_of(4), now_s=119.0) == 0, "all are new"
    assert open_session(cache, KEYS[:2], owner=owner_of(5), now_s=125.0) == 0, "none is smaller"
    assert open_session(cache, KEYS[:3], owner=owner_of(6), now_s=125.0) > 0
    assert cache.statistics().partitions == 3 + 4 + 3


def test_no_session_is_evicted_when_that_would_not_make_enough_room() -> None:
    cache = new_cache(FetchSessionLimits(max_sessions=3, max_partitions=5, eviction_s=120.0))
    for at in (1, 2):
        session_id = open_session(cache, KEYS[:2], owner=owner_of(at))
        cache.open(demand((), session=(session_id, 1)), owner_of(at), 110.0)
    assert open_session(cache, KEYS, owner=owner_of(3), now_s=125.0) == 0
    assert cache.statistics().sessions == 2


def test_session_that_grows_beyond_the_bound_of_all_partitions_is_closed() -> None:
    cache = new_cache(FetchSessionLimits(max_sessions=3, max_partitions=4, eviction_s=120.0))
    session_id = open_session(cache, KEYS[:2])
    open_session(cache, KEYS[:1], owner=owner_of(2))
    grown = cache.open(demand(KEYS[2:4], session=(session_id, 1)), OWNER, 0.0)
    assert grown == SessionRefusal(ErrorCode.fetch_session_id_not_found)
    assert cache.statistics().partitions == 1


def test_divergence_is_told_though_nothing_else_has_changed() -> None:
    cache = new_cache()
    session_id = open_session(cache, KEYS[:1])
    opened = cache.open(demand((), session=(session_id, 1)), OWNER, 0.0)
    assert isinstance(opened, IncrementalFetch)
    answer = PartitionAnswer(high_watermark=1, log_start_offset=0)
    assert list(opened.finish({KEYS[0]: answer}, 0.0).told) == []
    assert list(opened.finish({KEYS[0]: answer.diverging_at(EpochEndOffset(1, 5))}, 0.0).told) == KEYS[:1]


def test_partition_of_a_session_keeps_its_place_until_the_client_names_another() -> None:
    cache = new_cache()
    session_id = open_session(cache, KEYS[:2])
    cache.open(demand((), session=(session_id, 1)), OWNER, 0.0)
    moved = fetch_demand(fetch_request([Want("orders", 1, offset=9)], version=12, session=(session_id, 2)))
    opened = cache.open(moved, OWNER, 0.0)
    assert opened.wanted == {  # type: ignore[union-attr]
        KEYS[0]: PartitionFetch(3, 1 << 20),
        KEYS[1]: PartitionFetch(9, 1 << 20),
    }
