import pytest

from tierd.errors import LogConfigError
from tierd.log.records.log_config import LogConfig, TimestampType


@pytest.mark.spec("log-format TRN-20")
@pytest.mark.parametrize(
    "settings",
    [
        {"local.retention.ms": "1001", "retention.ms": "1000"},
        {"local.retention.bytes": "1001", "retention.bytes": "1000"},
        {"local.retention.ms": "-1", "retention.ms": "1000"},
        {"local.retention.bytes": "-1", "retention.bytes": "1000"},
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact,delete"},
        {"remote.log.copy.disable": "true", "local.retention.ms": "500", "retention.ms": "1000"},
        {"remote.log.copy.disable": "true", "local.retention.bytes": "500", "retention.bytes": "1000"},
    ],
)
def test_settings_that_a_tiered_topic_may_not_have_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(LogConfigError):
        LogConfig.from_kafka({"remote.storage.enable": "true", **settings})
    without_tier = {**settings, "remote.storage.enable": "false"}
    assert not LogConfig.from_kafka(without_tier).remote_storage_enable


@pytest.mark.parametrize(
    "settings",
    [
        {"local.retention.ms": "1000", "retention.ms": "1000"},
        {"local.retention.ms": "-1", "retention.ms": "-1"},
        {"local.retention.bytes": "500", "retention.bytes": "-1"},
        {"remote.log.copy.disable": "true", "local.retention.ms": "1000", "retention.ms": "1000"},
        {"remote.log.copy.disable": "true"},
    ],
)
def test_settings_that_a_tiered_topic_may_have_are_accepted(settings: dict[str, str]) -> None:
    assert LogConfig.from_kafka({"remote.storage.enable": "true", **settings}).remote_storage_enable


def test_names_and_values_of_kafka_are_parsed() -> None:
    config = LogConfig.from_kafka(
        {
            "segment.bytes": "1048576",
            "cleanup.policy": "compact, delete",
            "message.timestamp.type": "LogAppendTime",
            "preallocate": "TRUE",
            "compression.type": "zstd",
        }
    )
    assert config.segment_bytes == 1 << 20
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.preallocate
    assert config.compression_type == "zstd"


@pytest.mark.parametrize(
    "settings",
    [
        {"no.such.setting": "1"},
        {"segment.bytes": "many"},
        {"segment.bytes": "13"},
        {"segment.bytes": "2147483648"},
        {"segment.index.bytes": "2147483648"},
        {"preallocate": "perhaps"},
        {"compression.type": "rar"},
        {"cleanup.policy": ""},
        {"message.timestamp.type": "SomeTime"},
    ],
)
def test_unknown_names_and_impossible_values_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(LogConfigError):
        LogConfig.from_kafka(settings)
