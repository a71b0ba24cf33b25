"""Consumer groups of several clients at the endpoint: they rebalance, commit, and continue after restarts."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.endpoint_server import EndpointServer, endpoint_server
from tests.services.kafka_clients.group_members import GroupMember, GroupMembers, Place, wait_seen
from tests.services.kafka_clients.java_clients import describe_group
from tests.services.kafka_clients.java_tools import JavaTools
from tests.services.kafka_cluster import KafkaBroker
from tests.services.kafka_fixtures import fetched_or_skip
from tests.services.kafka_records import SentRecord
from tests.services.waiting import wait_until

pytestmark = pytest.mark.service("kafka")

TOPIC, GROUP, PARTITIONS = "orders", "buyers", 8
CLIENTS = ("librdkafka", "aiokafka", "franz-go", "console-3.9.2", "console-4.3.1")


class Orders:
    """Topic of a broker that grows by the same number of records in every partition."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self.places: set[Place] = set()
        broker.create_topic(TOPIC, partitions=PARTITIONS, segment_bytes=4096)

    def grow(self, records: int = 20) -> set[Place]:
        """Send records to every partition; return their places."""
        begin = len(self.places) // PARTITIONS
        with self._broker.producer() as producer:
            for partition in range(PARTITIONS):
                values = (SentRecord(key=None, value=b"order %d" % n, timestamp_ms=begin + n) for n in range(records))
                producer.send(TOPIC, partition, values)
        added = {Place(partition, begin + n) for partition in range(PARTITIONS) for n in range(records)}
        self.places |= added
        return added


@pytest.fixture
def server(make_broker: MakeBroker, make_installation: MakeInstallation) -> Iterator[EndpointServer]:
    """Serve a real broker's topics with the daemon beside it."""
    with endpoint_server(make_broker("4.3.1"), make_installation) as started:
        yield started


@pytest.fixture
def members(server: EndpointServer, tmp_path: Path) -> GroupMembers:
    """Make members of one group."""
    return GroupMembers(server.bootstrap, GROUP, TOPIC, tmp_path)


def test_group_of_five_clients_loses_no_record_when_members_and_server_come_and_go(
    server: EndpointServer, members: GroupMembers, tmp_path: Path
) -> None:
    orders = Orders(server.broker)
    orders.grow()
    with ExitStack() as stack:
        group: list[GroupMember] = []
        for name in CLIENTS:
            fetched_or_skip(lambda name=name: group.append(members.member(name)), name)  # type: ignore[misc]
        for member in group:
            stack.enter_context(member)
        _grow_until_all_read(orders, group)

        group[0].stop()
        group[1].kill()
        wait_seen(group, orders.grow())

        server.restart()
        wait_seen(group, orders.grow())

        assert {place for member in group for place in member.seen()} == orders.places
        for member in group[2:]:
            member.stop()
        _assert_continues(members, orders, stack)
    _assert_all_committed(server.bootstrap, orders, tmp_path)


def _grow_until_all_read(orders: Orders, group: list[GroupMember]) -> None:
    """Send records until every member has some partitions."""

    def grow() -> bool:
        before = [len(member.seen()) for member in group]
        wait_seen(group, orders.grow(2))
        return all(len(member.seen()) > count for member, count in zip(group, before, strict=True))

    wait_until(grow, what="each member to be assigned partitions", deadline_s=60)


def _assert_continues(members: GroupMembers, orders: Orders, stack: ExitStack) -> None:
    """Fail unless new members of the group read what was not committed before, and nothing else."""
    fresh = [stack.enter_context(members.member(name)) for name in ("franz-go", "librdkafka")]
    added = orders.grow()
    wait_seen(fresh, added)
    for member in fresh:
        member.stop()
    read = [place for member in fresh for place in member.seen()]
    assert sorted(read) == sorted(added)


def _assert_all_committed(bootstrap: str, orders: Orders, folder: Path) -> None:
    with JavaTools("4.3.1", folder / "tools.log") as tools:
        described = describe_group(tools, bootstrap, GROUP)
    end = len(orders.places) // PARTITIONS
    assert described == {(TOPIC, partition): (end, end) for partition in range(PARTITIONS)}
