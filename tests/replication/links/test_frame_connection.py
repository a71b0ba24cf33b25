"""Frames of a connection, however the bytes arrive; memory of large frames; links of nodes."""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import DamagedMessageError
from tierd.replication.links.frame_connection import HEAD_BUFFER_BYTES, FrameConnection
from tierd.replication.links.frame_memory import UNCOUNTED_BYTES, FrameMemory
from tierd.replication.links.link_registry import LinkRegistry
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity

SIZES = st.sampled_from([8, 9, 100, 1000, 65_531, 65_532, 65_533, 65_540, 70_000, 140_000])
OWN_NODE = 0


class MemoryTransport(asyncio.Transport):
    """Transport of a test, which hands bytes over as a socket does."""

    def __init__(self, connection: FrameConnection) -> None:
        super().__init__()
        self._connection = connection
        self.is_paused = False
        self.is_ended = False

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_ended

    def abort(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._connection.connection_lost(None)

    def deliver(self, data: memoryview) -> int:
        """Hand over as much as the connection has room for, and return the number of bytes."""
        assert not self.is_paused
        place = self._connection.get_buffer(-1)
        count = min(len(place), len(data))
        assert count
        place[:count] = data[:count]
        self._connection.buffer_updated(count)
        return count


class Keeper:
    """Receiver that holds the connection after some frames."""

    def __init__(self, *, holds_after: frozenset[int] = frozenset()) -> None:
        self.frames: list[bytes] = []
        self.is_ended = False
        self._holds_after = holds_after
        self.connection: FrameConnection | None = None

    def on_frame(self, frame: memoryview) -> None:
        assert frame.readonly
        self.frames.append(bytes(frame))
        if len(self.frames) in self._holds_after and self.connection is not None:
            self.connection.hold()

    def on_end(self) -> None:
        self.is_ended = True


def connected(keeper: Keeper, memory: FrameMemory | None = None) -> tuple[FrameConnection, MemoryTransport]:
    """Return a connection with its transport."""
    rest: dict[str, Any] = {} if memory is None else {"memory": memory}
    connection = FrameConnection(keeper, max_frame_bytes=1 << 20, **rest)
    keeper.connection = connection
    transport = MemoryTransport(connection)
    connection.connection_made(transport)
    return connection, transport


def framed(sizes: list[int]) -> tuple[list[bytes], memoryview]:
    """Return frames of these sizes, and the bytes of all."""
    frames = [bytes([number % 251 + 1]) * size for number, size in enumerate(sizes)]
    return frames, memoryview(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))


@given(st.lists(SIZES, max_size=6), st.lists(st.integers(1, 70_000), max_size=30), st.frozensets(st.integers(1, 6)))
def test_frames_are_the_same_however_their_bytes_arrive(
    sizes: list[int], pieces: list[int], holds: frozenset[int]
) -> None:
    frames, left = framed(sizes)
    keeper = Keeper(holds_after=holds)
    connection, transport = connected(keeper)
    turns = iter(pieces)
    while left:
        if transport.is_paused:
            connection.resume()
        else:
            left = left[transport.deliver(left[: next(turns, 1 << 20)]) :]
    while len(keeper.frames) < len(frames):
        connection.resume()
    assert keeper.frames == frames
    assert not transport.is_ended


@given(st.lists(SIZES, max_size=3), st.one_of(st.integers(-(1 << 31), 7), st.integers((1 << 20) + 1, (1 << 31) - 1)))
def test_size_that_no_frame_has_ends_the_connection_behind_the_frames_before_it(sizes: list[int], size: int) -> None:
    frames, data = framed(sizes)
    keeper = Keeper()
    connection, transport = connected(keeper)
    left = memoryview(bytes(data) + size.to_bytes(4, "big", signed=True) + bytes(100))
    while left and not transport.is_ended:
        left = left[transport.deliver(left) :]
    assert keeper.frames == frames
    assert transport.is_ended
    assert keeper.is_ended
    assert isinstance(connection.failure, DamagedMessageError)


