"""Commands of the metadata store: follow, export, import, and rebuild from the bucket."""

import base64
import contextlib
import json
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import WarmInstallation
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.command import TIERD, CommandResult
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.warm_tierd import WarmTierd
from tierd.model import TopicPartition


def metadata_command(tierd: Installation, *arguments: str) -> CommandResult:
    return tierd.tierd("metadata", *arguments)


def drop_metadata(tierd: Installation) -> None:
    for file in tierd.state_dir.glob("metadata.db*"):
        file.unlink()


def without_event(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in s.items() if key != "event_timestamp_ms"} for s in segments]


@pytest.fixture
def another(copied: Installation, log_dir: LogDirWriter, tmp_path: Path, warm: WarmTierd) -> Installation:
    """Return an installation over the same log dirs and bucket with an empty metadata store of its own."""
    return WarmInstallation(tmp_path / "another", [log_dir.path], remote=copied.settings["remote"], warm=warm)


def test_tier_reads_the_same_after_export_and_import(
    copied: Installation, another: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "metadata.jsonl"
    ended = metadata_command(copied, "export", str(file))
    assert ended.exit_code == 0, ended.output
    ended = metadata_command(another, "import", str(file))
    assert ended.exit_code == 0, ended.output
    assert "2 partitions" in ended.stdout
    assert another.segments("orders-0") == copied.segments("orders-0")
    assert another.cat("orders-0") == copied.cat("orders-0")
    assert another.tierd("copy", "--once").exit_code == 0  # its identity is the tier's
    assert another.tierd("verify", "--deep").exit_code == 0


def file_erasure(tierd: Installation) -> str:
    ended = tierd.tierd("erase", "request", "orders-0", "--key", "alice", "--json")
    assert ended.exit_code == 0, ended.output
    return str(ended.json()["request_id"])


def erasures(tierd: Installation) -> dict[str, str]:
    return {each["request_id"]: each["phase"] for each in tierd.tierd("erase", "list", "--json").json()}


def test_requests_of_erasure_continue_after_export_and_import(
    copied: Installation, another: Installation, tmp_path: Path
) -> None:
    request_id, file = file_erasure(copied), tmp_path / "metadata.jsonl"
    assert metadata_command(copied, "export", str(file)).exit_code == 0
    assert metadata_command(another, "import", str(file)).exit_code == 0
    assert erasures(another) == {request_id: "searching"}
    (stepped,) = another.tierd("erase", "step", "--json").json()
    assert "is to be looked through by a run" in stepped["problem"]


def test_rebuild_keeps_reports_of_erasures_and_names_requests_whose_keys_are_lost(copied: Installation) -> None:
    given_up, waiting = file_erasure(copied), file_erasure(copied)
    assert copied.tierd("erase", "withdraw", given_up).exit_code == 0
    report = copied.tierd("erase", "status", given_up, "--json").json()
    drop_metadata(copied)
    for dry_run in (["--dry-run"], []):
        ended = copied.tierd("rebuild-metadata", "--json", *dry_run)
        assert ended.exit_code == 1, ended.output
        answer = ended.json()
        assert answer["erasures"] == 2
        (problem,) = answer["problems"]
        assert problem["kind"] == "erasure to file again"
        assert waiting in problem["where"]
    assert copied.tierd("erase", "status", given_up, "--json").json() == report
    assert erasures(copied) == {given_up: "cancelled", waiting: "cancelled"}
    lost = copied.tierd("erase", "status", waiting, "--json").json()
    assert "file the request again" in lost["problem"]
    ended = copied.tierd("rebuild-metadata", "--json")
    assert (ended.exit_code, ended.json()["erasures"]) == (0, 0), "the request is done"
    assert copied.tierd("verify", "--deep").exit_code == 0, "reports are no foreign objects"


def on_postgres(dsn: str) -> Settings:
    return {"metadata": {"backend": "postgres", "postgres": {"dsn": dsn}}}


def on_redis(url: str) -> Settings:
    return {"metadata": {"backend": "redis", "redis": {"url": url}}}


@pytest.mark.service("postgres")
@pytest.mark.service("redis")
def test_metadata_moves_from_sqlite_to_postgres_and_on_to_redis(
    copied: Installation, postgres_dsn: str, redis_url: str, tmp_path: Path
) -> None:
    segments, records = copied.segments("orders-0"), copied.cat("orders-0")
    for number, settings in enumerate((on_postgres(postgres_dsn), on_redis(redis_url))):
        file = tmp_path / f"{number}.jsonl"
        assert metadata_command(copied, "export", str(file)).exit_code == 0
        copied.configure(settings)
        ended = metadata_command(copied, "import", str(file))
        assert ended.exit_code == 0, ended.output
        assert copied.segments("orders-0") == segments
        assert copied.cat("orders-0") == records
        ended = copied.tierd("copy", "--once")  # its identity is the tier's
        assert ended.exit_code == 0, ended.output
        assert copied.tierd("verify", "--deep").exit_code == 0


@pytest.mark.service("postgres")
@pytest.mark.service("redis")
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
def test_metadata_is_rebuilt_into_servers_from_the_bucket(
    tierd: Installation, postgres_dsn: str, redis_url: str, *, is_encrypted: bool
) -> None:
    key = {"id": "first", "key": base64.b64encode(bytes(32)).decode()}
    if is_encrypted:
        tierd.configure({"remote": {"encryption": {"enabled": True, "active_key": "first", "keys": [key]}}})
    ended = tierd.tierd("copy", "--once")
    assert ended.exit_code == 0, ended.output
    segments, records = tierd.segments("orders-0"), tierd.cat("orders-0")
    for settings in (on_postgres(postgres_dsn), on_redis(redis_url)):
        tierd.configure(settings)
        ended = tierd.tierd("rebuild-metadata")
        assert ended.exit_code == 0, ended.output
        assert without_event(tierd.segments("orders-0")) == without_event(segments)
        assert tierd.cat("orders-0") == records
        ended = tierd.tierd("verify", "--deep")
        assert ended.exit_code == 0, ended.output


def test_rebuild_of_an_encrypted_tier_accepts_unauthenticated_objects_only_with_the_option(
    tierd: Installation,
) -> None:
    key = {"id": "first", "key": base64.b64encode(bytes(32)).decode()}
    tierd.configure({"remote": {"encryption": {"enabled": True, "active_key": "first", "keys": [key]}}})
    assert tierd.tierd("copy", "--once").exit_code == 0
    segments, records = tierd.segments("orders-0"), tierd.cat("orders-0")
    manifest = min(tierd.store_dir.rglob("*-*/0/*.manifest"))
    tombstone = {"reason": "retention-time", "deleted_at_ms": 0, "delete_after_ms": 1, "broker_id": 1}
    manifest.with_suffix(".tombstone").write_text(json.dumps({"format_version": 1, **tombstone}))

    drop_metadata(tierd)
    ended = tierd.tierd("rebuild-metadata")
    assert ended.exit_code == 1
    assert "conflict unauthenticated" in ended.stdout
    assert "--accept-unauthenticated" in ended.stderr
    assert without_event(tierd.segments("orders-0")) == without_event(segments)
    assert tierd.cat("orders-0") == records

    drop_metadata(tierd)
    ended = tierd.tierd("rebuild-metadata", "--accept-unauthenticated", "--json")
    assert ended.exit_code == 0, ended.output
    assert [(p["severity"], p["kind"]) for p in ended.json()["problems"]] == [("note", "unauthenticated")]
    assert ended.json()["deleting"] == 1


def test_export_begins_with_cluster_and_store(copied: Installation) -> None:
    lines = metadata_command(copied, "export").stdout.splitlines()
    header, end = json.loads(lines[0]), json.loads(lines[-1])
    assert (header["format"], header["format_version"]) == ("tierd-metadata", 1)
    assert set(header) == {"format", "format_version", "cluster_id", "store_id", "exported_ms", "tiers"}
    assert end["partitions"] == 2


def test_export_replaces_no_file_and_leaves_no_temporary_file(copied: Installation, tmp_path: Path) -> None:
    file = tmp_path / "exports" / "metadata.jsonl"
    assert metadata_command(copied, "export", str(file)).exit_code == 3
    file.parent.mkdir()
    file.write_text("kept")
    ended = metadata_command(copied, "export", str(file))
    assert (ended.exit_code, file.read_text()) == (4, "kept")
    assert "exists already" in ended.stderr
    assert list(file.parent.iterdir()) == [file]


def test_an_import_into_a_filled_store_is_refused(copied: Installation, another: Installation, tmp_path: Path) -> None:
    file = tmp_path / "metadata.jsonl"
    assert metadata_command(copied, "export", str(file)).exit_code == 0
    another.configure({"remote": {"filesystem": {"path": str(tmp_path / "other-bucket")}}})
    assert another.tierd("copy", "--once").exit_code == 0
    ended = metadata_command(another, "import", str(file))
    assert ended.exit_code == 4
    assert "not empty" in ended.stderr


def test_import_of_a_damaged_export_changes_no_row(copied: Installation, another: Installation, tmp_path: Path) -> None:
    file = tmp_path / "metadata.jsonl"
    assert metadata_command(copied, "export", str(file)).exit_code == 0
    file.write_bytes(file.read_bytes()[:-10])
    ended = metadata_command(another, "import", str(file))
    assert ended.exit_code == 1
    assert "cut short" in ended.stderr
    assert another.segments("orders-0") == []


def test_tier_reads_the_same_after_a_rebuild_of_its_lost_metadata(copied: Installation) -> None:
    segments, records = copied.segments("orders-0"), copied.cat("orders-0")
    drop_metadata(copied)
    dry = copied.tierd("rebuild-metadata", "--dry-run", "--json")
    assert dry.exit_code == 0, dry.output
    assert (dry.json()["segments"], dry.json()["written"]) == (3, 0)
    assert copied.segments("orders-0") == []
    ended = copied.tierd("rebuild-metadata")
    assert ended.exit_code == 0, ended.output
    assert "3 segments of 1 partitions" in ended.stdout
    assert without_event(copied.segments("orders-0")) == without_event(segments)
    assert copied.cat("orders-0") == records
    assert copied.tierd("copy", "--once").exit_code == 0
    assert without_event(copied.segments("orders-0")) == without_event(segments)
    assert copied.tierd("verify", "--deep").exit_code == 0


def test_rebuild_after_a_refused_copy_restores_the_lost_metadata(copied: Installation) -> None:
    segments = copied.segments("orders-0")
    drop_metadata(copied)
    assert copied.tierd("copy", "--once").exit_code == 4  # the tier is another store's
    assert copied.tierd("rebuild-metadata").exit_code == 0
    assert copied.tierd("copy", "--once").exit_code == 0
    assert without_event(copied.segments("orders-0")) == without_event(segments)


def test_rebuild_reports_damage_in_the_bucket_and_exits_with_1(copied: Installation) -> None:
    drop_metadata(copied)
    next(copied.store_dir.rglob("*.manifest")).write_bytes(b"{")
    ended = copied.tierd("rebuild-metadata", "--json")
    assert ended.exit_code == 1
    report = ended.json()
    assert [problem["severity"] for problem in report["problems"]] == ["damage"]
    assert set(report["problems"][0]) == {"severity", "kind", "where", "what"}
    assert report["segments"] == 2


def test_a_store_that_differs_from_the_bucket_is_refused(copied: Installation) -> None:
    manifest = next(copied.store_dir.rglob("*.manifest"))
    manifest.unlink()
    before = copied.segments("orders-0")
    ended = copied.tierd("rebuild-metadata")
    assert ended.exit_code == 4
    assert "differs" in ended.output
    assert copied.segments("orders-0") == before


def test_a_rebuild_beside_a_daemon_is_refused(copied: Installation) -> None:
    with copied.daemon():
        assert copied.tierd("rebuild-metadata").exit_code == 4


def test_segments_are_followed_until_ctrl_c(copied: Installation, log_dir: LogDirWriter) -> None:
    command = [str(TIERD), "segments", "orders-0", "--follow", "--json", "--config", str(copied.config_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            present = [json.loads(process.stdout.readline()) for _ in range(3)]
            assert [line["before"] for line in present] == [None] * 3
            assert [line["after"] for line in present] == copied.segments("orders-0")
            orders = log_dir.partitions[TopicPartition("orders", 0)]
            orders.roll()
            orders.append([b"one more"])
            log_dir.write_checkpoints()
            assert copied.tierd("copy", "--once").exit_code == 0
            change = json.loads(process.stdout.readline())
            assert change["after"]["start_offset"] == 12
            assert change["revision"] > present[-1]["revision"]
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, said) == (0, "")


@pytest.mark.spec("remote-tiering 73")
@pytest.mark.spec("remote-tiering 74")
def test_both_managers_get_their_settings_and_the_identity_of_the_broker(tierd: Installation, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere" / "rows.db"
    file.parent.mkdir()
    remote = {"key_prefix": "a/b", "chunk_size": "1MiB"}
    tierd.configure({"node_id": 1, "metadata": {"sqlite": {"path": str(file)}}, "remote": remote})
    ended = tierd.tierd("copy", "--once")
    assert ended.exit_code == 0, ended.output
    manifest = json.loads(next((tierd.store_dir / "a" / "b").rglob("*.manifest")).read_bytes())
    assert manifest["broker_id"] == 1
    assert manifest["log"]["chunk_size_bytes"] == 1 << 20
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        pattern = f"v1/{manifest['cluster_id']}/%/row"
        rows = connection.execute("SELECT value FROM kv WHERE key LIKE ?", [pattern]).fetchall()
    assert {json.loads(value[1:])["broker"] for (value,) in rows} == {1}


@pytest.mark.spec("remote-tiering 72")
def test_metadata_topic_is_not_tiered(tierd: Installation, log_dir: LogDirWriter) -> None:
    internal = log_dir.add_partition("__remote_log_metadata")
    for _ in range(3):
        internal.append([b"event"])
        internal.roll()
    log_dir.write_checkpoints()
    assert tierd.tierd("copy", "--once").exit_code == 0
    assert not list(tierd.store_dir.rglob("__remote_log_metadata*"))
    assert tierd.segments("orders-0")
