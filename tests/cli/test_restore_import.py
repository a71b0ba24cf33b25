"""Imports into new topics: resumed runs, and topics whose partition count changed."""

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest

from tests.cli.catalogues import seen, write_catalogue
from tests.cli.conftest import WarmInstallation
from tests.cli.test_restore_faults import content
from tests.cli.test_restore_log_dir import LAST_COPY, restore
from tests.fakes.log_dirs import CLUSTER_ID, FIRST_TIMESTAMP_MS, LogDirWriter, make_batch
from tests.scenarios.command import CommandResult
from tests.scenarios.installation import Installation
from tests.scenarios.warm_tierd import WarmTierd
from tierd.model import TopicIdPartition

PARTITIONS = 3
OLD_ID, NEW_ID = UUID(int=7), UUID(int=8)
IMPORT = ("--mode", "import", "--retention", "-1", "--cluster-id", CLUSTER_ID)


@pytest.fixture
def grown(tmp_path: Path, warm: WarmTierd) -> Installation:
    """Return a tier with three partitions of a topic that had one at first."""
    lost = LogDirWriter(tmp_path / "lost")
    for number in range(PARTITIONS):
        writer = lost.add_partition("grown", number, topic_id=OLD_ID)
        for segment in range(3):
            if segment:
                writer.roll()
            writer.append([b"value %d" % n for n in range(4)])
    lost.write_checkpoints()
    tierd = WarmInstallation(tmp_path / "tierd", [lost.path], warm=warm)
    assert tierd.tierd("copy", "--once").exit_code == 0
    return tierd


def new_topic(path: Path, *, partitions: int) -> Path:
    """Return the log dir of a stopped broker that has a new topic without records."""
    new = LogDirWriter(path)
    for number in range(partitions):
        new.add_partition("grown", number, topic_id=NEW_ID)
    new.write_checkpoints()
    return new.path


def imported(tierd: Installation, into: Path) -> CommandResult:
    return restore(tierd, into, *IMPORT, "--yes", "--json", verb=("log-dir",))


def test_import_that_was_killed_at_any_step_of_its_last_partition_is_resumed(
    grown: Installation, tmp_path: Path
) -> None:
    into = new_topic(tmp_path / "new", partitions=PARTITIONS)
    first = imported(grown, into)
    assert first.exit_code == 0, first.output
    before = content(into)
    journal = tmp_path / "new.tierd-restore" / "grown-2" / "1" / "journal"
    lines = journal.read_text().splitlines(keepends=True)
    assert [json.loads(line)["stage"] for line in lines[-4:]] == ["staged", "swapped", "checkpointed", "done"]

    for lost in range(4):
        journal.write_text("".join(lines[: len(lines) - lost]))

        again = imported(grown, into)

        assert again.exit_code == 0, again.output
        assert [each["end_offset"] for each in again.json()["restored"]] == [8] * PARTITIONS
        assert content(into) == before


@pytest.mark.parametrize("other", [(), ("--to-offset", "4")], ids=["same arguments", "other arguments"])
def test_import_over_records_that_a_broker_has_added_to_an_earlier_import_is_refused(
    grown: Installation, tmp_path: Path, other: tuple[str, ...]
) -> None:
    into = new_topic(tmp_path / "new", partitions=1)
    assert imported(grown, into).exit_code == 0
    (into / "grown-0" / "00000000000000000008.log").write_bytes(make_batch([b"new"], base_offset=8))
    before = content(into)

    refused = restore(grown, into, *IMPORT, *other, "--yes", verb=("partition", "grown-0"))

    assert refused.exit_code == 4, refused.output
    assert "grown-0 in the log dir has records already" in refused.stderr
    assert content(into) == before


def test_partitions_that_the_new_topic_does_not_have_are_named_and_left_out(
    grown: Installation, tmp_path: Path
) -> None:
    into = new_topic(tmp_path / "new", partitions=2)

    ended = imported(grown, into)

    assert ended.exit_code == 0, ended.output
    plans = {plan["partition"]: plan for plan in ended.json()["partitions"]}
    assert [plan["left_out"] for _, plan in sorted(plans.items())] == [False, False, True]
    assert "has no directory grown-2" in plans["grown-2"]["findings"][0]["text"]
    assert sorted(each["partition"] for each in ended.json()["restored"]) == ["grown-0", "grown-1"]
    assert not (into / "grown-2").exists()


def test_new_topic_may_have_more_partitions(grown: Installation, tmp_path: Path) -> None:
    into = new_topic(tmp_path / "new", partitions=PARTITIONS + 1)
    before = content(into / f"grown-{PARTITIONS}")

    ended = imported(grown, into)

    assert ended.exit_code == 0, ended.output
    assert len(ended.json()["restored"]) == PARTITIONS
    assert content(into / f"grown-{PARTITIONS}") == before


@pytest.fixture
def seen_at_first(grown: Installation) -> Installation:
    """Return the tier with a catalogue whose early positions have the first partition alone."""
    partitions = [TopicIdPartition(OLD_ID, "grown", number) for number in range(PARTITIONS)]
    early = seen(partitions[0], node_id=1, taken_ms=1_000_000, end_offset=5)
    late_ms = FIRST_TIMESTAMP_MS + 1_000_000
    late = [seen(each, node_id=1, taken_ms=late_ms + n, end_offset=7) for n, each in enumerate(partitions)]
    asyncio.run(write_catalogue(grown.store_dir, positions=[early, *late]))
    return grown


def restored_to(tierd: Installation, into: Path, time_ms: int) -> CommandResult:
    into.mkdir(exist_ok=True)
    to_time = (*LAST_COPY, "--cluster-id", CLUSTER_ID, "--to-time", str(time_ms), "--yes", "--json")
    return restore(tierd, into, *to_time, verb=("log-dir",))


def test_partitions_that_are_younger_than_the_time_are_left_out_and_named(
    seen_at_first: Installation, tmp_path: Path
) -> None:
    into = tmp_path / "new"
    ended = restored_to(seen_at_first, into, 1_000_000)
    assert ended.exit_code == 0, ended.output
    plans = {each["partition"]: each for each in ended.json()["partitions"]}
    assert {name: plan["left_out"] for name, plan in plans.items()} == {
        "grown-0": False,
        "grown-1": True,
        "grown-2": True,
    }
    assert "is younger than the time" in plans["grown-1"]["findings"][0]["text"]
    assert sorted(path.name for path in into.glob("grown-*")) == ["grown-0"]

    alone = restore(seen_at_first, into, *LAST_COPY, "--to-time", "1000000", "--dry-run", verb=("partition", "grown-1"))
    assert alone.exit_code == 4, alone.output


def test_partition_without_positions_but_with_records_before_the_time_refuses_the_plan(
    seen_at_first: Installation, tmp_path: Path
) -> None:
    refused = restored_to(seen_at_first, tmp_path / "new", FIRST_TIMESTAMP_MS + 2)
    assert refused.exit_code == 4, refused.output
    assert "grown-1: the catalogue has no positions of it at or before the time" in refused.stderr
