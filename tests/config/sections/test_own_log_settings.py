"""Section topics.*.log: names of Kafka, merged over the overrides that match."""

import pytest

from tierd.config import TopicsSettings
from tierd.config.faults import unknown_key
from tierd.config.schema import TierdConfig


def test_overrides_change_single_settings_of_the_log() -> None:
    topics = TopicsSettings.model_validate(
        {
            "defaults": {"log": {"segment_ms": "2d", "flush_ms": "5s"}},
            "overrides": [
                {"match": "a.*", "log": {"flush_ms": "1s", "flush_messages": 10}},
                {"match": "ab", "segment_bytes": "1MiB", "log": {"flush_messages": 20}},
            ],
        }
    )
    assert topics.for_topic("b").log == topics.defaults.log
    found = topics.for_topic("ab")
    assert (found.log.segment_ms, found.log.flush_ms, found.log.flush_messages) == (172_800_000, 1000, 20)
    assert (found.segment_bytes, topics.for_topic("a").segment_bytes) == (1 << 20, 1 << 30)


@pytest.mark.parametrize("written", ["segment.ms", "segment_ms"])
def test_setting_of_a_log_in_another_place_or_spelling_is_a_fault_with_the_right_name(written: str) -> None:
    assert "did you mean" in unknown_key(TierdConfig, ("topics", "defaults", written))
    assert "topics.defaults.log.segment_ms?" in unknown_key(TierdConfig, ("topics", "defaults", "log", "segment.ms"))
    assert "topics.defaults.log.segment_ms?" in unknown_key(TierdConfig, ("topics", "defaults", "segment_ms"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_ms": 0},
        {"flush_messages": 0},
        {"flush_messages": -2},
        {"flush_ms": -2},
        {"segment_index_bytes": "2B"},
        {"max_message_bytes": "2GiB"},
        {"message_timestamp_type": "Now"},
        {"compression_type": "brotli"},
        {"producer_id_expiration_ms": 0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_values_that_a_log_cannot_have_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TopicsSettings.model_validate({"defaults": {"log": wrong}})
