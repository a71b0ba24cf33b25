from pathlib import Path

import pytest

from tierd.errors import ConfigError
from tierd.log import BrokerIdentity, FoundIdentity, MetaProperties, broker_identity, read_identities
from tierd.log.dirs.broker_identity import LogDirAbsence

A, B = Path("/a"), Path("/b")
FILE = Path("/etc/tierd.yaml")


def properties(cluster: str = "c", node: int | None = 1) -> MetaProperties:
    return MetaProperties(cluster, node, None)


def test_broker_identity_is_read_from_the_log_dirs() -> None:
    found = {A: properties(), B: properties()}
    assert broker_identity(FILE, cluster_id=None, node_id=None, found=found) == BrokerIdentity("c", 1)


def test_broker_identity_missing_in_the_log_dirs_is_taken_from_the_configuration() -> None:
    assert broker_identity(
        FILE, cluster_id="x", node_id=0, found={A: LogDirAbsence.NO_META_PROPERTIES}
    ) == BrokerIdentity("x", 0)
    assert broker_identity(FILE, cluster_id=None, node_id=7, found={A: properties(node=None)}).node_id == 7


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "found", "fault"),
    [
        (None, None, {A: LogDirAbsence.NO_META_PROPERTIES}, "cluster_id is not set"),
        ("c", None, {A: properties(node=None)}, "node_id is not set"),
        (None, None, {A: properties(), B: properties(cluster="d")}, "cluster_id is ambiguous: c in /a, d in /b"),
        (None, None, {A: properties(), B: properties(node=2)}, "node_id is ambiguous: 1 in /a, 2 in /b"),
        (None, None, {A: LogDirAbsence.NO_DIRECTORY}, "log_dirs: /a does not exist: correct the path"),
        ("c", None, {A: LogDirAbsence.NO_DIRECTORY, B: properties(node=None)}, "log_dirs: /a does not exist"),
        ("other", None, {A: properties()}, "c in /a, other in this file"),
    ],
)
def test_missing_or_contradictory_identity_is_a_fault(
    cluster_id: str | None, node_id: int | None, found: dict[Path, FoundIdentity], fault: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        broker_identity(FILE, cluster_id=cluster_id, node_id=node_id, found=found)
    assert fault in str(refused.value)
    assert str(FILE) in str(refused.value)


def test_missing_cluster_id_and_node_id_are_reported_together() -> None:
    with pytest.raises(ConfigError) as refused:
        broker_identity(FILE, cluster_id=None, node_id=None, found={A: LogDirAbsence.NO_META_PROPERTIES})
    assert len(refused.value.faults) == 2


def test_missing_log_dir_is_the_only_fault_of_an_unknown_identity() -> None:
    with pytest.raises(ConfigError) as refused:
        broker_identity(FILE, cluster_id=None, node_id=None, found={A: LogDirAbsence.NO_DIRECTORY})
    assert [fault.message for fault in refused.value.faults] == [
        "log_dirs: /a does not exist: correct the path, or mount its disk"
    ]


def test_missing_log_dir_is_no_fault_when_another_has_the_identity() -> None:
    found: dict[Path, FoundIdentity] = {A: LogDirAbsence.NO_DIRECTORY, B: properties()}
    assert broker_identity(FILE, cluster_id=None, node_id=None, found=found) == BrokerIdentity("c", 1)


def test_log_dir_without_meta_properties_differs_from_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = read_identities([tmp_path / "empty", tmp_path / "missing"])
    assert found == {
        tmp_path / "empty": LogDirAbsence.NO_META_PROPERTIES,
        tmp_path / "missing": LogDirAbsence.NO_DIRECTORY,
    }
