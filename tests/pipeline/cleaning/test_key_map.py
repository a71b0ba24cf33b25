import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tierd.pipeline.cleaning.key_map import KeyMap
from tierd.pipeline.rewriting import KeyColumns, RecordRows, keys_of

SECRET = bytes(range(16))


def rows(keys: list[bytes | None], first_offset: int = 0) -> RecordRows:
    sizes = np.array([-1 if key is None else len(key) for key in keys], dtype=np.int32)
    ends = np.cumsum(np.maximum(sizes, 0), dtype=np.int32)
    return RecordRows(
        b"".join(key or b"" for key in keys),
        np.arange(first_offset, first_offset + len(keys), dtype=np.int64),
        np.zeros(len(keys), dtype=np.int64),
        ends - np.maximum(sizes, 0),
        sizes,
        np.ones(len(keys), dtype=np.int32),
    )


def columns(keys: list[bytes | None], first_offset: int = 0) -> KeyColumns:
    return keys_of(rows(keys, first_offset), SECRET)


KEYS = st.lists(st.none() | st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"]), max_size=60)


@given(keys=KEYS, max_keys=st.integers(1, 8), chunk=st.integers(1, 20))
def test_map_of_any_size_has_the_latest_offset_of_all_keys_below_its_end(
    keys: list[bytes | None], max_keys: int, chunk: int
) -> None:
    known = KeyMap(max_keys, secret=SECRET)
    end = None
    for start in range(0, len(keys), chunk):
        end = known.add(columns(keys[start : start + chunk], start))
        if end is not None:
            break
    if end is None:
        end = known.merge()
    mapped = len(keys) if end is None else end
    distinct: set[bytes] = set()
    for offset, key in enumerate(keys[:mapped]):
        if key is not None:
            distinct.add(key)
            assert len(distinct) <= max_keys, f"offset {offset}"
    assert len(known) == len(distinct)
    if end is not None:
        assert keys[end] is not None
        assert keys[end] not in distinct
        assert len(distinct) == max_keys
    latest = {key: offset for offset, key in enumerate(keys[:mapped])}
    expected = [key is None or offset >= latest.get(key, -1) for offset, key in enumerate(keys)]
    assert known.keeps(rows(keys)).tolist() == expected


def test_keys_with_half_of_their_hash_in_common_are_different_keys() -> None:
    def made(*lower: int) -> KeyColumns:
        count = len(lower)
        return KeyColumns(np.full(count, 7), np.array(lower), np.arange(count, dtype=np.int64))

    known = KeyMap(10, secret=SECRET)
    known.add(made(3, 1, 2, 1))
    known.merge()
    assert len(known) == 3
    assert known._find(np.full(4, 7), np.array([1, 2, 3, 4])).tolist() == [0, 1, 2, -1]


def test_empty_map_keeps_all_records() -> None:
    assert KeyMap(0, secret=SECRET).keeps(rows([b"a", None])).tolist() == [True, True]
