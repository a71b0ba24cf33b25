import base64
from contextlib import suppress
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import PartitionNameError
from tierd.model import (
    RemoteLogSegmentId,
    TopicIdPartition,
    TopicPartition,
    is_topic_name,
    random_id,
    uuid_from_text,
    uuid_to_text,
)

topics = st.text("abcXYZ019._-", min_size=1, max_size=40)


@pytest.mark.spec("log-format REC-50")
def test_golden_topic_id_is_encoded_and_parsed() -> None:
    topic_id = UUID("12345678-9abc-def0-fedc-ba9876543210")
    assert uuid_to_text(topic_id) == "EjRWeJq83vD-3LqYdlQyEA"
    assert uuid_from_text("EjRWeJq83vD-3LqYdlQyEA") == topic_id


@given(st.uuids())
def test_any_id_is_parsed_from_its_text(value: UUID) -> None:
    text = uuid_to_text(value)
    assert len(text) == 22
    assert uuid_from_text(text) == value


def test_random_id_is_no_option_of_a_command() -> None:
    made = [UUID(bytes=bytes([first]) + bytes(15)) for first in (0xF8, 0xFB, 0xF7)]
    assert [uuid_to_text(each)[0] for each in made] == ["-", "-", "9"]
    assert random_id(iter(made).__next__) == made[2]


@given(st.text(min_size=0, max_size=30))
def test_any_text_is_parsed_to_an_id_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(uuid_from_text(text), UUID)


@given(st.text("AQgwz09-_+/=!é", min_size=22, max_size=22))
def test_text_of_an_id_is_url_safe_base64_as_the_standard_library_reads_it(text: str) -> None:
    try:
        expected = UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except ValueError:
        with pytest.raises(ValueError, match="URL-safe base64"):
            uuid_from_text(text)
    else:
        assert uuid_from_text(text) == expected


@given(topics, st.integers(0, 2**31 - 1))
def test_any_partition_is_parsed_from_its_text(topic: str, partition: int) -> None:
    named = TopicPartition(topic, partition)
    assert TopicPartition.parse(str(named)) == named


@pytest.mark.parametrize("text", ["", "-", "a", "a-", "-1", "a-b", "a-1.5", "a-٣", "a-2147483648", "a- 1"])
def test_text_that_is_no_partition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PartitionNameError) as caught:
        TopicPartition.parse(text)
    assert "orders-0" in caught.value.remedy
    assert isinstance(caught.value, ValueError)


def test_identities_print_as_kafka_names_them() -> None:
    partition = TopicIdPartition(uuid4(), "orders", 3)
    segment = RemoteLogSegmentId(partition, UUID("12345678-9abc-def0-fedc-ba9876543210"))
    assert str(partition) == str(partition.topic_partition) == "orders-3"
    assert str(segment) == "orders-3:EjRWeJq83vD-3LqYdlQyEA"


def test_partitions_of_a_topic_created_again_differ() -> None:
    assert TopicIdPartition(uuid4(), "orders", 0) != TopicIdPartition(uuid4(), "orders", 0)


@given(topics.filter(lambda text: text not in {".", ".."}))
def test_name_of_letters_digits_dots_dashes_and_underscores_is_a_topics(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "../orders", "a/b", "a b", "a\n", "a\n0\n", "\x1b[2J", "ä", "a" * 250])
def test_name_that_kafka_refuses_is_no_topics(name: str) -> None:
    assert not is_topic_name(name)