def test_connection_that_finds_no_memory_reads_nothing_until_there_is_some() -> None:
    memory = FrameMemory(100_000)
    assert memory.take(90_000, lambda: None)
    keeper = Keeper()
    _, transport = connected(keeper, memory)
    frames, left = framed([70_000])
    left = left[transport.deliver(left) :]
    assert transport.is_paused
    memory.give_back(90_000)
    while left:
        left = left[transport.deliver(left) :]
    assert keeper.frames == frames
    assert memory.used_bytes == 70_000


@given(st.lists(SIZES, min_size=1, max_size=4), st.data())
def test_connection_that_ends_anywhere_gives_its_memory_back(sizes: list[int], data: st.DataObject) -> None:
    memory = FrameMemory(data.draw(st.sampled_from([1, 150_000, 1 << 20])))
    keeper = Keeper()
    connection, transport = connected(keeper, memory)
    _, whole = framed(sizes)
    left = whole[: data.draw(st.integers(0, len(whole)))]
    while left and not transport.is_paused:
        left = left[transport.deliver(left) :]
    connection.abort()
    for frame in keeper.frames:
        memory.give_back(len(frame))
    assert memory.used_bytes == 0
    assert memory.waiting == 0


@given(st.lists(st.tuples(st.integers(1, 200_000), st.booleans()), max_size=40), st.integers(1, 400_000))
def test_memory_is_never_above_its_bound_but_for_one_frame_alone(
    steps: list[tuple[int, bool]], limit_bytes: int
) -> None:
    memory, held, granted = FrameMemory(limit_bytes), Counter[int](), Counter[int]()

    def waiter(number: int, size: int) -> None:
        granted[number] += 1
        held[number] = size

    for number, (size, is_release) in enumerate(steps):
        if is_release and held:
            oldest, held_bytes = next(iter(held.items()))
            del held[oldest]
            memory.give_back(held_bytes)
        elif memory.take(size, lambda number=number, size=size: waiter(number, size)):  # type: ignore[misc]
            held[number] = size
        counted = [each for each in held.values() if each > UNCOUNTED_BYTES]
        assert memory.used_bytes == sum(counted)
        assert memory.used_bytes <= limit_bytes or len(counted) == 1
    assert max(granted.values(), default=0) <= 1
    while held:
        oldest, held_bytes = next(iter(held.items()))
        del held[oldest]
        memory.give_back(held_bytes)
    assert (memory.used_bytes, memory.waiting) == (0, 0)


class Link:
    """Link that knows only if it was ended."""

    def __init__(self) -> None:
        self.is_ended = False

    def abort(self) -> None:
        self.is_ended = True


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.booleans()), max_size=30))
def test_node_has_links_of_its_newest_process_only_and_no_more_than_it_may(
    arrivals: list[tuple[int, int, bool]],
) -> None:
    registry = LinkRegistry(node_id=OWN_NODE, links_per_node=2)
    admitted: list[tuple[Link, PeerIdentity]] = []
    for node_id, epoch, leaves in arrivals:
        link, peer = Link(), PeerIdentity(node_id, epoch)
        living = [(each, of) for each, of in admitted if of.node_id == node_id and not each.is_ended]
        code = registry.admit(link, peer)
        if node_id == OWN_NODE:
            assert code is PushErrorCode.INVALID_REQUEST
            continue
        is_stale = any(of.process_epoch > epoch for _, of in living)
        assert code is (PushErrorCode.STALE_BROKER_EPOCH if is_stale else PushErrorCode.NONE)
        if code is PushErrorCode.NONE:
            admitted.append((link, peer))
        after = [(each, of) for each, of in admitted if of.node_id == node_id and not each.is_ended]
        assert len(after) <= 2
        assert len({of.process_epoch for _, of in after}) == 1
        assert registry.nodes[node_id] == len(after)
        if leaves:
            gone, identity = after[0]
            gone.is_ended = True
            registry.remove(gone, identity)
            registry.remove(gone, identity)
    living_nodes = Counter(of.node_id for each, of in admitted if not each.is_ended)
    assert registry.nodes == living_nodes


def test_head_buffer_is_as_large_as_the_frames_that_take_no_memory() -> None:
    assert HEAD_BUFFER_BYTES == UNCOUNTED_BYTES
