"""Push replication of whole daemons: what each kind of leader sends, and what the life of both sides does to it."""

import asyncio
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from tests.app.push.push_pair import CLUSTER, STANDBY, PushPair
from tests.fakes.eventually import eventually
from tests.log.logs import records
from tests.replication.tail.broker_log import BrokerLog
from tests.services.certificates import Authority
from tierd.app.push.push_facts import push_facts, push_use
from tierd.app.push.push_node import PushNode
from tierd.errors import ListenError, LogDirOfflineError
from tierd.log import LogService
from tierd.model import TopicPartition
from tierd.replication import PushLinkError, PushSessionEndReason
from tierd.serve import push_problems
from tierd.serve.control_answers import PushSummary

ORDERS = TopicPartition("orders", 0)
OTHER_ID = UUID(int=77)


def sent(node: PushNode) -> dict[str, str]:
    """Return the mode of the standby of each partition that is sent."""
    statuses = node.leader.led.statuses()
    return {str(each.partition.topic_partition): each.mode.name for each in statuses}


async def in_session(node: PushNode, name: str = "orders-0") -> None:
    await eventually(lambda: sent(node).get(name) == "PUSH", what=f"a session of {name}: {node.leader.led.statuses()}")


async def test_copy_has_the_batches_of_a_broker_before_and_after_the_session_begins(tmp_path: Path) -> None:
    log = BrokerLog(tmp_path / "leader" / "logs-of-before")
    async with PushPair(tmp_path) as pair:
        shutil.move(log.path, pair.log_dir / "orders-0")
        log.path = pair.log_dir / "orders-0"
        log.append(3)
        async with pair.leader() as leader, pair.standby():
            await pair.same("orders-0")
            await in_session(leader)

            log.append(2)
            log.roll()
            log.append(5)

            await pair.same("orders-0")
            assert leader.leader.lacking_on_standbys()
            assert pair.session_events == [(0, None)]
        assert sorted(pair.closed_sources) == [1, STANDBY]
        assert pair.session_events[1:] == [(0, PushSessionEndReason.BROKER_SHUTDOWN)]


