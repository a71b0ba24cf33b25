"""``tierd restore store``: stores filled from the tier, without daemon and broker."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.pipeline.source.small_tier import SmallTier
from tests.restore.stores.store_fixtures import content
from tests.scenarios.command import CommandResult
from tests.scenarios.warm_tierd import WarmTierd
from tierd.log import NewRecord, Producer, encode_batch
from tierd.restore.stores.rocks_store import RocksStore

NEWEST = {b"k0": b"v18", b"k1": b"v19", b"k2": b"v17"}


@pytest.fixture
def tier(tmp_path: Path) -> SmallTier:
    """Return a tier with offsets 0 to 19, and 5 more in the active segment."""
    tier = SmallTier(tmp_path)
    tier.add_segment(20)
    tier.append(5)
    tier.log_dir.write_checkpoints()
    return tier


Restore = Callable[..., CommandResult]


@pytest.fixture
def restore(warm: WarmTierd) -> Restore:
    """Return a function that runs ``tierd restore store orders-0``."""

    def run(tier: SmallTier, into: Path, *arguments: str) -> CommandResult:
        config = str(tier.installation.config_file)
        return warm.run("restore", "store", "orders-0", "--into", str(into), "--config", config, *arguments)

    return run


def stores_of(result: CommandResult, *, exit_code: int = 0) -> list[dict[str, Any]]:
    assert result.exit_code == exit_code, result.output
    listed: list[dict[str, Any]] = result.json()
    return listed


def content_of(directory: Path) -> dict[bytes, bytes]:
    connection = sqlite3.connect(directory / "orders-0" / "sqlite" / "store.sqlite")
    try:
        return dict(connection.execute("SELECT key, value FROM data"))
    finally:
        connection.close()


def test_dry_run_prints_the_plan_and_writes_nothing(tier: SmallTier, restore: Restore, tmp_path: Path) -> None:
    into = tmp_path / "stores"
    ended = restore(tier, into, "--dry-run")
    assert ended.exit_code == 0, ended.output
    assert str(into / "orders-0" / "sqlite") in ended.stdout
    (plan,) = stores_of(restore(tier, into, "--dry-run", "--json"))
    assert (plan["start_offset"], plan["end_offset"], plan["log_end_offset"]) == (0, 20, 20)
    assert (plan["is_complete"], plan["records"], plan["problem"]) == (False, None, None)
    assert plan["tier_bytes"] > 0
    assert not into.exists()


def test_store_is_filled_from_the_bucket_alone_and_a_second_run_goes_on(
    tier: SmallTier, restore: Restore, tmp_path: Path
) -> None:
    into = tmp_path / "stores"
    tier.installation.configure({"cluster_id": "dGllcmQtc3ludGhldGljLQ"})
    shutil.move(tier.log_dir.path, tmp_path / "lost")
    (store,) = stores_of(restore(tier, into, "--from-bucket", "--json"))
    assert (store["is_complete"], store["records"], store["next_offset"]) == (True, 20, 20)
    assert content_of(into) == NEWEST

    ended = restore(tier, into)
    assert ended.exit_code == 0, ended.output
    assert "orders-0: 0 records up to offset 20" in ended.stdout
    assert "1 of 1 stores are complete" in ended.stdout
    assert content_of(into) == NEWEST


def test_log_dirs_of_the_host_are_read_on_request_once_the_cleanup_of_the_topic_is_known(
    tier: SmallTier, restore: Restore, tmp_path: Path
) -> None:
    refused = restore(tier, tmp_path / "stores", "--local")
    assert refused.exit_code == 4, refused.output
    assert "give --compacted or --not-compacted" in refused.stderr

    (store,) = stores_of(restore(tier, tmp_path / "stores", "--local", "--compacted", "--json"))
    assert (store["next_offset"], store["is_compacted"]) == (25, True)
    assert content_of(tmp_path / "stores") == {b"k0": b"v24", b"k1": b"v22", b"k2": b"v23"}


def test_store_ends_at_the_last_stable_offset_where_a_transaction_is_open_at_the_end(
    tier: SmallTier, restore: Restore, tmp_path: Path
) -> None:
    undecided = [NewRecord(b"k0", b"undecided", 0)]
    tier.partition().append_batch(encode_batch(undecided, producer=Producer(7, 0, 0), is_transactional=True), 1)
    tier.append(5)
    tier.log_dir.write_checkpoints()

    (store,) = stores_of(restore(tier, tmp_path / "stores", "--local", "--not-compacted", "--json"))

    assert (store["end_offset"], store["log_end_offset"]) == (25, 31)
    assert (store["is_complete"], store["next_offset"]) == (True, 25)
    assert content_of(tmp_path / "stores") == {b"k0": b"v24", b"k1": b"v22", b"k2": b"v23"}


def test_metrics_of_the_restore_are_in_the_file(tier: SmallTier, restore: Restore, tmp_path: Path) -> None:
    metrics = tmp_path / "restore.prom"
    ended = restore(tier, tmp_path / "stores", "--metrics-file", str(metrics))
    assert ended.exit_code == 0, ended.output
    lines = metrics.read_text().splitlines()
    assert "tierd_restore_records_total 20.0" in lines
    assert 'tierd_restore_remaining_records{partition="0",topic="orders"} 0.0' in lines
    assert not [line for line in lines if not line.startswith(("#", "tierd_restore_"))]
    assert metrics.stat().st_mode & 0o777 == 0o644
    refused = restore(tier, tmp_path / "stores", "--metrics-file", str(tmp_path / "nowhere" / "restore.prom"))
    assert refused.exit_code == 4, refused.output
    assert "name another --metrics-file" in refused.stderr


def test_rocksdb_store_keeps_timestamps_on_request(tier: SmallTier, restore: Restore, tmp_path: Path) -> None:
    ended = restore(tier, tmp_path / "stores", "--kind", "rocksdb", "--timestamped")
    assert ended.exit_code == 0, ended.output
    found = content(RocksStore("orders-0"), tmp_path / "stores" / "orders-0" / "rocksdb")
    assert found[b"k0"] == (18_000).to_bytes(8, "big") + b"v18"


def test_values_of_two_forms_do_not_come_into_one_store(tier: SmallTier, restore: Restore, tmp_path: Path) -> None:
    into = tmp_path / "stores"
    assert restore(tier, into).exit_code == 0
    before = content_of(into)

    ended = restore(tier, into, "--timestamped")

    assert ended.exit_code == 1, ended.output
    assert "without timestamps" in ended.stderr
    assert "name another --into" in ended.stderr
    assert content_of(into) == before


def test_stores_are_not_written_into_a_log_dir(tier: SmallTier, restore: Restore, tmp_path: Path) -> None:
    log_dir, link = tier.log_dir.path, tmp_path / "data"
    link.symlink_to(log_dir)
    other_broker = LogDirWriter(tmp_path / "other").path
    before = sorted([*log_dir.rglob("*"), *other_broker.rglob("*")])
    for into in (log_dir, link, log_dir / "stores", other_broker):
        for options in (["--dry-run"], []):
            refused = restore(tier, into, *options)
            assert refused.exit_code == 4, refused.output
            assert "is in the log dir" in refused.stderr
            assert "outside of the log dirs of brokers" in refused.stderr
    assert sorted([*log_dir.rglob("*"), *other_broker.rglob("*")]) == before


def test_directory_that_cannot_be_made_is_named(tier: SmallTier, restore: Restore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    into = tmp_path / "file" / "stores"
    failed = restore(tier, into)
    assert failed.exit_code == 3, failed.output
    assert failed.stderr.splitlines()[-2].startswith(f"tierd: {tmp_path / 'file'}")
    assert "name a directory --into that this user may write" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_failed_store_is_named_with_its_remedy_and_exits_with_1(
    tier: SmallTier, restore: Restore, tmp_path: Path
) -> None:
    directory = tmp_path / "stores" / "orders-0" / "sqlite"
    directory.mkdir(parents=True)
    (directory / "letters.txt").write_text("mine")
    ended = restore(tier, tmp_path / "stores")
    assert ended.exit_code == 1, ended.output
    assert "holds other files, such as letters.txt" in ended.stderr
    assert "0 of 1 stores are complete" in ended.stdout
