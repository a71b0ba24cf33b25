"""expire, undelete, deletions and delete-partition, with and without a daemon."""

import json
from datetime import UTC, datetime

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation

OLD = {"topics": {"defaults": {"retention": "1d"}}}  # the log dir's records are of 2023
KEPT = {"topics": {"defaults": {"retention": -1}}}
NOT_COPIED = {"topics": {"defaults": {"copy": False}}}
STATE_OF = {"COPY_SEGMENT_FINISHED": "readable", "DELETE_SEGMENT_STARTED": "in grace"}


def states(tierd: Installation) -> list[str]:
    return [STATE_OF[segment["state"]] for segment in tierd.segments("orders-0")]


def read_offsets(tierd: Installation) -> list[int]:
    return [record["offset"] for record in tierd.cat("orders-0")]


@pytest.fixture
def expired(copied: Installation, log_dir: LogDirWriter) -> Installation:
    """Return the installation with all three segments in their grace, and deleted by the broker."""
    copied.configure(OLD)
    ended = copied.tierd("expire", "--once")
    assert ended.exit_code == 0, ended.output
    for base in (0, 4, 8):
        for file in (log_dir.path / "orders-0").glob(f"{base:020d}.*"):
            if file.suffix != ".snapshot":
                file.unlink()
    return copied


def test_dry_run_without_retention_plans_no_deletion(copied: Installation) -> None:
    answer = copied.tierd("expire", "--once", "--dry-run", "--json").json()
    assert [each["deletions"] for each in answer] == [[]] * len(answer)


def test_dry_run_lists_deletions_with_reasons_and_deletes_no_segment(copied: Installation) -> None:
    copied.configure(OLD)
    ended = copied.tierd("expire", "--once", "--dry-run", "orders-0")
    assert ended.exit_code == 0, ended.output
    assert "3 segments would go" in ended.stdout
    assert "retention_time" in ended.stdout
    (answer,) = copied.tierd("expire", "--once", "--dry-run", "--json", "orders-0").json()
    assert answer["new_log_start_offset"] == 12
    assert [planned["start_offset"] for planned in answer["deletions"]] == [0, 4, 8]
    assert states(copied) == ["readable"] * 3
    assert copied.tierd("deletions", "--json").stdout == ""


def test_expired_segments_are_not_read_and_stay_in_their_grace(expired: Installation) -> None:
    assert states(expired) == ["in grace"] * 3
    assert read_offsets(expired) == [12, 13, 14, 15]
    lines = [json.loads(line) for line in expired.tierd("deletions", "orders-0", "--json").stdout.splitlines()]
    assert [(line["step"], line["start_offset"], line["reason"]) for line in lines] == [
        ("tombstoned", 0, "retention_time"),
        ("tombstoned", 4, "retention_time"),
        ("tombstoned", 8, "retention_time"),
    ]
    assert "tombstoned" in expired.tierd("deletions", "--since", "1h").stdout
    assert expired.tierd("deletions", "other-0", "--json").stdout == ""


def test_segments_table_shows_the_end_of_the_grace_of_an_expired_segment(expired: Installation) -> None:
    shown = expired.tierd("segments", "orders-0").stdout
    for segment in expired.segments("orders-0"):
        until = datetime.fromtimestamp(segment["soft_delete"]["delete_after_ms"] / 1000, UTC)
        assert f"(retention_time, kept until {until:%Y-%m-%d %H:%M:%S} UTC)" in shown


def test_undelete_of_segments_that_retention_would_delete_again_is_refused(expired: Installation) -> None:
    for arguments in (["--all"], ["--all", "--dry-run"]):
        ended = expired.tierd("undelete", "orders-0", *arguments)
        assert ended.exit_code == 4, ended.output
        assert "retention would delete it again" in ended.stderr
        assert "raise the topic's retention first" in ended.stderr
    assert states(expired) == ["in grace"] * 3


def test_undelete_after_a_longer_retention_restores_all_segments(expired: Installation) -> None:
    expired.configure(KEPT)
    ended = expired.tierd("undelete", "orders-0", "--all")
    assert ended.exit_code == 0, ended.output
    assert "3 segments are back, the log begins at 0" in ended.stdout
    assert states(expired) == ["readable"] * 3
    assert read_offsets(expired) == list(range(16))
    again = expired.tierd("expire", "--once", "--json")
    assert [each["deletions"] for each in again.json()] == [[]] * len(again.json())
    assert expired.tierd("verify", "--deep").exit_code == 0


def test_undelete_restores_one_segment_by_its_id(expired: Installation) -> None:
    expired.configure(KEPT)
    newest = expired.segments("orders-0")[-1]["segment_id"]
    answer = expired.tierd("undelete", "orders-0", "--segment", newest, "--json").json()
    assert [segment["log_start_offset"] for segment in answer["segments"]] == [8]
    assert states(expired) == ["in grace", "in grace", "readable"]
    assert read_offsets(expired) == list(range(8, 16))


