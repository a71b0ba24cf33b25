"""Places of a port: their number, their share per peer, and the connection cut for another. No sockets, no time."""

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tierd.ports.connection_gate import CONNECTIONS_WHEN_SHORT, Connection, ConnectionGate, ConnectionLimits, peer_of

LIMITS = ConnectionLimits(connections=6, per_peer=3, request_timeout_s=10, answer_timeout_s=30)


class Transport:
    """Transport with only the methods that a gate uses."""

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


class Descriptors:
    """Descriptor state of the process for a gate."""

    def __init__(self) -> None:
        self.are_short = False


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def descriptors() -> Descriptors:
    return Descriptors()


@pytest.fixture
def gate(clock: FakeClock, descriptors: Descriptors) -> ConnectionGate:
    return ConnectionGate(LIMITS, clock=clock, is_short=lambda: descriptors.are_short)


def admitted(gate: ConnectionGate, clock: FakeClock, peer: str) -> Connection:
    connection = gate.admit(peer)
    assert connection is not None
    clock.advance(0.1)
    return connection


def test_gate_cuts_the_longest_waiting_connection_of_a_peer_above_its_share(
    gate: ConnectionGate, clock: FakeClock
) -> None:
    first, *others = (admitted(gate, clock, "a") for _ in range(4))
    assert first.is_cut
    assert not any(each.is_cut for each in others)
    assert gate.connections == 3


def test_full_gate_cuts_a_connection_of_the_peer_with_most_connections(gate: ConnectionGate, clock: FakeClock) -> None:
    lone = admitted(gate, clock, "probe")
    many = [admitted(gate, clock, "a") for _ in range(3)]
    few = [admitted(gate, clock, "b") for _ in range(2)]
    admitted(gate, clock, "c")
    assert [each.is_cut for each in many] == [True, False, False]
    assert not any(each.is_cut for each in (lone, *few))


def test_full_gate_cuts_connections_that_never_had_an_answer_first(gate: ConnectionGate, clock: FakeClock) -> None:
    known = [admitted(gate, clock, "a") for _ in range(3)]
    for each in known:
        gate.begin_answer(each)
        gate.begin_request(each)
    unknown = [admitted(gate, clock, f"{n}") for n in range(6)]
    assert not any(each.is_cut for each in known)
    assert [each.is_cut for each in unknown] == [True, True, True, False, False, False]


def test_answer_that_may_yield_is_cut_for_a_peer_with_fewer_connections(gate: ConnectionGate, clock: FakeClock) -> None:
    held = [admitted(gate, clock, peer) for peer in "aaabbb"]
    for each in held:
        gate.begin_answer(each, may_yield=True)
        clock.advance(0.1)
    assert gate.admit("a") is None
    gate.begin_answer(admitted(gate, clock, "c"))
    assert [each.is_cut for each in held] == [True, False, False, False, False, False]
    gate.begin_answer(admitted(gate, clock, "c"))
    assert [each.is_cut for each in held] == [True, False, False, True, False, False]
    assert gate.admit("c") is None
    assert gate.refused == 2


def test_gate_refuses_a_peer_whose_connections_are_all_being_answered(gate: ConnectionGate, clock: FakeClock) -> None:
    for _ in range(3):
        gate.begin_answer(admitted(gate, clock, "a"))
    assert gate.admit("a") is None
    assert gate.refused == 1
    assert gate.admit("b") is not None


def test_gate_keeps_four_connections_and_cuts_waiting_ones_while_descriptors_are_short(
    gate: ConnectionGate, clock: FakeClock, descriptors: Descriptors
) -> None:
    connections = [admitted(gate, clock, str(n)) for n in range(6)]
    gate.begin_answer(connections[0])
    descriptors.are_short = True
    admitted(gate, clock, "probe")
    assert gate.connections == CONNECTIONS_WHEN_SHORT
    assert not connections[0].is_cut


def test_gate_cuts_a_connection_at_the_deadline_of_its_state(gate: ConnectionGate, clock: FakeClock) -> None:
    waiting, answered = gate.admit("a"), gate.admit("a")
    assert waiting is not None
    assert answered is not None
    gate.begin_answer(answered)
    clock.advance(10)
    gate.cut_overdue()
    assert (waiting.is_cut, answered.is_cut) == (True, False)
    clock.advance(20)
    gate.cut_overdue()
    assert answered.is_cut


def test_connection_cut_before_its_transport_is_attached_aborts_the_transport(gate: ConnectionGate) -> None:
    connection = gate.admit("a")
    assert connection is not None
    gate.cut_waiting()
    transport = Transport()
    connection.attach(cast("asyncio.WriteTransport", transport))
    assert transport.is_aborted


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(["admit", "answer", "leave", "short"])), max_size=60)
)
def test_gate_keeps_its_limits_and_connections_that_are_being_answered(actions: list[tuple[str, str]]) -> None:
    clock, descriptors = FakeClock(), Descriptors()
    gate = ConnectionGate(LIMITS, clock=clock, is_short=lambda: descriptors.are_short)
    present: list[Connection] = []
    for peer, action in actions:
        answering = [each for each in present if each.is_answering]
        match action:
            case "admit":
                connection = gate.admit(peer)
                assert not any(each.is_cut for each in answering)
                present = [each for each in present if not each.is_cut] + ([connection] if connection else [])
            case "answer" if present:
                gate.begin_answer(present[0])
            case "leave" if present:
                gate.leave(present.pop())
            case "short":
                descriptors.are_short = not descriptors.are_short
        assert gate.connections == len(present) <= LIMITS.connections
        assert max((sum(each.peer == name for each in present) for name in "abcde"), default=0) <= LIMITS.per_peer


def test_peer_is_an_ipv4_address_or_an_ipv6_network() -> None:
    assert peer_of("192.0.2.7") == "192.0.2.7"
    assert peer_of("2001:db8::1") == peer_of("2001:db8::ffff:2") != peer_of("2001:db8:0:1::1")
    assert peer_of("fe80::1%eth0") == "fe80::/64"


def test_loopback_addresses_are_one_peer() -> None:
    assert peer_of("127.0.0.1") == peer_of("127.255.3.4") == peer_of("::1") != peer_of("128.0.0.1")
