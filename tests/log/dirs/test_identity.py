from pathlib import Path

import pytest

from tierd.errors import ConfigError
from tierd.log import BrokerIdentity, MetaProperties, broker_identity

A, B = Path("/a"), Path("/b")
FILE = Path("/etc/tierd.yaml")


def properties(cluster: str = "c", node: int | None = 1) -> MetaProperties:
    return MetaProperties(cluster, node, None)


def test_the_log_dirs_say_who_they_are() -> None:
    found = {A: properties(), B: properties()}
    assert broker_identity(FILE, cluster_id=None, node_id=None, found=found) == BrokerIdentity("c", 1)


def test_what_no_log_dir_says_is_configured() -> None:
    assert broker_identity(FILE, cluster_id="x", node_id=0, found={A: None}) == BrokerIdentity("x", 0)
    assert broker_identity(FILE, cluster_id=None, node_id=7, found={A: properties(node=None)}).node_id == 7


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "found", "fault"),
    [
        (None, None, {A: None}, "cluster_id is not set"),
        ("c", None, {A: properties(node=None)}, "node_id is not set"),
        (None, None, {A: properties(), B: properties(cluster="d")}, "cluster_id is ambiguous: c in /a, d in /b"),
        (None, None, {A: properties(), B: properties(node=2)}, "node_id is ambiguous: 1 in /a, 2 in /b"),
        ("other", None, {A: properties()}, "c in /a, other in this file"),
    ],
)
def test_what_is_missing_or_contradictory_is_a_fault(
    cluster_id: str | None, node_id: int | None, found: dict[Path, MetaProperties | None], fault: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        broker_identity(FILE, cluster_id=cluster_id, node_id=node_id, found=found)
    assert fault in str(refused.value)
    assert str(FILE) in str(refused.value)


def test_both_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        broker_identity(FILE, cluster_id=None, node_id=None, found={A: None})
    assert len(refused.value.faults) == 2
