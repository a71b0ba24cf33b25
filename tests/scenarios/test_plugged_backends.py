"""Daemon whose metadata and objects are in the stores of another package, installed as pip installs one."""

import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.installed_package import EXAMPLE_BACKEND, install
from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.scenarios.command import run_tierd
from tests.scenarios.installation import Installation
from tests.scenarios.warm_tierd import WarmTierd
from tierd.config import load_config
from tierd.pipeline.access import TierAccess

SHAPE = SegmentShape(batches=4, records_per_batch=5)
RECORDS = 3 * 4 * 5

EXECUTOR = """
import pickle, sys
from pathlib import Path
from tierd.model import ByteRange

access = pickle.loads(Path(sys.argv[1]).read_bytes())
with access.open() as tier:
    (partition,) = tier.partitions()
    segments = tier.view(partition).list()
    size = sum(len(tier.read(segment, ByteRange(0, segment.size_bytes - 1))) for segment in segments)
    print(partition.topic_partition, len(segments), size)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install the package; return the path that finds it."""
    return install(EXAMPLE_BACKEND, tmp_path_factory.mktemp("installed") / "site")


@pytest.fixture(scope="module")
def warm_with_package(site: str) -> Iterator[WarmTierd]:
    """Answer commands quickly, with the package on the path."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", site)
        warm = WarmTierd()
        assert warm.daemons, "it starts with this path as well"
    with warm:
        yield warm


@pytest.fixture
def tierd(site: str, warm_with_package: WarmTierd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    monkeypatch.setenv("PYTHONPATH", site)
    for folder in reversed(site.split(os.pathsep)):
        monkeypatch.syspath_prepend(folder)
    log_dir = write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=3, shape=SHAPE)
    return Installation(
        tmp_path / "tierd",
        [log_dir.path],
        remote={"backend": "acme", "plugin": {"path": str(tmp_path / "objects.db")}},
        settings={"metadata": {"backend": "acme", "plugin": _rows(tmp_path)}},
        warm=warm_with_package,
    )


def _rows(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "password").write_text("open sesame\n")
    return {"path": str(tmp_path / "rows.db"), "password_file": str(tmp_path / "password")}


def test_daemon_and_commands_use_the_stores_of_another_package(tierd: Installation, tmp_path: Path) -> None:
    with tierd.daemon() as daemon:
        daemon.wait_copied({"synthetic-0": RECORDS - 1})
        checked = tierd.ask("check-config", "--online")
        assert checked.exit_code == 0, checked.output
        assert "writable, and refuses a writer that is not the latest" in " ".join(checked.stdout.split())
    assert len(tierd.segments("synthetic-0")) == 3
    assert len(tierd.cat("synthetic-0")) >= RECORDS
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output
    assert not (tierd.state_dir / "metadata.db").exists()
    with sqlite3.connect(tmp_path / "rows.db") as rows, sqlite3.connect(tmp_path / "objects.db") as objects:
        keys = [key for (key,) in rows.execute("SELECT key FROM rows")]
        kept = [key for (key,) in objects.execute("SELECT key FROM objects")]
    assert keys
    assert all(key.startswith("acme/v1/") for key in keys)
    assert sum(key.endswith(".log") for key in kept) == 3
    assert [key for key in (*keys, *kept) if "self-test" in key] == []


def test_metadata_in_the_store_of_another_package_is_rebuilt_from_its_objects(
    tierd: Installation, tmp_path: Path
) -> None:
    with tierd.daemon() as daemon:
        daemon.wait_copied({"synthetic-0": RECORDS - 1})
    before = tierd.segments("synthetic-0")
    for file in tmp_path.glob("rows.db*"):
        file.unlink()
    rebuilt = tierd.ask("rebuild-metadata")
    assert rebuilt.exit_code == 0, rebuilt.output
    assert [each["segment_id"] for each in tierd.segments("synthetic-0")] == [each["segment_id"] for each in before]


def test_another_process_opens_the_tier_with_the_stores_of_another_package(tierd: Installation, tmp_path: Path) -> None:
    with tierd.daemon() as daemon:
        daemon.wait_copied({"synthetic-0": RECORDS - 1})
    sizes = [each["size_bytes"] for each in tierd.segments("synthetic-0")]
    access = TierAccess.from_config(load_config(tierd.config_file, os.environ), tierd.config_file)
    (tmp_path / "access").write_bytes(pickle.dumps(access))
    ended = subprocess.run(
        [sys.executable, "-c", EXECUTOR, str(tmp_path / "access")], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, f"synthetic-0 3 {sum(sizes)}\n"), ended.stderr


def test_missing_package_of_a_backend_is_a_fault_for_check_config_and_daemon(
    tierd: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")
    for verb in ("check-config", "run", "segments"):
        ended = run_tierd(verb, *(["synthetic-0"] if verb == "segments" else []), "--config", str(tierd.config_file))
        assert ended.exit_code == 2, ended.output
        said = " ".join(ended.output.split())
        assert "metadata.backend: 'acme' is not sqlite, postgres or redis, and no installed package provides it" in said
        assert "remote.backend: 'acme' is not filesystem, s3, gcs or azure" in said


def test_contract_suites_run_in_a_package_outside_the_tests_of_tierd(tmp_path: Path) -> None:
    """The suites are imported from the installed tierd, and pytest runs with its strictest settings."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "create or told or prefix"]
    ended = subprocess.run(
        [*command, "-c", str(EXAMPLE_BACKEND / "pyproject.toml"), f"--rootdir={EXAMPLE_BACKEND}", "--no-header"],
        cwd=EXAMPLE_BACKEND,
        env={**os.environ, "PYTHONPATH": install(EXAMPLE_BACKEND, tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "passed" in ended.stdout
    assert "skipped" not in ended.stdout


def test_production_imports_no_pytest() -> None:
    imports = "from tierd.app import *; import sys, tierd.app.daemon.daemon, tierd.pipeline.source"
    program = f"{imports}; print('pytest' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stdout == "False\n", ended.stderr
