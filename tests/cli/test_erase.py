"""tierd erase without Spark: requests filed, listed, refused and cancelled, and segments kept from an undelete."""

import base64
import shlex
from typing import Any

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation
from tests.scenarios.warm_tierd import WarmTierd

OLD = {"topics": {"defaults": {"retention": "1d"}}}  # the log dir's records are of 2023
KEPT = {"topics": {"defaults": {"retention": -1}}}


def filed(tierd: Installation, *arguments: str) -> dict[str, Any]:
    ended = tierd.tierd("erase", "request", "orders-0", *arguments, "--json")
    assert ended.exit_code == 0, ended.output
    answer: dict[str, Any] = ended.json()
    return answer


def listed(tierd: Installation) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = tierd.tierd("erase", "list", "--json").json()
    return answer


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["request"],
        ["request", "orders-0"],
        ["request", "--key", "a"],
        ["request", "orders-0", "--key-base64", "!"],
        ["request", "orders-0", "--keys-file", "/nowhere"],
        ["status"],
        ["withdraw"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_usage_mistake_exits_with_2(tierd: Installation, arguments: list[str]) -> None:
    assert tierd.tierd("erase", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('orders-0 --key alice --reason "ticket 17"', 'request orders-0 --key alice --reason "ticket 17"'),
        ("--key-base64 AA== orders-0 --now", "request --key-base64 AA== orders-0 --now"),
        ("--keys-file=keys orders-0", "request --keys-file=keys orders-0"),
        ("--list", "list"),
        ("orders-0 --list --json", "list orders-0 --json"),
        ("--report ID --json", "status ID --json"),
        ("--report=ID", "status ID"),
        ("--config file.yaml --cancel ID", "withdraw ID --config file.yaml"),
        ('--attest ID --reason "seen in the portal"', 'attest ID --reason "seen in the portal"'),
        ("--step orders-0", "step orders-0"),
    ],
)
def test_old_spelling_is_refused_with_the_new_spelling(warm: WarmTierd, old: str, new: str) -> None:
    ended = warm.run("erase", *shlex.split(old))
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.splitlines() == [
        "tierd: erase is a group of verbs",
        f"  next: tierd erase {shlex.join(shlex.split(new))}",
    ]


def test_keys_are_given_as_text_base64_or_file_and_shown_as_digests(copied: Installation) -> None:
    file = copied.config_file.parent / "keys"
    file.write_bytes(b"one\n\nm\xc3\xbcller\n")
    encoded = base64.b64encode(b"\x00\xff").decode()
    request = filed(copied, "--key", "two", "--key-base64", encoded, "--keys-file", str(file), "--reason", "ticket 17")
    assert (request["keys"], request["phase"], request["reason"]) == (4, "searching", "ticket 17")
    assert (request["tier_end_offset"], request["end_offset"]) == (12, 16)
    assert len(set(request["key_sha256"])) == 4
    assert "offsets 12 to 15 in the broker's log" in request["not_covered"][1]
    ((_, request_id, partition),) = [(each["keys"], each["request_id"], each["partition"]) for each in listed(copied)]
    assert (request_id, partition) == (request["request_id"], "orders-0")
    ended = copied.tierd("erase", "status", request_id)
    assert ended.exit_code == 1, "the request is not done"
    assert "reason: ticket 17" in ended.stdout
    assert "not covered:" in ended.stdout
    assert "orders-0" in copied.tierd("erase", "list").stdout


def test_request_for_an_unknown_partition_is_not_filed(copied: Installation) -> None:
    assert copied.tierd("erase", "request", "nothing-0", "--key", "a").exit_code == 2
    assert listed(copied) == []


def test_step_of_a_request_names_its_reason_to_wait(copied: Installation) -> None:
    filed(copied, "--key", "a")
    ended = copied.tierd("erase", "step", "--json")
    assert ended.exit_code == 0, ended.output
    (stepped,) = ended.json()
    assert "is to be looked through by a run" in stepped["problem"]


def test_cancelled_request_is_ended(copied: Installation) -> None:
    request_id = filed(copied, "--key", "a")["request_id"]
    ended = copied.tierd("erase", "withdraw", request_id, "--json")
    assert (ended.exit_code, ended.json()["phase"]) == (0, "cancelled")
    assert copied.tierd("erase", "step", "--json").stdout.strip() == "[]"
    assert copied.tierd("erase", "withdraw", "AAAAAAAAAAAAAAAAAAAAAQ").exit_code == 1
    assert copied.tierd("erase", "status", "nonsense").exit_code == 1


def test_an_attestation_needs_a_reason_and_a_request_that_waits_for_it(copied: Installation) -> None:
    request_id = filed(copied, "--key", "a")["request_id"]
    assert copied.tierd("erase", "attest", request_id).exit_code == 2
    ended = copied.tierd("erase", "attest", request_id, "--reason", "looked")
    assert ended.exit_code == 4, ended.output
    assert "is at searching, not at versions" in ended.stderr


def test_undelete_of_a_segment_that_may_hold_an_erased_key_is_refused(
    copied: Installation, log_dir: LogDirWriter
) -> None:
    copied.configure(OLD)
    assert copied.tierd("expire", "--once").exit_code == 0
    copied.configure(KEPT)
    request_id = filed(copied, "--key", "a")["request_id"]
    ended = copied.tierd("undelete", "orders-0", "--all", "--force")
    assert ended.exit_code == 4, ended.output
    assert f"may hold keys that request {request_id} erases" in ended.stderr
    copied.tierd("erase", "withdraw", request_id)
    ended = copied.tierd("undelete", "orders-0", "--all")
    assert ended.exit_code == 0, ended.output


def test_running_daemon_files_and_steps_requests(copied: Installation) -> None:
    with copied.daemon() as daemon:
        daemon.wait_ready()
        request_id = filed(copied, "--key", "a")["request_id"]
        assert [each["request_id"] for each in listed(copied)] == [request_id]
        (stepped,) = copied.tierd("erase", "step", "orders-0", "--json").json()
        assert stepped["request_id"] == request_id
        assert copied.tierd("erase", "withdraw", request_id).exit_code == 0


def test_request_reports_that_it_removes_unread_batches(copied: Installation) -> None:
    told = copied.tierd("erase", "request", "orders-0", "--key", "alice", "--remove-unread")
    assert told.exit_code == 0, told.output
    assert "removes unread: batches that unpack to more than tierd opens go whole" in told.stdout
    plain = copied.tierd("erase", "request", "orders-0", "--key", "bob", "--json").json()
    assert plain["removes_unread"] is False
    refused = copied.tierd("erase", "list", "--remove-unread")
    assert refused.exit_code == 2
