"""Brokers that lose records, keep their leader epoch and write other records at the same offsets: what copies have."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.app.push.push_pair import PushPair
from tests.app.push.test_push_node import in_session
from tests.fakes.eventually import eventually
from tests.replication.tail.broker_log import BrokerLog
from tests.scenarios.push_hosts import batches_in
from tierd.app.push.push_node import PushNode


def lose_and_grow(log: BrokerLog, *, kept: int, batches: int, size: int = 10) -> None:
    """Cut the log back to its first batches, and write others in the same epoch."""
    log.truncate(kept)
    for _ in range(batches):
        log.append(3, size=size)


@pytest.mark.parametrize(
    ("batches", "kept", "size"),
    [(4, 3, 10), (4, 1, 10), (40, 39, 4000), (40, 2, 4000)],
    ids=["last", "most", "last-of-large", "most-of-large"],
)
async def test_lost_records_leave_the_copy_where_the_log_has_grown_over_them_before_the_leader_begins_again(
    tmp_path: Path, batches: int, kept: int, size: int
) -> None:
    async with PushPair(tmp_path) as pair:
        log = BrokerLog(pair.log_dir)
        for _ in range(batches):
            log.append(3, size=size)
        async with pair.leader(), pair.standby():
            await pair.same("orders-0")

        lose_and_grow(log, kept=kept, batches=batches, size=size)

        async with pair.leader() as leader, pair.standby() as standby:
            await pair.same("orders-0")
            await in_session(leader)
            log.append(2)
            await pair.same("orders-0")
            assert truncations(standby) > 0


async def test_lost_records_leave_the_copy_where_the_standby_goes_on_while_its_leader_begins_again(
    tmp_path: Path,
) -> None:
    async with PushPair(tmp_path) as pair, pair.standby() as standby:
        log = BrokerLog(pair.log_dir)
        for _ in range(5):
            log.append(3)
        async with pair.leader() as leader:
            await pair.same("orders-0")
            await in_session(leader)

        lose_and_grow(log, kept=2, batches=6)

        async with pair.leader():
            await pair.same("orders-0")
            assert truncations(standby) > 0


async def test_lost_records_leave_the_copy_where_the_standby_was_away_while_the_leader_went_on(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair:
        log = BrokerLog(pair.log_dir)
        for _ in range(5):
            log.append(3)
        async with pair.leader() as leader:
            async with pair.standby():
                await pair.same("orders-0")
                await in_session(leader)
            restarts = leader.leader.tail.statistics().restarts

            lose_and_grow(log, kept=2, batches=6)

            await eventually(lambda: leader.leader.tail.statistics().restarts > restarts, what="a look at the log")
            async with pair.standby() as standby:
                await pair.same("orders-0")
                assert truncations(standby) > 0


async def test_lost_records_leave_the_copy_where_both_sides_go_on(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.leader() as leader, pair.standby() as standby:
        log = BrokerLog(pair.log_dir)
        for _ in range(5):
            log.append(3)
        await pair.same("orders-0")
        await in_session(leader)

        lose_and_grow(log, kept=2, batches=6)

        await pair.same("orders-0")
        await in_session(leader)
        assert truncations(standby) > 0


async def test_copy_that_is_the_same_is_not_truncated_by_a_restart_of_its_leader(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair, pair.standby() as standby:
        log = BrokerLog(pair.log_dir)
        for _ in range(5):
            log.append(3)
        async with pair.leader():
            await pair.same("orders-0")
        log.append(3)
        async with pair.leader() as leader:
            await pair.same("orders-0")
            await in_session(leader)
        assert truncations(standby) == 0


async def test_damaged_batch_in_the_leaders_log_does_not_keep_the_copy_from_what_follows(tmp_path: Path) -> None:
    async with PushPair(tmp_path) as pair:
        log = BrokerLog(pair.log_dir)
        for _ in range(3):
            log.append(3)
        log.roll()
        log.append(3)
        async with pair.leader(), pair.standby():
            await pair.same("orders-0")
        copies = pair.copies / "orders-0"
        before, file = batches_in(copies), log.path / "00000000000000000000.log"
        data = bytearray(file.read_bytes())
        data[len(before[0]) + len(before[3]) - 1] ^= 1
        file.write_bytes(data)
        with capture_logs() as lines:
            async with pair.leader() as leader, pair.standby() as standby:
                await in_session(leader)
                log.append(2)
                await eventually(lambda: len(batches_in(copies)) == 5, what="the record behind it")
                assert batches_in(copies).items() > before.items()
                assert truncations(standby) == 0
        assert [line["event"] for line in lines].count("leader_not_compared") == 1


def truncations(standby: PushNode) -> int:
    status = None if standby.standby is None else standby.standby.status()
    assert status is not None
    return status.truncated_records
