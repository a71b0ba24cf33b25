"""Links between daemons that Toxiproxy spoils: appends go on, the operator is told, and the copies catch up."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.scenarios.push.own_lab import LEADER, STANDBY, OwnLab
from tests.scenarios.push_hosts import PushHosts
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.faulty_path import FaultyPath

FaultyPathTo = Callable[[str], FaultyPath]
_NO_ANSWER: Final = "standby: node 1 does not answer"


class SpoiledLinks:
    """Paths in both directions, and a pair of daemons that use them."""

    def __init__(self, root: Path, warm: WarmTierd, faulty_path_to: FaultyPathTo) -> None:
        hosts = PushHosts()
        self.paths = {node: faulty_path_to(hosts.addresses[node]) for node in (LEADER, STANDBY)}
        addresses = {node: path.address for node, path in self.paths.items()}
        self.lab = OwnLab(root, warm, addresses=addresses, hosts=hosts)

    def add(self, kind: str, **attributes: int) -> None:
        """Spoil what both sides send on both paths."""
        for path in self.paths.values():
            for stream in ("upstream", "downstream"):
                path.add(kind, stream, **attributes)

    def remove(self, kind: str) -> None:
        """Let it be again."""
        for path in self.paths.values():
            for stream in ("upstream", "downstream"):
                path.remove(kind, stream)


@pytest.fixture
def links(tmp_path: Path, warm_tierd: WarmTierd, faulty_path_to: FaultyPathTo) -> SpoiledLinks:
    return SpoiledLinks(tmp_path, warm_tierd, faulty_path_to)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        pytest.param("latency", {"latency": 150, "jitter": 100}, id="latency"),
        pytest.param("bandwidth", {"rate": 200}, id="bandwidth"),
        pytest.param("slicer", {"average_size": 40, "size_variation": 20, "delay": 10}, id="small pieces"),
        pytest.param("slow_close", {"delay": 1500}, id="slow close"),
    ],
)
def test_records_stay_safe_over_a_bad_link(links: SpoiledLinks, kind: str, attributes: dict[str, int]) -> None:
    with links.lab as lab:
        lab.wait_protected()
        links.add(kind, **attributes)
        for _ in range(3):
            lab.wait_more_safe()
        links.paths[STANDBY].disable()  # a connection has to end over the bad link, and another to begin
        lab.wait_status("has no session", "not protected: ")
        links.paths[STANDBY].enable()
        lab.wait_protected()
        links.remove(kind)
        lab.assert_same_copies()


@pytest.mark.spec("push-replication F14")
@pytest.mark.spec("push-replication F21")
@pytest.mark.parametrize(
    ("kind", "attributes", "said_at_the_standby"),
    [
        pytest.param("timeout", {"timeout": 0}, _NO_ANSWER, id="half open: nothing arrives, and nothing ends"),
        pytest.param("reset_peer", {"timeout": 0}, _NO_ANSWER, id="reset"),
        pytest.param("limit_data", {"bytes": 3000}, "was closed by the peer", id="cut within a frame"),
    ],
)
def test_copies_catch_up_after_a_lost_link(
    links: SpoiledLinks, kind: str, attributes: dict[str, int], said_at_the_standby: str
) -> None:
    with links.lab as lab:
        lab.wait_protected()
        links.add(kind, **attributes)
        lab.wait_status("orders-0 to node 2 has no session", "not protected: ")
        lab.wait_status(said_at_the_standby, node=STANDBY)
        lab.wait_more_safe()  # the leader no longer waits for a standby that lags for too long
        links.remove(kind)
        lab.wait_protected()
        lab.wait_status_without("not protected", "has no session")
        lab.assert_same_copies()
