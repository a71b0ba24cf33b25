from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import PARTITION, segment
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.remote import ObjectKeyFactory
from tierd.remote.object_keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX, must_be_encrypted

ARABIC_ZERO = "\u0660"
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


LONG_TOPICS = st.integers(233, 249).flatmap(lambda length: st.text("abcXYZ019._-", min_size=length, max_size=length))


@pytest.mark.parametrize("length", range(1, 250))
def test_parts_of_a_key_fit_a_path_for_topic_names_of_every_legal_length(length: int) -> None:
    identity = TopicIdPartition(UUID(int=2**128 - 1), "t" * length, 2**31 - 1)
    keys = ObjectKeyFactory("some/prefix", "cluster")
    key = keys.segment(segment(0, 1, partition=identity), ".tombstone")
    assert all(len(part) <= 255 for part in key.split("/"))
    parsed = keys.parse(key)
    assert parsed is not None
    assert parsed.topic == identity.topic
    assert not parsed.is_spelled_out
    is_long = length > 232
    old = f"some/prefix/cluster/{identity.topic}-{uuid_to_text(identity.topic_id)}/"
    assert key.startswith(old) is not is_long


@given(topic=LONG_TOPICS, topic_id=st.uuids(), segment_id=st.uuids())
def test_key_that_spells_out_a_long_topic_name_is_read_and_written_again(
    topic: str, topic_id: UUID, segment_id: UUID
) -> None:
    identity = TopicIdPartition(topic_id, topic, 3)
    old = f"p/cluster/{topic}-{uuid_to_text(topic_id)}/3/{5:020d}-{uuid_to_text(segment_id)}.log"
    keys = ObjectKeyFactory("p", "cluster")
    parsed = keys.parse(old)
    assert parsed is not None
    assert (parsed.topic, parsed.topic_id, parsed.is_spelled_out) == (topic, uuid_to_text(topic_id), True)
    row = segment(5, 6, partition=identity, segment_id=segment_id)
    assert keys.form_of(parsed).segment(row, ".log") == old
    assert keys.for_custom_metadata(b"\x01p", topic).segment(row, ".log") == old
    assert must_be_encrypted(keys.form_of(parsed).custom_metadata(topic, is_encrypted=True))
    assert keys.form_of(parsed).custom_metadata(topic) == b"\x01p"


@given(topics=st.lists(st.one_of(TOPICS, LONG_TOPICS), min_size=2, max_size=4, unique=True), topic_id=st.uuids())
def test_keys_of_two_topics_differ_in_every_form(topics: list[str], topic_id: UUID) -> None:
    keys = ObjectKeyFactory("p", "cluster")
    prefixes = [
        form.partition_prefix(TopicIdPartition(topic_id, topic, 0)) for topic in topics for form in keys.forms(topic)
    ]
    assert not [(a, b) for a in prefixes for b in prefixes if a is not b and a.startswith(b)]


@given(topic=st.one_of(TOPICS, LONG_TOPICS), is_encrypted=st.booleans())
def test_custom_metadata_leads_to_the_keys_that_it_was_made_for(topic: str, is_encrypted: bool) -> None:
    identity = TopicIdPartition(UUID(int=7), topic, 0)
    for keys in ObjectKeyFactory("a/b", "cluster").forms(topic):
        custom = keys.custom_metadata(topic, is_encrypted=is_encrypted)
        found = ObjectKeyFactory("now/another", "cluster").for_custom_metadata(custom, topic)
        assert found.partition_prefix(identity) == keys.partition_prefix(identity)
        assert must_be_encrypted(custom) is is_encrypted


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
        # keys that look like those of a segment, and are not what its key is made as
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/0/00000000000000001234-AAAAAAAAAAAAAAAAAAAKvB.log",
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABx/0/00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA.log",
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/00/00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA.log",
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/2147483648/00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA.log",
        f"cluster/orders-AAAAAAAAAAAAAAAAAAAABw/0/{ARABIC_ZERO * 20}-AAAAAAAAAAAAAAAAAAAKvA.log",
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/0/00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA.log\n",
        # no name in UTF-8
        "cluster/\udcff-AAAAAAAAAAAAAAAAAAAABw/0/00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA.log",
    ],
)
def test_key_that_is_no_segments_is_parsed_to_none(key: str) -> None:
    assert ObjectKeyFactory("", "cluster").parse(key) is None


@pytest.mark.parametrize(
    "key",
    [
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/00/log-start.json",
        "cluster/orders-AAAAAAAAAAAAAAAAAAAABx/0/log-start.json",
        "cluster/\udcff-AAAAAAAAAAAAAAAAAAAABw/0/log-start.json",
    ],
)
def test_key_that_no_log_start_is_made_at_tells_nothing(key: str) -> None:
    assert ObjectKeyFactory("", "cluster").parse_log_start(key) is None


def test_key_without_a_prefix_begins_with_the_cluster() -> None:
    assert ObjectKeyFactory("", "cluster").partition_prefix(PARTITION) == "cluster/orders-AAAAAAAAAAAAAAAAAAAABw/0/"
    assert ObjectKeyFactory("a/b", "cluster").tier_identity == "a/b/cluster/tierd.json"


def test_custom_metadata_leads_back_to_the_prefix() -> None:
    keys = ObjectKeyFactory("ä/b", "cluster")
    assert ObjectKeyFactory("now/another", "cluster").for_custom_metadata(keys.custom_metadata("t"), "t") == keys
    assert keys.for_custom_metadata(None, "t") == keys


def test_a_prefix_that_custom_metadata_cannot_carry_is_refused() -> None:
    assert len(ObjectKeyFactory("p" * 127, "c").custom_metadata("t")) == 128
    with pytest.raises(ValueError, match="longer than 127"):
        ObjectKeyFactory("p" * 128, "c")


@pytest.mark.parametrize("prefix", ["/a", "a/", "/"])
def test_a_prefix_with_a_slash_at_an_end_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="slash"):
        ObjectKeyFactory(prefix, "c")
