"""SizedLru against a list that does the same slowly."""

from hypothesis import given
from hypothesis import strategies as st

from tierd.remote.cache.sized_lru import SizedLru

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "use", "discard", "evict"]), st.integers(0, 6), st.integers(0, 50)), max_size=60
)


@given(steps=STEPS, capacity=st.integers(0, 120))
def test_lru_keeps_the_entries_used_last_within_its_capacity(steps: list[tuple[str, int, int]], capacity: int) -> None:
    lru: SizedLru[int] = SizedLru(capacity)
    model: list[tuple[int, int]] = []  # those used longest ago first
    for what, key, size in steps:
        held = [entry for entry in model if entry[0] == key]
        match what:
            case "add":
                lru.add(key, size)
                model = [*(entry for entry in model if entry[0] != key), (key, size)]
            case "use":
                assert lru.use(key) == bool(held)
                model = [*(entry for entry in model if entry[0] != key), *held]
            case "discard":
                lru.discard(key)
                model = [entry for entry in model if entry[0] != key]
            case _:
                evicted = []
                while sum(entry[1] for entry in model) > capacity:
                    evicted.append(model.pop(0)[0])
                assert lru.evict() == evicted
        assert (list(lru), lru.size_bytes) == ([k for k, _ in model], sum(s for _, s in model))
        assert [k in lru for k in range(7)] == [k in dict(model) for k in range(7)]
