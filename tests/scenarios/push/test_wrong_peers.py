"""Daemons that are not who they should be: two with one identity, and certificates that are expired or wrong."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.push.own_lab import CLUSTER_ID, LEADER, STANDBY, OwnLab
from tests.scenarios.push_hosts import copies_of
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.certificates import Authority
from tests.services.ports import free_port


@pytest.mark.spec("push-replication F32")
def test_second_daemon_with_the_identity_of_a_standby_is_named_at_the_first(
    tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    with OwnLab(tmp_path, warm_tierd) as lab:
        lab.wait_protected()
        first = lab.standbys[STANDBY]
        twin = lab.twin(STANDBY, listen=f"127.0.0.1:{free_port()}")
        with twin.daemon():
            lab.wait_status("a newer process with the node_id of this daemon is connected", node=STANDBY)
            assert json.loads((first.root / "tierd.yaml").read_text())["push"]["node_id"] == STANDBY
        lab.daemons[STANDBY].stop()
        lab.daemons[STANDBY].start()
        lab.daemons[STANDBY].wait_ready()
        lab.assert_same_copies()
        assert copies_of(twin) != copies_of(first)


class Certified:
    """Authority and certificates of a leader and a standby."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder, "daemons")
        self.foreign = Authority(folder, "foreign")

    def tls(self, node: int, *, named: int | None = None, days: int = 2, foreign: bool = False) -> dict[str, object]:
        """Return the section ``push.tls`` of a node: by default with a certificate as it should be."""
        issuer = self.foreign if foreign else self.authority
        name = f"tierd://{CLUSTER_ID}/{node if named is None else named}"
        issued = issuer.issue(f"node-{node}", hosts=("127.0.0.1",), uris=(name,), valid_for=timedelta(days=days))
        return {
            "tls": {
                "certificate_file": str(issued.cert_file),
                "key_file": str(issued.key_file),
                "ca_file": str(self.authority.ca_file),
            }
        }


@pytest.mark.spec("push-replication 94")
def test_daemon_does_not_start_with_the_certificate_of_another_node(tmp_path: Path, warm_tierd: WarmTierd) -> None:
    certified = Certified(tmp_path / "certificates")
    lab = OwnLab(tmp_path, warm_tierd, push={STANDBY: certified.tls(STANDBY, named=7)})
    standby = lab.daemons[STANDBY]
    standby.start()
    assert standby.wait_end() != 0
    assert f"is the certificate of tierd://{CLUSTER_ID}/7" in standby.log_tail()


@pytest.mark.parametrize(
    ("wrong", "said_at_the_leader", "said_at_the_standby"),
    [
        pytest.param({"days": -1}, "has no session", "has expired at", id="expired"),
        pytest.param(
            {"foreign": True},
            "has no session",
            "as it does with a certificate that it refuses",
            id="of another authority",
        ),
    ],
)
def test_standby_with_a_wrong_certificate_gets_nothing_until_it_has_a_right_one(
    wrong: dict[str, Any],
    said_at_the_leader: str,
    said_at_the_standby: str,
    tmp_path: Path,
    warm_tierd: WarmTierd,
) -> None:
    certified = Certified(tmp_path / "certificates")
    push = {LEADER: certified.tls(LEADER), STANDBY: certified.tls(STANDBY, **wrong)}
    with OwnLab(tmp_path, warm_tierd, push=push) as lab:
        lab.wait_status(said_at_the_leader)
        lab.wait_status(said_at_the_standby, node=STANDBY)
        lab.wait_more_safe()
        assert not list(copies_of(lab.standbys[STANDBY]).glob("*/*.log"))

        certified.tls(STANDBY)  # the files have the same names
        lab.wait_protected()
        lab.assert_same_copies()
