from pathlib import Path

import pytest

from tierd.app.daemon.config_change import LIVE_KEYS, changed_keys, merged
from tierd.config import TierdConfig


def config(**changes: object) -> TierdConfig:
    settings: dict[str, object] = {
        "state_dir": "/state",
        "log_dirs": [{"path": "/data"}],
        "remote": {"backend": "filesystem", "filesystem": {"path": "/store"}},
    }
    return TierdConfig.model_validate(settings | changes)


def test_equal_files_have_no_changed_keys() -> None:
    change = changed_keys(config(), config())
    assert (change.live, change.after_restart) == ((), ())


def test_keys_are_named_as_the_file_writes_them() -> None:
    new = config(
        topics={"exclude": ["a"]},
        logging={"level": "debug"},
        http={"listen": "127.0.0.1:1"},
        copy={"attempt_timeout": "1m"},
        remote={"backend": "filesystem", "filesystem": {"path": "/elsewhere"}},
    )
    change = changed_keys(config(), new)
    assert change.live == ("logging.level", "topics.exclude")
    assert change.after_restart == ("copy.attempt_timeout", "http.listen", "remote.filesystem.path")


def test_added_or_removed_section_is_a_change() -> None:
    s3 = config(remote={"backend": "s3", "s3": {"bucket": "b"}})
    assert "remote.backend" in changed_keys(config(), s3).after_restart
    assert "remote.s3.bucket" in changed_keys(config(), s3).after_restart


def test_merged_configuration_has_the_new_live_keys_only() -> None:
    new = config(topics={"include": ["x"]}, http={"listen": "127.0.0.1:1"}, copy={"concurrency": 9})
    in_force = merged(config(), new)
    assert in_force.topics.include == ("x",)
    assert in_force.http == config().http
    assert in_force.state_dir == Path("/state")
    assert changed_keys(in_force, new).live == ()


def test_access_to_the_endpoint_changes_at_once_and_its_listeners_after_a_restart() -> None:
    old = config(kafka={"listeners": ["PLAINTEXT://127.0.0.1:9192"]})
    new = config(
        kafka={
            "listeners": ["PLAINTEXT://127.0.0.1:9193"],
            "access": [{"topics": ["orders"]}],
            "sasl": {"users": [{"name": "etl", "password": "secret"}]},
        }
    )

    change, in_force = changed_keys(old, new), merged(old, new)

    assert change.live == ("kafka.access", "kafka.sasl.users")
    assert change.after_restart == ("kafka.listeners",)
    assert in_force.kafka == new.kafka.model_copy(update={"listeners": old.kafka.listeners})


@pytest.mark.parametrize("key", sorted(LIVE_KEYS))
def test_every_live_key_is_a_key_of_the_schema(key: str) -> None:
    section, _, name = key.partition(".")
    field = next(f for n, f in TierdConfig.model_fields.items() if (f.alias or n) == section)
    assert field.annotation is not None
    names = {(f.alias or n) for n, f in field.annotation.model_fields.items()}
    assert name in names


def test_topics_peers_and_the_switch_of_push_change_at_once_and_the_rest_after_a_restart() -> None:
    peers = [{"node_id": 2, "address": "127.0.0.1:9506"}]
    push = {"node_id": 1, "listen": "127.0.0.1:9406", "peers": peers, "topics": ["a"], "standbys": [2]}
    new = config(
        push={
            **push,
            "enabled": False,
            "listen": "127.0.0.1:9407",
            "topics": ["a", "b"],
            "tail": {"interval": "50ms"},
            "standby": {"log_dir": "/copies"},
        }
    )

    change = changed_keys(config(push=push), new)

    assert change.live == ("push.enabled", "push.topics")
    assert change.after_restart == ("push.listen", "push.standby.log_dir", "push.tail.interval")
    in_force = merged(config(push=push), new).push
    assert (in_force.enabled, in_force.topics, in_force.listen) == (False, ("a", "b"), "127.0.0.1:9406")
    assert in_force.tail == config(push=push).push.tail