@pytest.mark.parametrize("arguments", [[], ["--all", "--segment", "x" * 22], ["--segment", "short"]])
def test_undelete_with_wrong_arguments_exits_with_2(expired: Installation, arguments: list[str]) -> None:
    assert expired.tierd("undelete", "orders-0", *arguments).exit_code == 2


def test_undelete_of_an_unknown_segment_names_it(expired: Installation) -> None:
    ended = expired.tierd("undelete", "orders-0", "--segment", "A" * 22)
    assert ended.exit_code == 1
    assert "cannot be taken back" in ended.stderr


def test_expired_segments_without_a_grace_are_deleted_at_once(copied: Installation) -> None:
    copied.configure({**OLD, "expire": {"grace": "0s"}})
    assert copied.tierd("expire", "--once").exit_code == 0
    assert copied.segments("orders-0") == []
    assert copied.tierd("verify").exit_code == 0
    steps = [json.loads(line)["step"] for line in copied.tierd("deletions", "--json").stdout.splitlines()]
    assert sorted(steps) == ["deleted"] * 3 + ["tombstoned"] * 3


def test_delete_partition_without_yes_is_refused(copied: Installation) -> None:
    ended = copied.tierd("delete-partition", "orders-0")
    assert ended.exit_code == 4
    assert "--yes" in ended.stderr
    assert states(copied) == ["readable"] * 3


def test_delete_partition_that_is_still_copied_is_refused(copied: Installation) -> None:
    ended = copied.tierd("delete-partition", "orders-0", "--yes")
    assert ended.exit_code == 4, ended.output
    assert "still copied" in ended.stderr
    assert "--force" in ended.stderr
    assert states(copied) == ["readable"] * 3


def test_delete_partition_with_at_once_deletes_at_once(copied: Installation) -> None:
    copied.configure(NOT_COPIED)
    ended = copied.tierd("delete-partition", "orders-0", "--yes", "--now")
    assert ended.exit_code == 0, ended.output
    lines = [json.loads(line) for line in copied.tierd("deletions", "--json").stdout.splitlines()]
    assert [line["reason"] for line in lines if line["step"] == "deleted"] == ["topic_deleted"] * 3
    assert copied.tierd("delete-partition", "orders-0", "--yes").exit_code != 0


def test_deleted_partition_is_kept_in_its_grace_and_cannot_be_undeleted(copied: Installation) -> None:
    copied.configure(NOT_COPIED)
    assert copied.tierd("delete-partition", "orders-0", "--yes").exit_code == 0
    assert states(copied) == ["in grace"] * 3
    ended = copied.tierd("undelete", "orders-0", "--all")
    assert ended.exit_code == 4, ended.output
    assert "none of it comes back" in ended.stderr


def test_running_daemon_expires_and_undeletes(tierd: Installation) -> None:
    with tierd.daemon() as daemon:
        daemon.wait_copied({"orders-0": 11})
        answer = tierd.tierd("expire", "--once", "--dry-run", "--json", "orders-0").json()
        assert [each["deletions"] for each in answer] == [[]]
    tierd.configure(OLD)
    with tierd.daemon() as daemon:
        daemon.wait_until(lambda: states(tierd) == ["in grace"] * 3, what="the expiration")
        assert tierd.tierd("expire", "--once").exit_code == 0
        refused = tierd.tierd("undelete", "orders-0", "--all")
        assert refused.exit_code == 4, refused.output
        back = tierd.tierd("undelete", "orders-0", "--all", "--force")
        assert back.exit_code == 0, back.output
        daemon.wait_until(lambda: states(tierd) == ["in grace"] * 3, what="what retention does again")
        refused = tierd.tierd("delete-partition", "orders-0", "--yes", "--now")
        assert refused.exit_code == 4, refused.output
        deleted = tierd.tierd("delete-partition", "orders-0", "--yes", "--now", "--force")
        assert deleted.exit_code == 0, deleted.output
        daemon.wait_until(lambda: "partition_deleted" in daemon.log_tail(), what="the end of the partition's tier")


def test_undelete_by_the_daemon_needs_no_readable_configuration_file(expired: Installation) -> None:
    expired.configure(KEPT)
    with expired.daemon() as daemon:
        whole = expired.config_file.read_text()
        # A shell lacks the credentials that systemd passes to the daemon; and the file is being edited.
        of_systemd = {"encryption": {"keys": [{"id": "2026", "key": "credential:tier-key"}], "active_key": "2026"}}
        expired.configure({"remote": of_systemd})
        taken = expired.tierd("undelete", "orders-0", "--all", "--dry-run", "--json")
        assert (taken.exit_code, len(taken.json()["segments"])) == (0, 3), taken.output
        expired.config_file.write_text(whole.replace('"topics"', '"topcis"'))
        taken = expired.tierd("undelete", "orders-0", "--all")
        assert taken.exit_code == 0, taken.output
        assert "run tierd check-config" in taken.stderr
        looked = expired.tierd("expire", "--dry-run", "--json")
        assert looked.exit_code == 0, looked.output
        assert daemon.is_ready()
    assert expired.tierd("expire", "--dry-run").exit_code == 2, "without a daemon the file decides"
    expired.config_file.write_text(whole)
    assert states(expired) == ["readable"] * 3
