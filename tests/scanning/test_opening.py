"""Opening of readers: what an import costs, which file is read, hosts without log dirs and without metadata."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tierd
from tests.pipeline.source.small_tier import SmallTier
from tests.scanning.rows import offsets_of
from tierd.errors import ArrowMissingError, ConfigError, ForeignTierError, UnknownPartitionError

TIERED = [(0, n) for n in range(40)] + [(1, n) for n in range(20)]


def test_import_of_tierd_loads_neither_pyarrow_nor_the_daemon() -> None:
    program = (
        "import sys, tierd; print([n for n in ('pyarrow', 'numpy', 'tierd.app', 'tierd.scanning') if n in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_tierd_has_no_other_attributes_than_before() -> None:
    assert not hasattr(tierd, "writer")
    assert tierd.reader.__module__ == "tierd.scanning.opening"


def test_missing_pyarrow_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierd.scanning.opening.find_spec", lambda name: None)
    with pytest.raises(ArrowMissingError, match="the package pyarrow, which is not installed") as refused:
        tierd.reader("/etc/tierd/tierd.yaml")
    assert "requirements/arrow.txt" in refused.value.remedy
    assert importlib.util.find_spec("pyarrow")


def test_file_of_the_environment_is_read_without_an_argument(small: SmallTier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERD_CONFIG", str(small.installation.config_file))
    with tierd.reader() as tier:
        assert [topic.name for topic in tier.topics()] == ["orders"]


def test_fault_of_the_file_is_told_and_leaves_no_thread(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        tierd.reader(tmp_path / "none.yaml")
    assert refused.value.__notes__ == ["correct the file, then run tierd check-config"]


def test_host_without_the_log_dirs_reads_the_tier_by_the_metadata_store(small: SmallTier) -> None:
    shutil.rmtree(small.log_dir.path)
    small.installation.configure({"cluster_id": "dGllcmQtc3ludGhldGljLQ"})
    with tierd.reader(small.installation.config_file) as tier:
        assert offsets_of(tier.scan("orders").to_table()) == TIERED


def test_host_without_log_dirs_and_metadata_reads_the_tier_by_the_bucket(small: SmallTier) -> None:
    shutil.rmtree(small.log_dir.path)
    shutil.rmtree(small.installation.state_dir)
    with tierd.reader(small.installation.config_file, cluster_id="dGllcmQtc3ludGhldGljLQ") as tier:
        assert offsets_of(tier.scan("orders").to_table()) == TIERED


def test_bucket_is_asked_for_the_metadata_on_request(small: SmallTier) -> None:
    shutil.rmtree(small.installation.state_dir)
    with tierd.reader(small.installation.config_file, from_bucket=True) as tier:
        assert offsets_of(tier.scan("orders").to_table()) == TIERED[:40] + [(0, n) for n in range(40, 47)] + TIERED[40:]


def test_cluster_that_is_not_in_the_bucket_is_refused(small: SmallTier) -> None:
    with pytest.raises((UnknownPartitionError, ForeignTierError)):
        tierd.reader(small.installation.config_file, cluster_id="b3RoZXItY2x1c3Rlci1pZA")
