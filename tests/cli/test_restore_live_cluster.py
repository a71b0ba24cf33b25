"""``tierd restore topic`` and ``tierd restore groups``: arguments, and failures before a cluster is asked."""

import pytest

from tests.scenarios.installation import Installation
from tests.services.ports import free_port


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("topic", "orders", "--to", "nowhere"), "host:port"),
        (("topic", "orders", "--to", "127.0.0.1:1", "--rename", "orders"), "NAME=VALUE"),
        (("topic", "(", "--to", "127.0.0.1:1"), "no regular expression"),
        (("topic", "orders", "--to", "127.0.0.1:1", "--by-timestamp"), "--by-timestamp needs --to-time"),
        (("topic", "orders", "--to", "127.0.0.1:1", "--hold-retention", "--skip-expired"), "exclude each other"),
        (("topic", "orders", "--to", "127.0.0.1:1", "--from-time", "tomorrow"), "is no time"),
        (("topic", "orders", "--to", "127.0.0.1:1", "--topic-config", "retention.ms=7d"), "a number of milliseconds"),
        (("groups", "--to", "nowhere"), "host:port"),
        (("groups", "--to", "127.0.0.1:1", "--at", "tomorrow"), "is no time"),
    ],
)
def test_wrong_argument_is_a_usage_error(copied: Installation, arguments: tuple[str, ...], text: str) -> None:
    result = copied.tierd("restore", *arguments)
    assert result.exit_code == 2, result.output
    assert text in " ".join(result.stderr.replace("│", " ").split())


def test_target_that_cannot_be_reached_is_named(copied: Installation) -> None:
    address = f"127.0.0.1:{free_port()}"
    result = copied.tierd("restore", "topic", "orders", "--to", address)
    assert result.exit_code == 3, result.output
    assert address in result.stderr


def test_groups_of_a_tier_without_catalogue_are_refused(copied: Installation) -> None:
    result = copied.tierd("restore", "groups", "--to", "127.0.0.1:1")
    assert result.exit_code == 4, result.output
    assert "no committed offset" in result.stderr
