"""Warnings about valid settings that are seldom intended."""

from pathlib import Path

import pytest

from tests.config.test_loading import MINIMAL, load
from tierd.config import config_warnings

CONNECTED = MINIMAL + "leadership: {kafka: {bootstrap_servers: ['a:1']}}\n"


@pytest.mark.parametrize(
    ("topics", "keys"),
    [
        ("{defaults: {retention_bytes: from-broker}}", ["topics.defaults.retention_bytes"]),
        ("{defaults: {retention: from-broker}}", ["topics.defaults.retention"]),
        (
            "{overrides: [{match: a}, {match: b, retention: from-broker, retention_bytes: from-broker}]}",
            ["topics.overrides[1].retention", "topics.overrides[1].retention_bytes"],
        ),
        ("{defaults: {cleanup_policy: from-broker, segment_bytes: from-broker}}", []),
        ("{defaults: {retention: 365d, retention_bytes: 1TiB}}", []),
    ],
)
def test_retention_of_the_tier_left_to_brokers_is_a_warning(tmp_path: Path, topics: str, keys: list[str]) -> None:
    found = config_warnings(load(tmp_path, CONNECTED + f"topics: {topics}\n"))

    assert [warning.key for warning in found] == keys
    assert all("the tier keeps no" in warning.problem and "write what the tier" in warning.remedy for warning in found)


def test_retention_left_to_brokers_is_no_warning_if_all_logs_are_own_logs(tmp_path: Path) -> None:
    own = CONNECTED.replace("data}", "data, owner: tierd}") + "topics: {defaults: {retention_bytes: from-broker}}\n"

    assert config_warnings(load(tmp_path, own)) == []


def test_file_without_retention_settings_has_no_warning(tmp_path: Path) -> None:
    assert config_warnings(load(tmp_path, MINIMAL)) == []
