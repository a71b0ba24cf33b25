"""tierd erase without Spark: what is filed, listed, refused, cancelled, and kept from coming back."""

import base64
import json
from typing import Any

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation

OLD = {"topics": {"defaults": {"retention": "1d"}}}  # the log dir's records are of 2023
KEPT = {"topics": {"defaults": {"retention": -1}}}


def filed(tierd: Installation, *arguments: str) -> dict[str, Any]:
    ended = tierd.tierd("erase", "orders-0", *arguments, "--json")
    assert ended.exit_code == 0, ended.output
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def listed(tierd: Installation) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(tierd.tierd("erase", "--list", "--json").stdout)
    return answer


def test_one_thing_has_to_be_asked_for(copied: Installation) -> None:
    for arguments in ([], ["orders-0"], ["--key", "a"], ["--list", "--step"], ["orders-0", "--key-base64", "!"]):
        assert copied.tierd("erase", *arguments).exit_code == 2, arguments


def test_keys_come_as_text_as_base64_and_from_a_file_and_are_told_by_their_digests(copied: Installation) -> None:
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
    ended = copied.tierd("erase", "--report", request_id)
    assert ended.exit_code == 1, "it is not done"
    assert "reason: ticket 17" in ended.stdout
    assert "not covered:" in ended.stdout
    assert "orders-0" in copied.tierd("erase", "--list").stdout


def test_of_a_partition_that_nobody_knows_nothing_is_filed(copied: Installation) -> None:
    assert copied.tierd("erase", "nothing-0", "--key", "a").exit_code == 2
    assert listed(copied) == []


def test_a_step_says_what_a_request_waits_for(copied: Installation) -> None:
    filed(copied, "--key", "a")
    ended = copied.tierd("erase", "--step", "--json")
    assert ended.exit_code == 0, ended.output
    (stepped,) = json.loads(ended.stdout)
    assert "is to be looked through by a run" in stepped["problem"]


def test_a_cancelled_request_is_over(copied: Installation) -> None:
    request_id = filed(copied, "--key", "a")["request_id"]
    ended = copied.tierd("erase", "--cancel", request_id, "--json")
    assert (ended.exit_code, json.loads(ended.stdout)["phase"]) == (0, "cancelled")
    assert copied.tierd("erase", "--step", "--json").stdout.strip() == "[]"
    assert copied.tierd("erase", "--cancel", "AAAAAAAAAAAAAAAAAAAAAQ").exit_code == 1
    assert copied.tierd("erase", "--report", "nonsense").exit_code == 1


def test_an_attestation_needs_a_reason_and_a_request_that_waits_for_it(copied: Installation) -> None:
    request_id = filed(copied, "--key", "a")["request_id"]
    assert copied.tierd("erase", "--attest", request_id).exit_code == 2
    ended = copied.tierd("erase", "--attest", request_id, "--reason", "looked")
    assert ended.exit_code == 4, ended.output
    assert "is at searching, not at versions" in ended.stderr


def test_what_may_hold_a_key_is_not_taken_back(copied: Installation, log_dir: LogDirWriter) -> None:
    copied.configure(OLD)
    assert copied.tierd("expire", "--once").exit_code == 0
    copied.configure(KEPT)
    request_id = filed(copied, "--key", "a")["request_id"]
    ended = copied.tierd("undelete", "orders-0", "--all", "--force")
    assert ended.exit_code == 4, ended.output
    assert f"may hold keys that request {request_id} erases" in ended.stderr
    copied.tierd("erase", "--cancel", request_id)
    ended = copied.tierd("undelete", "orders-0", "--all")
    assert ended.exit_code == 0, ended.output


def test_a_running_daemon_files_and_steps(copied: Installation) -> None:
    with copied.daemon() as daemon:
        daemon.wait_ready()
        request_id = filed(copied, "--key", "a")["request_id"]
        assert [each["request_id"] for each in listed(copied)] == [request_id]
        (stepped,) = json.loads(copied.tierd("erase", "--step", "orders-0", "--json").stdout)
        assert stepped["request_id"] == request_id
        assert copied.tierd("erase", "--cancel", request_id).exit_code == 0


def test_request_tells_that_it_removes_batches_that_are_not_opened(copied: Installation) -> None:
    told = copied.tierd("erase", "orders-0", "--key", "alice", "--remove-unread")
    assert told.exit_code == 0, told.output
    assert "removes unread: batches that unpack to more than tierd opens go whole" in told.stdout
    plain = copied.tierd("erase", "orders-0", "--key", "bob", "--json").json()
    assert plain["removes_unread"] is False
    refused = copied.tierd("erase", "--list", "--remove-unread")
    assert refused.exit_code == 2
    assert "name its keys" in refused.output
