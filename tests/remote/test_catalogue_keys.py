"""Keys of the catalogue: every identity has one key, and no other key has an identity."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.remote import (
    CatalogueKey,
    CatalogueNodeKey,
    CataloguePositionsKey,
    CatalogueTopicKey,
    ObjectKeyFactory,
)

KEYS = ObjectKeyFactory("pre", "cluster").catalogue
TOPIC = CatalogueTopicKey("orders-eu", UUID(int=7))
NODES = st.integers(0, 2**31 - 1)
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
LONG_TOPICS = st.integers(220, 249).flatmap(lambda length: st.text("abcXYZ019._-", min_size=length, max_size=length))
TIMES = st.integers(0, 253_402_300_799_999)


@given(
    st.one_of(
        st.builds(CatalogueTopicKey, TOPICS | LONG_TOPICS, st.uuids()),
        st.builds(CataloguePositionsKey, TIMES, NODES),
        st.builds(CatalogueNodeKey, NODES),
    )
)
def test_identity_comes_back_from_its_key_whose_parts_fit_a_path(identity: CatalogueKey) -> None:
    key = KEYS.key(identity)
    assert KEYS.parse(key) == identity
    assert all(len(part) <= 255 for part in key.split("/"))


@given(TIMES, TIMES, NODES)
def test_order_of_the_keys_of_positions_is_that_of_their_times(one: int, other: int, node_id: int) -> None:
    earlier, later = (KEYS.key(CataloguePositionsKey(each, node_id)) for each in sorted((one, other)))
    assert earlier <= later


def test_keys_lie_below_the_cluster() -> None:
    assert KEYS.key(TOPIC) == "pre/cluster/catalogue/topics/orders-eu-AAAAAAAAAAAAAAAAAAAABw.json"
    assert KEYS.key(CataloguePositionsKey(1_700_000_000_123, 3)) == (
        "pre/cluster/catalogue/positions/20231114T221320.123Z-3.json.zst"
    )
    assert KEYS.key(CatalogueNodeKey(3)) == "pre/cluster/catalogue/nodes/3.json"


@pytest.mark.parametrize(
    "name",
    [
        "catalogue/nodes/03.json",
        "catalogue/nodes/3.json.zst",
        "catalogue/nodes/3/x.json",
        "catalogue/positions/20231114T221320.123Z-3.json",
        "catalogue/positions/20231399T221320.123Z-3.json.zst",
        "catalogue/topics/orders.json",
        "catalogue/topics/orders-AAAAAAAAAAAAAAAAAAAABw",
        f"catalogue/topics/{'a' * 200}/b-AAAAAAAAAAAAAAAAAAAABw.json",
        "catalogue/other",
        "nodes/3.json",
    ],
)
def test_other_keys_have_no_identity_and_do_not_belong_to_the_tier(name: str) -> None:
    keys = ObjectKeyFactory("pre", "cluster")
    assert KEYS.parse(f"{keys.root}{name}") is None
    assert not keys.belongs_to_tier(f"{keys.root}{name}")


def test_objects_of_the_catalogue_belong_to_the_tier() -> None:
    assert ObjectKeyFactory("pre", "cluster").belongs_to_tier(KEYS.key(TOPIC))
    assert not ObjectKeyFactory("pre", "other").belongs_to_tier(KEYS.key(TOPIC))
