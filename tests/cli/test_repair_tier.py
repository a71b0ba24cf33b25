"""``tierd verify`` and ``tierd repair-tier`` over a real directory: findings, repairs, refusals."""

from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation

FINISHED, DELETING = "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED"


def objects(tierd: Installation, suffix: str) -> list[Path]:
    return sorted(path for path in tierd.store_dir.rglob(f"*{suffix}") if path.is_file())


def states(tierd: Installation) -> list[tuple[int, str]]:
    return sorted((segment["start_offset"], segment["state"]) for segment in tierd.segments("orders-0"))


def kinds(tierd: Installation, *options: str) -> list[str]:
    return [str(finding["kind"]) for finding in tierd.tierd("verify", "--json", *options).json_lines()]


def test_repair_of_a_sound_tier_does_nothing(copied: Installation) -> None:
    for arguments in (["--dry-run"], ["--deep"], []):
        ended = copied.tierd("repair-tier", *arguments)
        assert (ended.exit_code, ended.stdout) == (0, "nothing to do\n"), ended.output


def test_repair_that_removes_objects_is_printed_and_refused_without_yes(copied: Installation) -> None:
    objects(copied, ".log")[0].unlink()
    refused = copied.tierd("repair-tier")
    assert refused.exit_code == 4, refused.output
    assert "planned copy-again (needs --yes): orders-0:" in refused.stdout
    assert "repair-tier --yes" in refused.stderr
    planned = copied.tierd("repair-tier", "--dry-run", "--json")
    assert planned.exit_code == 0, planned.output
    (action,) = planned.json_lines()
    assert (action["action"], action["result"], action["dangerous"]) == ("copy-again", "planned", True)
    assert "uploaded again from 00000000000000000000 of this host" in action["why"]
    assert states(copied) == [(0, FINISHED), (4, FINISHED), (8, FINISHED)]


def test_confirmed_repair_leaves_a_sound_tier(copied: Installation) -> None:
    objects(copied, ".log")[0].unlink()
    objects(copied, ".manifest")[1].write_bytes(b"{")
    assert set(kinds(copied)) == {"missing-object", "damaged-manifest"}
    done = copied.tierd("repair-tier", "--yes")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("2 done\n")
    assert (
        states(copied) == [(0, FINISHED), (0, DELETING), (4, FINISHED), (4, DELETING), (8, FINISHED)]
        or len(states(copied)) == 5
    )
    verified = copied.tierd("verify", "--deep")
    assert (verified.exit_code, verified.stdout) == (0, "nothing wrong\n"), verified.output
    assert copied.tierd("repair-tier", "--yes").stdout == "nothing to do\n"
    assert '"reason": "damaged"' in copied.tierd("deletions", "--json").stdout


def test_damage_that_cannot_be_repaired_is_reported(copied: Installation, log_dir: LogDirWriter) -> None:
    objects(copied, ".log")[0].unlink()
    for file in (log_dir.path / "orders-0").glob(f"{0:020d}.*"):
        file.unlink()
    ended = copied.tierd("repair-tier", "orders-0", "--yes")
    assert ended.exit_code == 1, ended.output
    assert "cannot: orders-0:" in ended.stdout
    assert "next: run it on every broker that has, or had, a replica" in ended.stdout


def test_repair_beside_a_running_daemon_is_refused(copied: Installation) -> None:
    objects(copied, ".log")[0].unlink()
    with copied.daemon():
        planned = copied.tierd("repair-tier", "--dry-run")
        assert planned.exit_code == 0, planned.output
        refused = copied.tierd("repair-tier", "--yes")
        assert refused.exit_code == 4, refused.output
        assert "stop the daemon meanwhile" in refused.stderr


def test_the_identity_of_the_tier_is_written_again(copied: Installation) -> None:
    (identity,) = copied.store_dir.rglob("tierd.json")
    before = identity.read_bytes()
    identity.unlink()
    assert kinds(copied) == ["missing-tier-identity"]
    done = copied.tierd("repair-tier")
    assert done.exit_code == 0, done.output
    assert identity.read_bytes() == before
    assert kinds(copied) == []


def test_identity_of_an_emptied_store_is_not_written_again(copied: Installation) -> None:
    for path in objects(copied, ""):
        path.unlink()  # as behind a mount point without its mount
    ended = copied.tierd("repair-tier", "--yes")
    assert ended.exit_code in {1, 3}, ended.output
    assert objects(copied, "tierd.json") == []


@pytest.mark.parametrize("min_age", ["1h", "0"])
def test_young_orphans_are_kept_unless_min_age_is_zero(copied: Installation, min_age: str) -> None:
    first = objects(copied, ".log")[0]
    orphan = first.with_name(first.name[:21] + "A" * 22 + ".log")
    orphan.write_bytes(b"left behind")
    assert kinds(copied) == ["orphan"]
    ended = copied.tierd("repair-tier", "--min-age", min_age)
    assert (ended.exit_code, orphan.exists()) == ((0, False) if min_age == "0" else (1, True)), ended.output
