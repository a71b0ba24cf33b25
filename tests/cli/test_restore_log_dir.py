"""``tierd restore partition`` and ``log-dir``: plans, refusals, and restored directories of a stopped broker."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.log_dirs import CLUSTER_ID, FIRST_TIMESTAMP_MS, LogDirWriter, SegmentShape
from tests.pipeline.source.small_tier import SmallTier
from tests.scenarios.command import CommandResult
from tests.scenarios.installation import Installation
from tests.scenarios.warm_tierd import WarmTierd
from tierd.model import uuid_to_text

LAST_COPY = ("--mode", "last-copy", "--retention", "-1")


def restore(tierd: Installation, into: Path, *arguments: str, verb: tuple[str, ...] = ("partition",)) -> CommandResult:
    return tierd.tierd("restore", *verb, "--into", str(into), *arguments)


def planned(tierd: Installation, into: Path, *arguments: str, exit_code: int = 0) -> Mapping[str, Any]:
    ended = restore(tierd, into, *arguments, "--dry-run", "--json", verb=("partition", "orders-0"))
    assert ended.exit_code == exit_code, ended.output
    (plan,) = ended.json()["partitions"]
    return dict(plan)


def stored(tierd: Installation) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in tierd.store_dir.rglob("*") if path.is_file()}


def test_dry_run_prints_the_plan_and_changes_nothing(copied: Installation, into: Path) -> None:
    objects, files = stored(copied), sorted(into.rglob("*"))
    ended = restore(copied, into, *LAST_COPY, "--dry-run", verb=("partition", "orders-0"))
    assert ended.exit_code == 0, ended.output
    assert "orders-0" in ended.stdout
    assert "1 of 1 partitions: " in ended.stdout
    assert "the metadata is from the metadata store" in ended.stdout
    assert (stored(copied), sorted(into.rglob("*"))) == (objects, files)


def test_plan_as_json_has_offsets_segments_and_requests(copied: Installation, into: Path) -> None:
    plan = planned(copied, into, *LAST_COPY)
    assert (plan["partition"], plan["mode"], plan["refused"]) == ("orders-0", "last-copy", False)
    assert (plan["log_start_offset"], plan["end_offset"], plan["target_offset"]) == (0, 12, None)
    assert (plan["segments"], plan["fetch_requests"], plan["missing"], plan["findings"]) == (3, 9, [], [])


def test_restore_without_yes_prints_the_plan_and_is_refused(copied: Installation, into: Path) -> None:
    files = sorted(into.rglob("*"))
    ended = restore(copied, into, *LAST_COPY, verb=("partition", "orders-0"))
    assert ended.exit_code == 4, ended.output
    assert "1 of 1 partitions: " in ended.stdout
    assert "--yes carries it out" in ended.stderr
    assert sorted(into.rglob("*")) == files


def test_partition_that_the_tier_does_not_know_is_a_usage_error(copied: Installation, into: Path) -> None:
    ended = restore(copied, into, *LAST_COPY, verb=("partition", "orders-7"))
    assert ended.exit_code == 2, ended.output
    assert "has no partition orders-7" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("--to-offset", "3", "--to-time", "5"), "exclude each other", id="two targets"),
        pytest.param(("--by-timestamp",), "--by-timestamp needs --to-time", id="a rule without a time"),
        pytest.param(("--hold-retention", "--skip-expired"), "exclude each other", id="two treatments"),
        pytest.param(("--as", "other"), "--mode import", id="another name in another mode"),
        pytest.param(("--mode", "import", "--as", "../orders"), "--as: a topic's name", id="a path as a name"),
        pytest.param(("--to-time", "yesterday"), "is no time", id="no time"),
        pytest.param(("--retention", "soon"), "--retention", id="no duration"),
    ],
)
def test_arguments_that_contradict_each_other_are_usage_errors(
    tierd: Installation, into: Path, arguments: tuple[str, ...], message: str
) -> None:
    ended = restore(tierd, into, *LAST_COPY, *arguments, verb=("partition", "orders-0"))
    assert ended.exit_code == 2, ended.output
    assert message in " ".join(ended.output.replace("│", " ").split())


def test_target_offset_and_time_end_the_plan(copied: Installation, into: Path) -> None:
    assert planned(copied, into, *LAST_COPY, "--to-offset", "6")["end_offset"] == 6
    at = ("--to-time", str(FIRST_TIMESTAMP_MS + 2), "--by-timestamp")
    assert planned(copied, into, *LAST_COPY, *at)["end_offset"] == 2
    later = ("--to-time", str(FIRST_TIMESTAMP_MS + 1000), "--by-timestamp")
    assert planned(copied, into, *LAST_COPY, *later)["target_offset"] == 12


def test_time_without_positions_in_the_catalogue_is_refused(copied: Installation, into: Path) -> None:
    plan = planned(copied, into, *LAST_COPY, "--to-time", str(FIRST_TIMESTAMP_MS), exit_code=4)
    assert plan["findings"][0]["text"] == "the catalogue has no positions of it at or before the time"


def test_retention_that_is_not_known_refuses_old_records(copied: Installation, into: Path) -> None:
    refused = restore(copied, into, "--mode", "last-copy", "--yes", verb=("partition", "orders-0"))
    assert refused.exit_code == 4, refused.output
    assert "with Kafka's default, 7 days" in refused.stderr
    held = planned(copied, into, "--mode", "last-copy", "--hold-retention")
    assert [finding["severity"] for finding in held["findings"]] == ["warning"]


def test_hold_of_the_retention_without_a_connection_prints_the_commands(copied: Installation, into: Path) -> None:
    hold = ("--mode", "last-copy", "--hold-retention", "--dry-run")
    ended = restore(copied, into, *hold, verb=("partition", "orders-0"))
    assert ended.exit_code == 0, ended.output
    assert "retention orders: tierd cannot hold it: leadership.kafka is not configured" in ended.stdout
    command = "kafka-configs.sh --bootstrap-server HOST:9092 --alter --entity-type topics --entity-name orders"
    assert f"    {command} --add-config retention.ms=-1,retention.bytes=-1\n" in ended.stdout
    assert f"    {command} --delete-config retention.ms,retention.bytes\n" in ended.stdout
    answer = restore(copied, into, *hold, "--json", verb=("partition", "orders-0")).json()
    (held,) = answer["retention_holds"]
    assert (held["topic"], held["held_by_tierd"], held["before"]) == ("orders", False, None)


def test_plan_without_a_connection_says_that_leader_epochs_are_not_compared(copied: Installation, into: Path) -> None:
    ended = restore(copied, into, *LAST_COPY, "--dry-run", verb=("partition", "orders-0"))
    assert "warning leader epochs: not compared with those of the controller: leadership.kafka" in ended.stdout
    answer = restore(copied, into, *LAST_COPY, "--dry-run", "--json", verb=("partition", "orders-0")).json()
    assert (answer["unchecked_epochs"], answer["retention_holds"]) == ("leadership.kafka is not configured", [])


def test_release_of_retention_where_none_is_held_says_so(copied: Installation) -> None:
    ended = copied.tierd("restore", "release-retention")
    assert (ended.exit_code, ended.stdout) == (0, "tierd holds the retention of no topic\n")
    unknown = copied.tierd("restore", "release-retention", "orders")
    assert unknown.exit_code == 4, unknown.output


def test_replica_mode_needs_to_know_the_cleanup_policy(copied: Installation, into: Path) -> None:
    assert planned(copied, into, "--mode", "replica", exit_code=4)["refused"]
    copied.configure({"topics": {"defaults": {"cleanup_policy": "delete"}}})
    assert not planned(copied, into, "--mode", "replica")["refused"]
    copied.configure({"topics": {"defaults": {"cleanup_policy": "compact"}}})
    assert planned(copied, into, "--mode", "replica", exit_code=4)["left_out"]


def test_metadata_comes_from_the_bucket_where_the_state_directory_is_lost(copied: Installation, into: Path) -> None:
    known = planned(copied, into, *LAST_COPY)
    objects = stored(copied)
    shutil.rmtree(copied.state_dir)
    ended = restore(copied, into, *LAST_COPY, "--dry-run", "--json", verb=("partition", "orders-0"))
    assert ended.exit_code == 0, ended.output
    assert ended.json()["from_bucket"] is True
    (plan,) = ended.json()["partitions"]
    assert plan == known
    assert stored(copied) == objects
    assert not list(copied.root.rglob("metadata.db*"))


def test_metadata_store_of_another_tier_is_not_used(copied: Installation, into: Path) -> None:
    known = planned(copied, into, *LAST_COPY)
    shutil.rmtree(copied.state_dir)
    refused = copied.tierd("copy", "--once")
    assert refused.exit_code == 4, refused.output
    assert (copied.state_dir / "metadata.db").exists()
    ended = restore(copied, into, *LAST_COPY, "--dry-run", "--json", verb=("partition", "orders-0"))
    assert ended.exit_code == 0, ended.output
    assert ended.json()["from_bucket"] is True
    assert ended.json()["partitions"] == [known]


def test_metadata_store_that_cannot_be_read_is_not_needed(copied: Installation, into: Path) -> None:
    known = planned(copied, into, *LAST_COPY)
    (copied.state_dir / "metadata.db").write_bytes(b"no database" * 1000)
    for file in copied.state_dir.glob("metadata.db-*"):
        file.unlink()
    ended = restore(copied, into, *LAST_COPY, "--dry-run", verb=("partition", "orders-0"))
    assert ended.exit_code == 3, ended.output
    assert "restore with --from-bucket" in ended.stderr
    assert planned(copied, into, *LAST_COPY, "--from-bucket") == known


def test_bucket_is_read_on_demand(copied: Installation, into: Path) -> None:
    answers = [
        restore(copied, into, *LAST_COPY, "--dry-run", "--json", *extra, verb=("partition", "orders-0")).json()
        for extra in ([], ["--from-bucket"])
    ]
    assert [answer["from_bucket"] for answer in answers] == [False, True]
    assert answers[0]["partitions"] == answers[1]["partitions"]


def test_wiped_log_dir_needs_the_cluster_id(copied: Installation, into: Path) -> None:
    shutil.rmtree(into)
    into.mkdir()
    unknown = restore(copied, into, *LAST_COPY, "--dry-run", verb=("partition", "orders-0"))
    assert unknown.exit_code == 2, unknown.output
    assert "--cluster-id" in unknown.stderr
    known = restore(copied, into, *LAST_COPY, "--dry-run", "--cluster-id", CLUSTER_ID, verb=("partition", "orders-0"))
    assert known.exit_code == 0, known.output
    other = restore(copied, into, *LAST_COPY, "--dry-run", "--cluster-id", "b3RoZXItY2x1c3Rlci1pZA", verb=("log-dir",))
    assert other.exit_code == 2, other.output
    assert "has anything of cluster" in other.stderr


def test_lost_partition_directory_comes_back(copied: Installation, into: Path) -> None:
    before = copied.cat("orders-0")
    directory = into / "orders-0"
    logs = {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))[:3]}
    shutil.rmtree(directory)

    ended = restore(copied, into, *LAST_COPY, "--yes", "--json", verb=("partition", "orders-0"))

    assert ended.exit_code == 0, ended.output
    (outcome,) = ended.json()["restored"]
    assert (outcome["log_start_offset"], outcome["end_offset"], outcome["problem"]) == (0, 12, "")
    assert (outcome["merged_offset"], outcome["joined"], outcome["not_joined"]) == (None, [], [])
    assert {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))[:3]} == logs
    assert copied.cat("orders-0") == before[:12]
    inspected = copied.tierd("verify", "--deep")
    assert inspected.exit_code == 0, inspected.output


def test_end_that_is_left_on_the_old_disk_is_merged(copied: Installation, into: Path) -> None:
    before = copied.cat("orders-0")
    oldest = min((into / "orders-0").glob("*.log"))
    oldest.unlink()
    ended = restore(copied, into, *LAST_COPY, "--yes", verb=("partition", "orders-0"))
    assert ended.exit_code == 0, ended.output
    assert "offsets 0 to 15, the next one 16" in ended.stdout
    assert "moved aside: " in ended.stdout
    assert [record["offset"] for record in copied.cat("orders-0")] == [record["offset"] for record in before]


def test_end_on_the_old_disk_that_is_damaged_is_named(copied: Installation, into: Path) -> None:
    newest = max((into / "orders-0").glob("*.log"))
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    ended = restore(copied, into, *LAST_COPY, "--yes", "--json", verb=("partition", "orders-0"))
    assert ended.exit_code == 0, ended.output
    (outcome,) = ended.json()["restored"]
    (refusal,) = outcome["not_joined"]
    assert f"{newest.name}: a damaged batch at position " in refusal["reason"]


def test_old_directory_without_its_topic_id_is_named(copied: Installation, into: Path) -> None:
    (into / "orders-0" / "partition.metadata").unlink()
    ended = restore(copied, into, *LAST_COPY, "--yes", verb=("partition", "orders-0"))
    assert ended.exit_code == 0, ended.output
    assert f"  not joined: {into / 'orders-0'}: it has no partition.metadata with the topic id" in ended.stdout


def test_log_dir_restores_every_partition_of_the_tier(copied: Installation, into: Path) -> None:
    shutil.rmtree(into / "orders-0")
    ended = restore(copied, into, *LAST_COPY, "--yes", verb=("log-dir",))
    assert ended.exit_code == 0, ended.output
    assert "1 of 1 partitions are restored" in ended.stdout
    assert (into / "orders-0").is_dir()


def test_partition_in_another_log_dir_is_not_restored_where_the_configuration_has_links(
    copied: Installation, log_dir: LogDirWriter, tmp_path: Path
) -> None:
    empty, links = LogDirWriter(tmp_path / "kafka2").path, (tmp_path / "data", tmp_path / "data2")
    for link, path in zip(links, (log_dir.path, empty), strict=True):
        link.symlink_to(path)
    copied.configure({"log_dirs": [{"path": str(link), "owner": "kafka"} for link in links]})
    refused = restore(copied, links[1], *LAST_COPY, "--yes", verb=("partition", "orders-0"))
    assert refused.exit_code == 4, refused.output
    assert "has it: a broker does not start with a partition in two log dirs" in refused.output
    assert not (empty / "orders-0").exists()


@pytest.mark.parametrize("seconds", [1_700_000_000_000, ((1 << 63) - 1) // 1000], ids=["microseconds", "largest"])
def test_records_of_a_time_that_no_calendar_has_are_planned_restored_drilled_and_listed(
    warm: WarmTierd, tmp_path: Path, seconds: int
) -> None:
    """A broker takes any time from a producer, such as one that counts microseconds."""
    tier = SmallTier(tmp_path)
    tier.append(5, times_s=[seconds] * 5)
    tier.roll()
    tier.copy()
    into = tmp_path / "new"
    into.mkdir()
    for command in (
        ("restore", "partition", "orders-0", "--into", str(into), *LAST_COPY, "--dry-run"),
        ("restore", "partition", "orders-0", "--into", str(into), *LAST_COPY, "--yes"),
        ("drill",),
        ("topics",),
    ):
        ended = warm.run(*command, "--config", str(tier.installation.config_file))
        assert ended.exit_code == 0, ended.output
        assert f"{seconds * 1000} ms" in ended.stdout
    assert (into / "orders-0" / "00000000000000000000.log").exists()


def test_log_dir_takes_the_topics_that_match(copied: Installation, into: Path) -> None:
    ended = restore(copied, into, *LAST_COPY, "--dry-run", "--topic", "aud.*", verb=("log-dir",))
    assert ended.exit_code == 4, ended.output
    assert "no partition is left to restore" in ended.stderr


def test_damaged_segment_is_named_and_nothing_comes_into_the_log_dir(copied: Installation, into: Path) -> None:
    shutil.rmtree(into / "orders-0")
    damaged = sorted(path for path in copied.store_dir.rglob("*.log") if path.is_file())[1]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    ended = restore(copied, into, *LAST_COPY, "--yes", verb=("log-dir",))
    assert ended.exit_code == 1, ended.output
    assert "failed orders-0: " in ended.stdout
    assert "0 of 1 partitions are restored" in ended.stdout
    assert not (into / "orders-0").exists()


def test_import_takes_the_topic_id_of_the_empty_directory(copied: Installation, tmp_path: Path) -> None:
    cluster = LogDirWriter(tmp_path / "new")
    orders = cluster.add_partition("orders")
    cluster.write_checkpoints()
    ended = restore(
        copied, cluster.path, "--mode", "import", "--retention", "-1", "--yes", "--json", verb=("partition", "orders-0")
    )
    assert ended.exit_code == 0, ended.output
    (outcome,) = ended.json()["restored"]
    assert outcome["topic_id"] == uuid_to_text(orders.topic_id)
    assert (cluster.path / "orders-0" / "leader-epoch-checkpoint").read_text().split() == ["0", "1", "0", "0"]


def test_import_without_a_directory_of_the_topic_is_refused(copied: Installation, tmp_path: Path) -> None:
    cluster = LogDirWriter(tmp_path / "new")
    cluster.add_partition("audit")
    cluster.write_checkpoints()
    arguments = ("--mode", "import", "--retention", "-1", "--dry-run")
    ended = restore(copied, cluster.path, *arguments, verb=("partition", "orders-0"))
    assert ended.exit_code == 4, ended.output
    assert "create the topic" in ended.stderr


def test_import_that_is_run_again_finds_its_own_records_and_is_done(copied: Installation, tmp_path: Path) -> None:
    cluster = LogDirWriter(tmp_path / "new")
    cluster.add_partition("orders")
    cluster.write_checkpoints()
    arguments = ("--mode", "import", "--retention", "-1", "--yes", "--json")
    first = restore(copied, cluster.path, *arguments, verb=("log-dir",))
    assert first.exit_code == 0, first.output
    for checkpoint in cluster.path.glob("*-checkpoint"):
        checkpoint.unlink()
    journal = tmp_path / "new.tierd-restore" / "orders-0" / "1" / "journal"
    killed_behind = journal.read_text().index('{"stage":"swapped"}')
    journal.write_text(journal.read_text()[:killed_behind])

    again = restore(copied, cluster.path, *arguments, verb=("log-dir",))

    assert again.exit_code == 0, again.output
    assert again.json()["restored"] == first.json()["restored"]
    assert "orders 0 12" in (cluster.path / "recovery-point-offset-checkpoint").read_text()


def test_import_over_records_is_refused(copied: Installation, tmp_path: Path) -> None:
    cluster = LogDirWriter(tmp_path / "new")
    cluster.add_partition("orders").append([b"of the new cluster"])
    cluster.write_checkpoints()
    arguments = ("--mode", "import", "--retention", "-1", "--yes")
    ended = restore(copied, cluster.path, *arguments, verb=("partition", "orders-0"))
    assert ended.exit_code == 4, ended.output
    assert "has records already" in ended.stderr


def test_refused_plan_is_printed_as_json_too(copied: Installation, into: Path) -> None:
    ended = restore(copied, into, "--mode", "last-copy", "--yes", "--json", verb=("partition", "orders-0"))
    assert ended.exit_code == 4, ended.output
    answer = ended.json()
    assert answer["partitions"][0]["refused"] is True
    assert answer["restored"] == []


class TestStandby:
    """The log dir of a standby is a source beside the tier and the old disk."""

    @pytest.fixture
    def standby(self, copied: Installation, into: Path, tmp_path: Path) -> Path:
        """Return a log dir with a copy of the broker's directory, whose own directory is lost."""
        standby = tmp_path / "standby"
        shutil.copytree(into / "orders-0", standby / "orders-0")
        shutil.rmtree(into / "orders-0")
        return standby

    def test_records_beyond_the_tier_come_from_the_standby(
        self, copied: Installation, into: Path, standby: Path
    ) -> None:
        plan = planned(copied, into, *LAST_COPY, "--standby", str(standby))
        assert plan["joins"] == [{"directory": str(standby / "orders-0"), "start_offset": 12, "end_offset": 16}]
        ended = restore(copied, into, *LAST_COPY, "--standby", str(standby), "--yes", verb=("partition", "orders-0"))
        assert ended.exit_code == 0, ended.output
        assert f"joins orders-0: offsets 12 to 15 from {standby / 'orders-0'}" in ended.stdout
        assert f"  joined: offsets 12 to 15 from {standby / 'orders-0'}" in ended.stdout
        assert [record["offset"] for record in copied.cat("orders-0")] == list(range(16))

    def test_old_disk_and_standby_join_one_after_the_other(
        self, copied: Installation, into: Path, standby: Path
    ) -> None:
        shutil.copytree(standby / "orders-0", into / "orders-0")
        for log in sorted((standby / "orders-0").glob("*.log"))[:-1]:
            log.unlink()
        newest = max((into / "orders-0").glob("*.log"))
        newest.write_bytes(b"")
        arguments = (*LAST_COPY, "--standby", str(standby), "--yes", "--json")
        ended = restore(copied, into, *arguments, verb=("partition", "orders-0"))
        assert ended.exit_code == 0, ended.output
        assert ended.json()["restored"][0]["end_offset"] == 16

    def test_partition_that_only_the_standby_has_comes_back(
        self, copied: Installation, into: Path, standby: Path
    ) -> None:
        writer = LogDirWriter(standby).add_partition("new")
        writer.fill(rolled_segments=1, shape=SegmentShape())
        for verb in (("partition", "new-0"), ("log-dir",)):
            ended = restore(copied, into, *LAST_COPY, "--standby", str(standby), "--dry-run", "--json", verb=verb)
            assert ended.exit_code == 0, ended.output
            plan = next(each for each in ended.json()["partitions"] if each["partition"] == "new-0")
            assert (plan["segments"], plan["log_start_offset"], plan["refused"]) == (0, 0, False)
        ended = restore(copied, into, *LAST_COPY, "--standby", str(standby), "--yes", verb=("partition", "new-0"))
        assert ended.exit_code == 0, ended.output
        restored, copies = (
            b"".join(log.read_bytes() for log in sorted((log_dir / "new-0").glob("*.log")))
            for log_dir in (into, standby)
        )
        assert restored == copies != b""

    def test_host_that_was_lost_before_its_first_copy_comes_back(
        self, tierd: Installation, into: Path, tmp_path: Path
    ) -> None:
        standby, lost = tmp_path / "standby", tmp_path / "new-disk"
        shutil.copytree(into / "orders-0", standby / "orders-0")
        lost.mkdir()
        arguments = (*LAST_COPY, "--cluster-id", CLUSTER_ID)
        ended = restore(tierd, lost, *arguments, "--dry-run", verb=("log-dir",))
        assert (ended.exit_code, "nor the bucket has anything of cluster" in ended.stderr) == (2, True), ended.output
        ended = restore(tierd, lost, *arguments, "--standby", str(standby), "--yes", "--json", verb=("log-dir",))
        assert ended.exit_code == 0, ended.output
        assert [(each["partition"], each["end_offset"]) for each in ended.json()["restored"]] == [("orders-0", 16)]

    def test_damage_in_the_standby_is_named_and_not_joined(
        self, copied: Installation, into: Path, standby: Path
    ) -> None:
        newest = max((standby / "orders-0").glob("*.log"))
        data = bytearray(newest.read_bytes())
        data[60] ^= 1
        newest.write_bytes(data)
        arguments = (*LAST_COPY, "--standby", str(standby), "--yes", "--json")
        ended = restore(copied, into, *arguments, verb=("partition", "orders-0"))
        assert ended.exit_code == 0, ended.output
        (outcome,) = ended.json()["restored"]
        assert (outcome["end_offset"], outcome["joined"]) == (12, [])
        assert "a damaged batch" in outcome["not_joined"][0]["reason"]

    def test_log_dir_that_is_not_there_is_an_error(self, copied: Installation, into: Path, tmp_path: Path) -> None:
        ended = restore(copied, into, *LAST_COPY, "--standby", str(tmp_path / "gone"), verb=("log-dir",))
        assert ended.exit_code == 3, ended.output
        assert "name the log dir of a standby, or a copy of it" in ended.stderr

    def test_end_that_is_asked_for_and_a_standby_exclude_each_other(
        self, copied: Installation, into: Path, standby: Path
    ) -> None:
        arguments = (*LAST_COPY, "--standby", str(standby), "--to-offset", "5")
        assert restore(copied, into, *arguments, verb=("log-dir",)).exit_code == 2
