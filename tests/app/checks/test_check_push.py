"""Push replication in check-config --online: certificate, peers and directory, without a bound port."""

from datetime import timedelta
from pathlib import Path

from tests.app.push.push_pair import CLUSTER, LEADER, STANDBY, PushPair
from tests.fakes.eventually import eventually
from tests.replication.tail.broker_log import BrokerLog
from tests.services.certificates import Authority
from tierd.app.checks.check_push import check_push
from tierd.app.checks.checklist import Checklist, CheckStep
from tierd.clock import SystemClock
from tierd.config import PushReplicationSettings
from tierd.log import BrokerIdentity

IDENTITY = BrokerIdentity(CLUSTER, LEADER)


async def checked(push: PushReplicationSettings, identity: BrokerIdentity | None = IDENTITY) -> dict[str, CheckStep]:
    checklist = Checklist()
    await check_push(push, identity, checklist, clock=SystemClock())
    assert {step.area for step in checklist.steps} <= {"push replication"}
    return {step.name: step for step in checklist.steps}


def with_tls(tmp_path: Path, *, uri: str, valid_for: timedelta = timedelta(days=2)) -> PushReplicationSettings:
    authority = Authority(tmp_path / "pki", "authority")
    issued = authority.issue("node", hosts=("127.0.0.1",), uris=(uri,), valid_for=valid_for)
    tls = {"certificate_file": issued.cert_file, "key_file": issued.key_file, "ca_file": authority.ca_file}
    return PushReplicationSettings.model_validate({"node_id": 1, "listen": "127.0.0.1:9406", "tls": tls})


async def test_peer_that_answers_is_ok_and_one_that_does_not_is_unreachable(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair:
        steps = await checked(pair.leading.settings)
        assert steps[f"node {STANDBY}"].outcome == "unreachable"
        assert steps[next(iter(steps))].detail == "an address of this host"

        async with pair.standby():
            assert (await checked(pair.leading.settings))[f"node {STANDBY}"].detail == "answers"


async def test_check_beside_a_running_daemon_leaves_its_links_alone(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.leader() as leader, pair.standby() as standby:
        BrokerLog(pair.log_dir).append(1)
        await pair.same("orders-0")
        await eventually(lambda: bool(standby.listener.statistics().nodes.get(LEADER)), what="a link of the leader")
        links = standby.listener.statistics().nodes[LEADER]

        steps = await checked(pair.leading.settings)

        assert steps[f"node {STANDBY}"].outcome == "ok"
        assert "connected with the daemon of this host" in steps[f"node {STANDBY}"].detail
        assert standby.listener.statistics().nodes[LEADER] >= links
        assert leader.leader.led.statuses()


async def test_peer_of_another_cluster_is_a_fault(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.standby():
        steps = await checked(pair.leading.settings, BrokerIdentity("another", LEADER))
        assert steps[f"node {STANDBY}"].outcome == "failed"
        assert "another cluster" in steps[f"node {STANDBY}"].detail


async def test_peers_are_not_asked_while_the_cluster_is_not_known(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair:
        assert f"node {STANDBY}" not in await checked(pair.leading.settings, None)


async def test_certificate_of_this_node_is_ok(tmp_path: Path) -> None:
    steps = await checked(with_tls(tmp_path, uri=f"tierd://{CLUSTER}/1"))
    assert steps["certificate"].outcome == "ok"
    assert steps["certificate"].detail == f"of tierd://{CLUSTER}/1, fits its key, and is valid for 1 days"


async def test_certificate_of_another_node_is_a_fault(tmp_path: Path) -> None:
    steps = await checked(with_tls(tmp_path, uri=f"tierd://{CLUSTER}/2"))
    assert steps["certificate"].outcome == "failed"
    assert f"this daemon is tierd://{CLUSTER}/1" in steps["certificate"].detail
    assert "push.node_id" in steps["certificate"].next_step


async def test_certificate_without_a_node_is_a_fault(tmp_path: Path) -> None:
    steps = await checked(with_tls(tmp_path, uri="https://example.com/"))
    assert "names none" in steps["certificate"].detail


async def test_certificate_that_has_ended_is_a_fault(tmp_path: Path) -> None:
    steps = await checked(with_tls(tmp_path, uri=f"tierd://{CLUSTER}/1", valid_for=timedelta(seconds=-1)))
    assert steps["certificate"].outcome == "failed"
    assert "has expired" in steps["certificate"].detail


async def test_log_dir_of_copies_has_to_be_writable(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair:
        steps = await checked(pair.keeping.settings, BrokerIdentity(CLUSTER, STANDBY))
        assert steps["standby.log_dir"].outcome == "ok"

        pair.copies.write_text("a file")

        steps = await checked(pair.keeping.settings, BrokerIdentity(CLUSTER, STANDBY))
        assert steps["standby.log_dir"].outcome == "failed"
