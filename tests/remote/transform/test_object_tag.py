"""Tags of small objects: whatever is changed, moved or made without the ring is refused."""

import json
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.transforms import ring
from tierd.errors import RemoteUnauthenticatedError
from tierd.json_parsing import MAX_VALUES
from tierd.model import TopicIdPartition
from tierd.remote.transform.binding import SegmentBinding, erasure_report_binding, log_start_binding
from tierd.remote.transform.key_ring import EMPTY_RING, KeyRing
from tierd.remote.transform.object_tag import require_tag, tagged_anew, with_tag

SEGMENT = SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABC), 10, 19)
BINDING = SEGMENT.for_tombstone()
CONTENT = b'{"format_version": 1, "reason": "retention-time", "delete_after_ms": 9}\n'
TAGGED = with_tag(CONTENT, ring(), BINDING)
BINDINGS = [
    BINDING,
    SegmentBinding("other", UUID(int=7), 3, UUID(int=0xABC), 10, 19).for_tombstone(),
    SegmentBinding("cluster", UUID(int=8), 3, UUID(int=0xABC), 10, 19).for_tombstone(),
    SegmentBinding("cluster", UUID(int=7), 4, UUID(int=0xABC), 10, 19).for_tombstone(),
    SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABD), 10, 19).for_tombstone(),
    SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABC), 11, 19).for_tombstone(),
    SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABC), 10, 18).for_tombstone(),
    log_start_binding("cluster", TopicIdPartition(UUID(int=7), "orders", 3)),
    log_start_binding("cluster", TopicIdPartition(UUID(int=7), "orders", 4)),
    log_start_binding("cluster", TopicIdPartition(UUID(int=8), "orders", 3)),
    erasure_report_binding("cluster", UUID(int=7)),
    erasure_report_binding("cluster", UUID(int=8)),
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=9), json_values, max_size=6)


def is_proven(content: bytes, binding: bytes = BINDING, keys: KeyRing | None = None) -> bool:
    try:
        require_tag(content, keys or ring(), binding, key="a.tombstone")
    except RemoteUnauthenticatedError:
        return False
    return True


def said_in(fields: dict[str, object]) -> str:
    return json.dumps({k: v for k, v in fields.items() if k != "authentication"}, sort_keys=True)


@given(objects)
def test_object_with_its_tag_is_proven_and_keeps_its_fields(fields: dict[str, object]) -> None:
    tagged = with_tag(json.dumps(fields).encode(), ring(), BINDING)
    assert is_proven(tagged)
    assert {k: v for k, v in json.loads(tagged).items() if k != "authentication"} == {
        k: v for k, v in json.loads(json.dumps(fields)).items() if k != "authentication"
    }


@given(st.integers(0, len(TAGGED) * 8 - 1))
def test_object_with_any_flipped_bit_says_the_same_or_is_refused(bit: int) -> None:
    changed = bytearray(TAGGED)
    changed[bit // 8] ^= 1 << bit % 8
    if is_proven(bytes(changed)):
        said = {k: v for k, v in json.loads(changed).items() if k != "authentication"}
        assert said == json.loads(CONTENT)


@given(objects, objects)
def test_tag_of_one_object_proves_no_other(mine: dict[str, object], other: dict[str, object]) -> None:
    proof = json.loads(with_tag(json.dumps(mine).encode(), ring(), BINDING))["authentication"]
    forged = {**other, "authentication": proof}
    said = [
        json.dumps({k: v for k, v in each.items() if k != "authentication"}, sort_keys=True) for each in (mine, other)
    ]
    assert is_proven(json.dumps(forged).encode()) == (said[0] == said[1])


@pytest.mark.parametrize("place", range(len(BINDINGS)))
def test_object_that_was_moved_is_refused(place: int) -> None:
    moved = with_tag(CONTENT, ring(), BINDINGS[place])
    assert [is_proven(moved, binding) for binding in BINDINGS] == [n == place for n in range(len(BINDINGS))]


@pytest.mark.parametrize(
    "strip",
    [
        lambda fields: fields | {"authentication": None},
        lambda fields: {name: value for name, value in fields.items() if name != "authentication"},
        lambda fields: fields | {"authentication": fields["authentication"] | {"tag": ""}},
        lambda fields: fields | {"authentication": fields["authentication"] | {"tag": "\ud800"}},
        lambda fields: fields | {"authentication": fields["authentication"] | {"key_id": "new"}},
        lambda fields: fields | {"authentication": fields["authentication"] | {"key_id": "unknown"}},
        lambda fields: [fields],
    ],
)
def test_object_without_its_tag_is_refused(strip: Callable[[dict[str, object]], object]) -> None:
    assert not is_proven(json.dumps(strip(json.loads(TAGGED))).encode())


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"7", b"[" * 100_000, b'{"a":' * 100_000])
def test_content_that_is_no_json_object_is_refused(content: bytes) -> None:
    assert not is_proven(content)


def test_any_key_of_the_ring_proves_and_the_active_one_makes_tags() -> None:
    assert json.loads(with_tag(CONTENT, ring("new"), BINDING))["authentication"]["key_id"] == "new"
    assert is_proven(TAGGED, keys=ring("new"))
    assert not is_proven(TAGGED, keys=ring("new", "new"))


def test_ring_without_an_active_key_makes_tags_with_its_first_key() -> None:
    assert is_proven(with_tag(CONTENT, ring(None), BINDING))


def test_object_gets_no_tag_and_needs_no_proof_without_a_ring() -> None:
    assert with_tag(CONTENT, EMPTY_RING, BINDING) == CONTENT
    require_tag(CONTENT, EMPTY_RING, BINDING, key="k")


def test_tag_is_made_anew_under_the_active_key_once() -> None:
    rotated = tagged_anew(TAGGED, ring("new"), BINDING, key="k")
    assert rotated is not None
    assert is_proven(rotated, keys=ring("new", "new"))
    assert tagged_anew(rotated, ring("new"), BINDING, key="k") is None


def test_object_without_proof_gets_no_new_tag() -> None:
    with pytest.raises(RemoteUnauthenticatedError, match="k: it has no tag"):
        tagged_anew(CONTENT, ring(), BINDING, key="k")


def test_tag_has_the_bytes_of_the_format() -> None:
    assert json.loads(TAGGED)["authentication"] == {
        "algorithm": "HMAC-SHA256",
        "key_id": "old",
        "tag": "4093598be0195b82b63b7f82bfc8abb1e556a29b463689d03dcb630dd04ad971",
    }


def test_object_with_as_many_values_as_a_report_may_have_is_proven() -> None:
    content = json.dumps({"left": [0] * (MAX_VALUES + 1)}).encode()
    assert is_proven(with_tag(content, ring(), BINDING))


@pytest.mark.parametrize("value", ["[" * 50_000, "[" * 200 + "]" * 200, "NaN", "9" * 5_000], ids=lambda text: text[:3])
def test_object_that_is_no_json_of_tierd_is_not_proven_whatever_its_tag_says(value: str) -> None:
    proof = json.dumps(json.loads(TAGGED)["authentication"])
    assert not is_proven(f'{{"reason": {value}, "authentication": {proof}}}'.encode())
