"""Places of batches that were read, compared with the batches themselves."""

from dataclasses import dataclass
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import plain
from tierd.log import CheckedBatches, walk_checked
from tierd.model import RemoteLogSegmentId, TopicIdPartition
from tierd.tiering.reading.known_batches import BatchPlace, KnownBatches

PARTITION = TopicIdPartition(UUID(int=1), "orders", 0)


def segment(number: int = 1) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(PARTITION, UUID(int=number))


@dataclass
class Log:
    """Batches of one segment, with gaps between some of them as compaction leaves them."""

    batches: CheckedBatches

    @property
    def size_bytes(self) -> int:
        return self.batches.size_bytes

    def expected(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> BatchPlace | None:
        """Return the place of the batches that a read of the whole segment returns."""
        found = self.batches.between(offset, end_offset)
        found = found.within(max_bytes) or found[: int(at_least_one)]
        if not found:
            return None
        return BatchPlace(found.base_offsets[0], found.last_offsets[-1] + 1, found.positions[0], found.positions[-1])


def written(sizes: list[int], gaps: list[int]) -> Log:
    content, offset = b"", 10
    for count, gap in zip(sizes, gaps, strict=True):
        content += plain(offset, count, size=1100)
        offset += count + gap
    return Log(walk_checked(content, name="segment"))


@st.composite
def logs(draw: st.DrawFn) -> Log:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    gaps = draw(st.lists(st.sampled_from([0, 0, 0, 3]), min_size=len(sizes), max_size=len(sizes)))
    return written(sizes, gaps)


def find(
    known: KnownBatches, log: Log, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool
) -> BatchPlace | None:
    return known.find(
        segment(),
        offset,
        end_offset=end_offset,
        end_position=log.size_bytes,
        max_bytes=max_bytes,
        at_least_one=at_least_one,
    )


@given(log=logs(), data=st.data())
def test_place_is_that_of_the_batches_that_a_read_of_the_segment_returns(log: Log, data: st.DataObject) -> None:
    known, count = KnownBatches(capacity_bytes=1 << 20), len(log.batches)
    read = [False] * count
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, count - 1))
        stop = data.draw(st.integers(start + 1, count))
        known.add(segment(), log.batches[start:stop])
        read[start:stop] = [True] * (stop - start)
    for offset in range(10, log.batches.last_offsets[-1] + 3):
        query = (
            data.draw(st.integers(offset, offset + 40)),
            data.draw(st.integers(0, log.size_bytes + 10)),
        )
        at_least_one = data.draw(st.booleans())
        found = find(known, log, offset, *query, at_least_one=at_least_one)
        expected = log.expected(offset, *query, at_least_one=at_least_one)
        assert found in (expected, None)
        if all(read):
            assert found == expected


def test_batches_that_end_before_the_bound_are_not_given_unless_the_next_batch_is_known() -> None:
    log, known = written([2, 2, 2], [0, 0, 0]), KnownBatches(capacity_bytes=1 << 20)
    known.add(segment(), log.batches[:2])
    assert find(known, log, 10, 100, log.size_bytes, at_least_one=True) is None
    assert find(known, log, 10, 12, log.size_bytes, at_least_one=True) is not None
    known.add(segment(), log.batches[2:])
    place = find(known, log, 10, 100, log.size_bytes, at_least_one=True)
    assert place == BatchPlace(10, 16, 0, log.size_bytes)
    assert place.size_bytes == log.size_bytes


def test_offset_before_the_known_batches_may_lie_in_one_that_is_not_known() -> None:
    log, known = written([5, 5], [0, 0]), KnownBatches(capacity_bytes=1 << 20)
    known.add(segment(), log.batches[1:])
    assert find(known, log, 14, 100, 1 << 20, at_least_one=True) is None
    assert find(known, log, 15, 100, 1 << 20, at_least_one=True) is not None


def test_gap_between_known_batches_is_passed() -> None:
    log, known = written([2, 2], [5, 0]), KnownBatches(capacity_bytes=1 << 20)
    known.add(segment(), log.batches[:1])
    known.add(segment(), log.batches[1:])
    place = find(known, log, 13, 100, 1 << 20, at_least_one=True)
    assert place is not None
    assert place.base_offset == 17


def test_segment_used_longest_ago_is_forgotten_beyond_the_bound() -> None:
    log = written([1] * 20, [0] * 20)
    known = KnownBatches(capacity_bytes=4 * (512 + 20 * 24))
    for number in range(1, 5):
        known.add(segment(number), log.batches)
    assert find(known, log, 10, 100, 1 << 20, at_least_one=True) is not None
    known.add(segment(5), log.batches)
    assert known.size_bytes <= 4 * (512 + 20 * 24)
    assert find(known, log, 10, 100, 1 << 20, at_least_one=True) is not None
    found = known.find(
        segment(2), 10, end_offset=100, end_position=log.size_bytes, max_bytes=1 << 20, at_least_one=True
    )
    assert found is None


def test_small_batches_are_not_kept() -> None:
    known = KnownBatches(capacity_bytes=1 << 20)
    known.add(segment(), walk_checked(plain(10, 2) + plain(12, 2), name="segment"))
    assert known.size_bytes == 0


@given(reads=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 19), st.integers(1, 20)), max_size=40))
def test_places_stay_within_the_bound_whatever_is_read(reads: list[tuple[int, int, int]]) -> None:
    log, capacity = written([1] * 20, [0] * 20), 4000
    known = KnownBatches(capacity_bytes=capacity)
    for number, start, count in reads:
        known.add(segment(number), log.batches[start : start + count])
        assert known.size_bytes <= capacity
