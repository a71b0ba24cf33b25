"""Limits of an answer (KIP-74): reads in order and several at once, against the loop of a broker."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tierd.serve.kafka.fetching.fetch_plan import FetchPlan, PlannedRead, ReadLimit, memory_bytes


@dataclass(frozen=True)
class Batches:
    """A partition of a test: sizes of its batches, and the client's limit."""

    sizes: tuple[int, ...]
    max_bytes: int
    in_memory: bool = False
    is_pending: bool = False

    def read(self, max_bytes: int, *, at_least_one: bool) -> int:
        if self.is_pending:
            return 0
        total = 0
        for size in self.sizes:
            if total + size > max_bytes and not (at_least_one and not total):
                break
            total += size
        return total

    @property
    def limit(self) -> ReadLimit:
        return ReadLimit(self.max_bytes, self.in_memory)


def partitions(*, in_memory: bool = False) -> st.SearchStrategy[list[Batches]]:
    batches = st.builds(
        Batches,
        st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple),
        st.integers(0, 60),
        st.booleans() if in_memory else st.just(False),
        st.integers(0, 4).map(lambda drawn: drawn == 0),
    )
    return st.lists(batches, min_size=1, max_size=8)


def broker_sizes(parts: list[Batches], max_bytes: int) -> list[int]:
    """Return the sizes that a broker answers: one partition after the other."""
    left, has_records, sizes = max_bytes, False, []
    for part in parts:
        size = part.read(min(part.max_bytes, left), at_least_one=not has_records)
        has_records = has_records or size > 0
        left = max(0, left - size)
        sizes.append(size)
    return sizes


def run(plan: FetchPlan, parts: list[Batches], *, at_once: int, choose: list[int]) -> dict[int, int]:
    """Carry out a plan with up to ``at_once`` reads; ``choose`` says which of the running ones ends next."""
    running: list[PlannedRead] = []
    sizes: dict[int, int] = {}
    picks = iter(choose)
    while True:
        while len(running) < at_once and (read := plan.next_read()) is not None:
            running.append(read)
        if not running:
            return sizes
        read = running.pop(next(picks, 0) % len(running))
        part = parts[read.index]
        sizes[read.index] = part.read(read.max_bytes, at_least_one=read.at_least_one)
        plan.finished(read, sizes[read.index], may_be_too_large=not part.is_pending)


@given(partitions(), st.integers(0, 200))
def test_reads_one_after_the_other_return_what_a_broker_returns(parts: list[Batches], max_bytes: int) -> None:
    plan = FetchPlan([part.limit for part in parts], max_bytes=max_bytes, memory_bytes=0)
    sizes = run(plan, parts, at_once=1, choose=[])
    kept = plan.kept()
    assert [sizes.get(at, 0) if at in kept else 0 for at in range(len(parts))] == broker_sizes(parts, max_bytes)


@given(
    partitions(in_memory=True), st.integers(0, 200), st.integers(1, 100), st.integers(1, 4), st.lists(st.integers(0, 3))
)
def test_reads_at_once_keep_every_limit_but_for_one_first_batch(
    parts: list[Batches], max_bytes: int, granted: int, at_once: int, choose: list[int]
) -> None:
    plan = FetchPlan([part.limit for part in parts], max_bytes=max_bytes, memory_bytes=granted)
    sizes = run(plan, parts, at_once=at_once, choose=choose)
    answered = {at: sizes[at] for at in sorted(plan.kept())}
    first = next(iter(answered), None)
    for at, size in answered.items():
        is_first_batch = at == first and size == parts[at].sizes[0]
        assert size <= parts[at].max_bytes or is_first_batch
    if len(answered) > 1 or sum(answered.values()) > max_bytes:
        assert sum(answered.values()) <= max_bytes or (
            len(answered) == 1 and answered[first or 0] == parts[first or 0].sizes[0]
        )
    in_memory = sum(size for at, size in answered.items() if parts[at].in_memory)
    assert in_memory <= granted or (len(answered) >= 1 and parts[first or 0].in_memory)


@given(partitions(in_memory=True), st.integers(0, 200), st.integers(1, 4), st.lists(st.integers(0, 3)))
def test_answer_has_records_if_any_partition_has(
    parts: list[Batches], max_bytes: int, at_once: int, choose: list[int]
) -> None:
    limits = [part.limit for part in parts]
    plan = FetchPlan(limits, max_bytes=max_bytes, memory_bytes=memory_bytes(limits, max_bytes=max_bytes))
    run(plan, parts, at_once=at_once, choose=choose)
    assert bool(plan.kept()) == any(not part.is_pending for part in parts)


def test_read_that_might_get_less_than_its_turn_waits_for_the_running_ones() -> None:
    plan = FetchPlan([ReadLimit(60, False), ReadLimit(60, False)], max_bytes=100, memory_bytes=0)
    first = plan.next_read()
    assert first == PlannedRead(0, 60, at_least_one=True)
    assert plan.next_read() is None
    plan.finished(first, 10)
    assert plan.next_read() == PlannedRead(1, 60, at_least_one=False)


def test_reads_in_memory_share_what_was_granted_and_files_do_not_count() -> None:
    limits = [ReadLimit(40, True), ReadLimit(40, False), ReadLimit(40, True)]
    assert memory_bytes(limits, max_bytes=100) == 80
    plan = FetchPlan(limits, max_bytes=100, memory_bytes=50)
    reads = [plan.next_read(), plan.next_read()]
    assert [read.max_bytes for read in reads if read] == [40, 40]
    assert plan.next_read() is None, "ten bytes of memory are left, and a read runs"
    for read in reads:
        assert read is not None
        plan.finished(read, 40)
    last = plan.next_read()
    assert last is not None
    assert last.max_bytes == 10


def test_records_behind_a_first_batch_above_its_limit_are_left_out_when_they_no_longer_fit() -> None:
    plan = FetchPlan([ReadLimit(50, False), ReadLimit(50, False)], max_bytes=100, memory_bytes=0)
    first, second = plan.next_read(), plan.next_read()
    assert first is not None
    assert second is not None
    plan.finished(second, 50)
    plan.finished(first, 90)
    assert plan.kept() == {0}
