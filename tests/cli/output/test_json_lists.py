"""Lists as JSON: --json in the old shape of each command, --json-object in one shape for all commands."""

import io
import json
from contextlib import redirect_stdout
from importlib import import_module
from inspect import signature

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from tests.scenarios.installation import Installation
from tests.services.mqtt import MqttService
from tierd.cli.main import VERBS
from tierd.cli.output.json_lists import printed_lines

ARRAYS = (
    ["copy"],
    ["expire", "--dry-run"],
    ["segments", "orders-0"],
    ["topics"],
    ["compact", "--history"],
    ["drill", "--history"],
    ["erase", "list"],
    ["erase", "step"],
    ["groups"],
)
LINES = (["verify"], ["verify", "--deep", "orders-0", "audit-0"], ["repair-tier", "--dry-run"], ["deletions"])
WITH_DAEMON = (["pause"], ["resume"], ["sync"])
PEERS = ["peers"]  # needs an MQTT broker, too


def ids(arguments: list[str]) -> str:
    return " ".join(arguments)


@pytest.mark.parametrize("arguments", ARRAYS, ids=ids)
def test_array_output_has_the_same_items_in_the_object(copied: Installation, arguments: list[str]) -> None:
    listed = copied.tierd(*arguments, "--json")
    within = copied.tierd(*arguments, "--json-object")

    assert within.exit_code == listed.exit_code == 0, within.output
    assert within.json() == {"items": listed.json(), "complete": True}


@pytest.mark.parametrize("arguments", LINES, ids=ids)
@pytest.mark.parametrize("is_sound", [True, False])
def test_line_output_has_the_same_items_in_the_object(
    copied: Installation, arguments: list[str], is_sound: bool
) -> None:
    if not is_sound:
        for log in sorted(copied.store_dir.rglob("*.log"))[:2]:
            log.unlink()
    listed = copied.tierd(*arguments, "--json")
    within = copied.tierd(*arguments, "--json-object")

    assert within.exit_code == listed.exit_code, within.output
    assert within.json() == {"items": listed.json_lines(), "complete": True}
    assert bool(within.json()["items"]) is (not is_sound and arguments != ["deletions"])


@pytest.mark.parametrize("arguments", WITH_DAEMON, ids=ids)
def test_output_from_the_daemon_has_the_same_items_in_the_object(copied: Installation, arguments: list[str]) -> None:
    with copied.daemon() as daemon:
        daemon.wait_until(lambda: daemon.partition("orders-0") is not None, what="the partition")
        listed = copied.tierd(*arguments, "orders-0", "--json").json()
        assert listed == ["orders-0"]
        assert copied.tierd(*arguments, "orders-0", "--json-object").json() == {"items": listed, "complete": True}


@pytest.mark.service("mqtt")
def test_list_of_peers_has_the_same_items_in_the_object(copied: Installation, mqtt_service: MqttService) -> None:
    copied.configure({"control": {"mqtt": {"address": mqtt_service.address}}})
    with copied.daemon() as daemon:
        daemon.wait_until(lambda: copied.tierd(*PEERS, "--json").json() != [], what="the daemon's presence")
        listed = copied.tierd(*PEERS, "--json").json()
        within = copied.tierd(*PEERS, "--json-object").json()

    assert [(each["online"], each["is_this"]) for each in listed] == [(True, True)]
    assert within == {"items": listed, "complete": True}


def test_every_command_with_a_json_list_has_the_object_shape() -> None:
    functions = {tuple(verb.words): getattr(import_module(verb.module), verb.function) for verb in VERBS}
    with_object = {words for words, function in functions.items() if "as_object" in signature(function).parameters}
    tested = [tuple(arguments) for arguments in (*ARRAYS, *LINES, *WITH_DAEMON, PEERS)]

    assert with_object == {words for words in functions for each in tested if each[: len(words)] == words}


def test_verify_checks_all_named_partitions(copied: Installation) -> None:
    for log in copied.store_dir.rglob("*.log"):
        log.unlink()

    def found(*names: str) -> set[str]:
        return {item["where"].split(":")[0] for item in copied.tierd("verify", *names, "--json").json_lines()}

    assert found("audit-0") == set()
    assert found("audit-0", "orders-0", "orders-0") == found("orders-0")
    assert len(copied.tierd("verify", "orders-0", "orders-0", "--json").json_lines()) == 3
    unknown = copied.tierd("verify", "orders-0", "nowhere-0", "--json-object")
    assert unknown.exit_code == 2
    assert unknown.json() == {"items": [], "complete": False}


@pytest.mark.parametrize("verb", ["copy", "expire"])
def test_command_without_once_equals_the_command_with_once(tierd: Installation, verb: str) -> None:
    plain = tierd.tierd(verb, "--json")
    assert plain.exit_code == 0, plain.output
    assert {each["partition"] for each in plain.json()} == {"orders-0", "audit-0"}
    assert [each["partition"] for each in tierd.tierd(verb, "audit-0", "--json").json()] == ["audit-0"]
    assert tierd.tierd(verb, "--once", "audit-0", "--json").exit_code == 0


def test_follow_is_refused_with_json_object(copied: Installation) -> None:
    refused = copied.tierd("segments", "orders-0", "--follow", "--json-object")

    assert refused.exit_code == 2
    assert "no end" in refused.stderr


_VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(items=st.lists(_VALUES), fails=st.booleans())
def test_json_object_is_one_value_with_all_items_although_the_command_fails(
    items: list[JsonValue], fails: bool
) -> None:
    output = io.StringIO()

    def run() -> None:
        with printed_lines(as_object=True) as print_item:
            for item in items:
                print_item(item)
            if fails:
                raise ValueError("the store went away")

    with redirect_stdout(output):
        if fails:
            with pytest.raises(ValueError, match="went away"):
                run()
        else:
            run()

    assert json.loads(output.getvalue()) == {"items": items, "complete": not fails}
