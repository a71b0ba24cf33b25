from pathlib import Path

import pytest
from pydantic import ValidationError

from tierd.config import CopySettings, FilesystemSettings, LogDirSettings, RemoteSettings, TierdConfig, TopicsSettings


def config(*log_dirs: str) -> TierdConfig:
    return TierdConfig(
        log_dirs=tuple(LogDirSettings(path=Path(path)) for path in log_dirs),
        remote=RemoteSettings(backend="filesystem", filesystem=FilesystemSettings(path=Path("/mnt/tier"))),
    )


@pytest.mark.parametrize(
    ("topic", "wanted"), [("orders", True), ("orders.eu", True), ("__consumer_offsets", False), ("reorders", False)]
)
def test_topics_are_matched_as_a_whole(topic: str, wanted: bool) -> None:
    topics = TopicsSettings(include=("orders.*", "__.*"), exclude=("__.*",))

    assert topics.wants(topic) is wanted


def test_settings_do_not_change() -> None:
    settings = CopySettings()

    with pytest.raises(ValidationError, match="frozen"):
        settings.interval_s = 3  # type: ignore[misc]  # that it is refused is the point


def test_python_names_carry_units_and_take_numbers() -> None:
    assert CopySettings(interval_s=0.25).interval_s == 0.25


def test_what_is_built_in_python_obeys_the_rules_of_the_file() -> None:
    with pytest.raises(ValidationError, match="are nested"):
        config("/a", "/a/b")


def test_a_sibling_with_the_same_beginning_is_not_nested() -> None:
    assert len(config("/data/kafka", "/data/kafka2").log_dirs) == 2
