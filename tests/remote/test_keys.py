from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import PARTITION, segment
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.remote import ObjectKeyFactory
from tierd.remote.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)


@given(
    identity=st.builds(TopicIdPartition, st.uuids(), TOPICS, st.integers(0, 2**31 - 1)),
    segment_id=st.uuids(),
    start=st.integers(0, 2**63 - 2),
    suffix=st.sampled_from([LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX]),
)
def test_a_segment_key_tells_what_it_was_made_of(
    identity: TopicIdPartition, segment_id: UUID, start: int, suffix: str
) -> None:
    keys = ObjectKeyFactory("some/prefix", "cluster")
    key = keys.segment(segment(start, start + 1, partition=identity, segment_id=segment_id), suffix)
    parsed = keys.parse(key)
    assert parsed is not None
    assert (parsed.topic, parsed.topic_id, parsed.partition) == (
        identity.topic,
        uuid_to_text(identity.topic_id),
        identity.partition,
    )
    assert (parsed.start_offset, parsed.segment_id) == (start, segment_id)


@pytest.mark.parametrize(
    "key",
    [
        "cluster/tierd.json",
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/0/README",
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/x/00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA.log",
        "cluster/orders/0/00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA.log",
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/0/1234-AAAAAAAAAAAAAAAAAAAKvA.log",
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/0/00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA.txt",
        "other/orders-AAAAAAAAAAAAAAAAAAAABw/0/00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA.log",
    ],
)
def test_a_key_that_is_no_segments_tells_nothing(key: str) -> None:
    assert ObjectKeyFactory("", "cluster").parse(key) is None


def test_without_a_prefix_the_cluster_comes_first() -> None:
    assert ObjectKeyFactory("", "cluster").partition_prefix(PARTITION) == "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/0/"
    assert ObjectKeyFactory("a/b", "cluster").tier_identity == "a/b/cluster/tierd.json"


def test_custom_metadata_leads_back_to_the_prefix() -> None:
    keys = ObjectKeyFactory("ä/b", "cluster")
    assert ObjectKeyFactory("now/another", "cluster").for_custom_metadata(keys.custom_metadata()) == keys
    assert keys.for_custom_metadata(None) == keys


def test_a_prefix_that_custom_metadata_cannot_carry_is_refused() -> None:
    assert len(ObjectKeyFactory("p" * 127, "c").custom_metadata()) == 128
    with pytest.raises(ValueError, match="longer than 127"):
        ObjectKeyFactory("p" * 128, "c")


@pytest.mark.parametrize("prefix", ["/a", "a/", "/"])
def test_a_prefix_with_a_slash_at_an_end_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="slash"):
        ObjectKeyFactory(prefix, "c")
