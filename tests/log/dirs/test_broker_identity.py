from pathlib import Path

import pytest

from tierd.errors import ConfigError
from tierd.log import BrokerIdentity, FoundIdentity, MetaProperties, broker_identity, read_identities
from tierd.log.dirs.broker_identity import LogDirAbsence

A, B = Path("/a"), Path("/b")
FILE = Path("/etc/tierd.yaml")


def properties(cluster: str = "c", node: int | None = 1) -> MetaProperties:
    return MetaProperties(cluster, node, None)


def test_the_log_dirs_say_who_they_are() -> None:
    found = {A: properties(), B: properties()}
    assert broker_identity(FILE, cluster_id=None, node_id=None, found=found) == BrokerIdentity("c", 1)


def test_what_no_log_dir_says_is_configured() -> None:
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
def test_what_is_missing_or_contradictory_is_a_fault(
    cluster_id: str | None, node_id: int | None, found: dict[Path, FoundIdentity], fault: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        broker_identity(FILE, cluster_id=cluster_id, node_id=node_id, found=found)
    assert fault in str(refused.value)
    assert str(FILE) in str(refused.value)


def test_both_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        broker_identity(FILE, cluster_id=None, node_id=None, found={A: LogDirAbsence.NO_META_PROPERTIES})
    assert len(refused.value.faults) == 2


def test_missing_log_dir_is_the_only_fault_where_it_would_have_said_both() -> None:
    with pytest.raises(ConfigError) as refused:
        broker_identity(FILE, cluster_id=None, node_id=None, found={A: LogDirAbsence.NO_DIRECTORY})
    assert [fault.message for fault in refused.value.faults] == [
        "log_dirs: /a does not exist: correct the path, or mount its disk"
    ]


def test_missing_log_dir_takes_nothing_from_an_identity_that_is_known() -> None:
    found: dict[Path, FoundIdentity] = {A: LogDirAbsence.NO_DIRECTORY, B: properties()}
    assert broker_identity(FILE, cluster_id=None, node_id=None, found=found) == BrokerIdentity("c", 1)


def test_log_dir_that_says_nothing_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = read_identities([tmp_path / "empty", tmp_path / "missing"])
    assert found == {
        tmp_path / "empty": LogDirAbsence.NO_META_PROPERTIES,
        tmp_path / "missing": LogDirAbsence.NO_DIRECTORY,
    }