async def test_log_that_is_not_read_to_its_end_is_protected_by_no_standby(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.leader() as leader, pair.standby():
        log = BrokerLog(pair.log_dir)
        log.append(3)
        await pair.same("orders-0")
        await in_session(leader)
        assert leader.leader.lacking_on_standbys()

        log.append(1)
        content = log.active.read_bytes()
        log.active.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        log.roll()
        log.append(1)

        await eventually(lambda: not leader.leader.lacking_on_standbys(), what="the problem of the log")
        (line,) = push_problems(PushSummary.model_validate(push_facts(leader)))
        assert line.startswith("push: orders-0 is not read: ")
        assert "run tierd inspect" in line


async def test_topic_that_is_made_later_and_topics_of_other_names(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.leader() as leader, pair.standby():
        BrokerLog(pair.log_dir, name="payments-0", topic_id=OTHER_ID).append(1)
        log = BrokerLog(pair.log_dir)
        log.append(4)

        await pair.same("orders-0")
        assert not (pair.copies / "payments-0").exists()

        pair.leading.change(topics=["payments"])
        leader.follow()

        await pair.same("payments-0")
        await eventually(lambda: "orders-0" not in sent(leader), what="the end of orders-0")
        assert (pair.copies / "orders-0").is_dir()


async def owned_append(logs: LogService, count: int) -> None:
    writer = logs.writer(ORDERS)
    for _ in range(count):
        await writer.append_as_leader(records(), leader_epoch=1)


@pytest.mark.spec("push-replication 2.11")
async def test_log_that_tierd_owns_is_sent_and_its_watermark_waits_for_the_standby(tmp_path: Path) -> None:
    async with PushPair(tmp_path, owner="tierd") as pair:
        assert pair.logs is not None
        await pair.logs.get_or_create(ORDERS, topic_id=OTHER_ID)
        async with pair.leader() as leader:
            await owned_append(pair.logs, 3)
            await eventually(lambda: "orders-0" in sent(leader), what="orders-0 to be led")
            async with pair.standby():
                await pair.same("orders-0")
                await in_session(leader)

                await owned_append(pair.logs, 20)

                await pair.same("orders-0")
                log = pair.logs.log(ORDERS)
                await eventually(lambda: log.high_watermark == 23, what="the watermark")


async def test_restart_of_either_side_goes_on_where_it_was(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair:
        log = BrokerLog(pair.log_dir)
        log.append(3)
        async with pair.leader():
            async with pair.standby():
                await pair.same("orders-0")
            log.append(3)
            async with pair.standby():
                await pair.same("orders-0")
        log.append(3)
        async with pair.leader() as leader, pair.standby():
            await pair.same("orders-0")
            await in_session(leader)


async def test_deleted_directory_of_a_led_partition_deletes_the_copy(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.leader() as leader, pair.standby():
        log = BrokerLog(pair.log_dir)
        log.append(3)
        await pair.same("orders-0")

        log.path.rename(pair.log_dir / "orders-0.00000000000000000000000000000001-delete")

        await eventually(lambda: not (pair.copies / "orders-0").exists(), what="the end of the copy")
        assert sent(leader) == {}


async def test_directory_that_is_gone_without_a_deletion_keeps_the_copy(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.leader() as leader, pair.standby() as standby:
        log = BrokerLog(pair.log_dir)
        log.append(3)
        await pair.same("orders-0")

        shutil.rmtree(log.path)

        await eventually(lambda: sent(leader) == {}, what="the end of the leadership")
        other = BrokerLog(pair.log_dir, name="orders-1")
        other.append(1)
        await pair.same("orders-1")  # what was announced meanwhile has arrived
        assert (pair.copies / "orders-0").is_dir()
        assert standby.standby is not None
        status = standby.standby.status()
        assert status is not None
        assert {each.partition for each in status.replicas} == {0, 1}


async def test_sessions_end_while_push_is_switched_off_and_begin_again(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.leader() as leader, pair.standby() as standby:
        log = BrokerLog(pair.log_dir)
        log.append(1)
        await pair.same("orders-0")
        await in_session(leader)

        for section, node in ((pair.leading, leader), (pair.keeping, standby)):
            section.change(enabled=False)
            node.follow()
        log.append(4)
        await pair.same("orders-0")
        assert sent(leader) == {"orders-0": "PULL"}

        for section, node in ((pair.leading, leader), (pair.keeping, standby)):
            section.change(enabled=True)
            node.follow()
        await in_session(leader)


async def test_status_and_metrics_of_both_sides(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.leader() as leader, pair.standby() as standby:
        BrokerLog(pair.log_dir).append(3)
        await pair.same("orders-0")
        await in_session(leader)
        await eventually(
            lambda: [each.records for each in push_use(leader).leader.lags] == [0], what="the acknowledgement"
        )
        await eventually(lambda: told_mode(leader) == "push", what="the session in the status")
        await eventually(lambda: pushed_copies(standby) == 1, what="the session of the standby")

        told, kept = PushSummary.model_validate(push_facts(leader)), PushSummary.model_validate(push_facts(standby))
        assert told.leader is not None
        assert kept.standby is not None
        (partition,), (copy,) = told.leader.partitions, kept.standby.partitions
        (of_standby,) = partition.standbys
        assert (partition.partition, partition.log_end_offset) == ("orders-0", 3)
        assert (of_standby.node_id, of_standby.mode, of_standby.log_end_offset) == (STANDBY, "push", 3)
        assert (copy.partition, copy.mode, copy.leader, copy.log_end_offset) == ("orders-0", "push", 1, 3)
        assert (copy.lag_records, copy.online, copy.last_error) == (0, True, "")
        assert [(each.node_id, each.connected, each.sessions) for each in told.leader.peers] == [(STANDBY, True, 1)]
        assert push_problems(told) == push_problems(kept) == []
        assert push_use(leader).leader.peers[0].sessions == 1
        await eventually(lambda: push_use(leader).leader.request_seconds.total > 0, what="the answer of the standby")


def lags(node: PushNode) -> list[int]:
    return [each.records for each in push_use(node).leader.lags]


def told_mode(node: PushNode) -> str:
    leader = PushSummary.model_validate(push_facts(node)).leader
    modes = [each.mode for partition in (leader.partitions if leader else ()) for each in partition.standbys]
    return "".join(modes)


def pushed_copies(node: PushNode) -> int:
    use = push_use(node).standby
    return 0 if use is None else use.pushed_partitions


async def test_peer_that_is_down_stops_nothing(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.leader() as leader:
        assert leader.leader.statuses() == ()
        BrokerLog(pair.log_dir).append(3)
        await eventually(lambda: "orders-0" in sent(leader), what="orders-0 to be led")
        (status,) = leader.leader.statuses()  # those counted less than a second ago know of no partition
        assert (status.replica_id, status.why_not_pushed) == (
            STANDBY,
            "the standby has not fetched yet: tierd status on its host says why",
        )
        assert status.lag_offsets == 3


async def test_address_in_use_is_an_error_at_the_start(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.leader():
        with pytest.raises(ListenError, match=r"push\.listen cannot be bound"):
            await pair.node(1, pair.leading).start()


async def test_log_dir_of_copies_that_cannot_be_made_ends_the_run_with_its_error(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair:
        pair.copies.write_text("a file")
        node = pair.node(STANDBY, pair.keeping)
        await node.start()
        assert node.not_ready
        with pytest.raises(LogDirOfflineError, match=r"push\.standby\.log_dir"):
            async with asyncio.timeout(30):
                await node.run()


@pytest.mark.spec("push-replication 3.5")
async def test_daemons_with_certificates_replicate_and_one_with_that_of_another_does_not_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", "authority")
    async with PushPair(tmp_path) as pair:
        for node_id, section in ((1, pair.leading), (STANDBY, pair.keeping)):
            issued = authority.issue(f"node-{node_id}", hosts=("127.0.0.1",), uris=(f"tierd://{CLUSTER}/{node_id}",))
            files = {"certificate_file": issued.cert_file, "key_file": issued.key_file, "ca_file": authority.ca_file}
            section.change(tls={name: str(path) for name, path in files.items()})
        log = BrokerLog(pair.log_dir)
        log.append(3)
        async with pair.leader() as leader, pair.standby():
            await pair.same("orders-0")
            await in_session(leader)
            assert leader.certificate_problem == ""

        pair.leading.change(tls=pair.keeping.section["tls"])
        with pytest.raises(PushLinkError, match=f"this daemon is tierd://{CLUSTER}/1"):
            await pair.node(1, pair.leading).start()
