import base64
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from tierd.config import (
    CopySettings,
    EncryptionSettings,
    KafkaConnectionSettings,
    LeadershipSettings,
    LogDirSettings,
    MetadataSettings,
    PostgresSettings,
    RemoteSettings,
    TierdConfig,
    TopicDefaults,
    TopicsSettings,
)
from tierd.config.sections.remote_settings import EncryptionKeySettings, FilesystemSettings
from tierd.config.sections.topic_settings import TopicOverride


def config(*log_dirs: str) -> TierdConfig:
    return TierdConfig(
        log_dirs=tuple(LogDirSettings(path=Path(path)) for path in log_dirs),
        remote=RemoteSettings(backend="filesystem", filesystem=FilesystemSettings(path=Path("/mnt/tier"))),
    )


@pytest.mark.parametrize(
    ("topic", "wanted"), [("orders", True), ("orders.eu", True), ("__consumer_offsets", False), ("reorders", False)]
)
def test_patterns_match_whole_topic_names(topic: str, wanted: bool) -> None:
    topics = TopicsSettings(include=("orders.*", "__.*"), exclude=("__.*",))

    assert topics.wants(topic) is wanted


def test_settings_are_immutable() -> None:
    settings = CopySettings()

    with pytest.raises(ValidationError, match="frozen"):
        settings.interval_s = 3  # type: ignore[misc]  # that it is refused is the point


def test_python_names_carry_units_and_take_numbers() -> None:
    assert CopySettings(interval_s=0.25).interval_s == 0.25


def test_configuration_built_in_python_obeys_the_rules_of_the_file() -> None:
    with pytest.raises(ValidationError, match="are nested"):
        config("/a", "/a/b")


def test_log_dir_whose_name_begins_like_another_is_not_nested() -> None:
    assert len(config("/data/kafka", "/data/kafka2").log_dirs) == 2


def test_overrides_change_their_own_keys_and_the_last_match_wins() -> None:
    topics = TopicsSettings(
        defaults=TopicDefaults(retention_ms=1_000),
        overrides=(
            TopicOverride(match="orders.*", retention_ms=5_000, copy_enabled=False),
            TopicOverride(match=r"orders\.eu", retention_ms=-1),
        ),
    )

    assert topics.for_topic("payments") == topics.defaults
    assert (topics.for_topic("orders").retention_ms, topics.for_topic("orders").copy_enabled) == (5_000, False)
    assert (topics.for_topic("orders.eu").retention_ms, topics.for_topic("orders.eu").copy_enabled) == (-1, False)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"retention": "-3"}, "no duration"),
        ({"retention": "forever"}, "no duration"),
        ({"retention": -2}, "-2 is too low"),
        ({"retention_bytes": "-2"}, "-2 is too low"),
        ({"segment_bytes": "1B"}, "1 is too low"),
        ({"cleanup_policy": "keep"}, "Input should be"),
    ],
)
def test_impossible_retention_of_a_topic_is_refused(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TopicDefaults.model_validate(settings, context={"file": True})


@pytest.mark.parametrize(
    ("written", "milliseconds"), [("365d", 31_536_000_000), ("-1", -1), (-1, -1), ("from-broker", "from-broker")]
)
def test_retention_is_read_as_duration_and_in_the_form_of_kafka(written: object, milliseconds: object) -> None:
    settings = TopicDefaults.model_validate({"retention": written}, context={"file": True})

    assert settings.retention_ms == milliseconds


def test_a_copy_lag_beyond_the_local_retention_is_refused() -> None:
    with pytest.raises(ValidationError, match="copy_lag is longer than local_retention"):
        TopicsSettings(defaults=TopicDefaults(copy_lag_ms=2_000, local_retention_ms=1_000))


def test_an_active_key_must_be_in_the_ring() -> None:
    key = SecretStr(base64.b64encode(bytes(32)).decode())

    with pytest.raises(ValidationError, match="no key of keys has the id b"):
        EncryptionSettings(enabled=True, active_key="b", keys=(EncryptionKeySettings(id="a", key=key),))
    with pytest.raises(ValidationError, match="listed twice"):
        EncryptionSettings(keys=(EncryptionKeySettings(id="a", key=key), EncryptionKeySettings(id="a", key=key)))
    with pytest.raises(ValidationError, match="not 32"):
        EncryptionKeySettings(id="a", key=SecretStr(base64.b64encode(bytes(16)).decode()))


@pytest.mark.parametrize(
    ("section", "settings", "missing"),
    [
        (MetadataSettings, {"backend": "postgres"}, "with dsn or dsn_file"),
        (MetadataSettings, {"backend": "redis", "redis": {}}, "with url or url_file"),
        (LeadershipSettings, {"source": "kafka"}, "with bootstrap_servers"),
        (RemoteSettings, {"backend": "gcs"}, "with bucket at least"),
        (RemoteSettings, {"backend": "azure"}, "with container and account at least"),
        (
            KafkaConnectionSettings,
            {"bootstrap_servers": ["127.0.0.1:9092"], "security_protocol": "sasl_ssl"},
            "needs sasl_password",
        ),
    ],
)
def test_missing_key_of_a_chosen_option_is_named(
    section: type[BaseModel], settings: dict[str, object], missing: str
) -> None:
    with pytest.raises(ValidationError, match=missing):
        section.model_validate(settings)


def test_secret_is_not_in_the_text_of_its_settings() -> None:
    dsn = PostgresSettings(dsn=SecretStr("postgresql://tierd:hunter2@db/tierd"))

    assert "hunter2" not in repr(dsn) + str(dsn)
