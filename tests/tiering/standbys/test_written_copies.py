"""Comparison of copies that real brokers, and the follower of push replication, have written."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.unpack import GoldenCase, golden_cases
from tests.replication.joined import JoinedPair
from tests.tiering.setups import Session, Tier
from tests.tiering.standbys.compared import findings_of, note
from tierd.log import REPLICATION_OFFSET_CHECKPOINT, encode_offset_checkpoint
from tierd.tiering import Finding, Severity

STAGES = ("compact-before", "compact-pass1", "compact-more", "compact-pass2")
of_topics = [case for case in golden_cases("clean", "epochs") if not case.partition.startswith("__")]


def faults(found: list[Finding]) -> set[str]:
    return {each.kind for each in found if each.severity is not Severity.NOTE}


async def tier_of(log_dir: Path, partition: str, folder: Path) -> Session:
    """Return a tier with what has rolled of one partition."""
    session = Tier(folder, [log_dir]).session()
    await session.copy_once(partition)
    return session


@pytest.mark.parametrize("case", of_topics, ids=lambda case: case.id)
async def test_replica_of_a_broker_has_no_fault(golden: Path, tmp_path: Path, case: GoldenCase) -> None:
    """The leader's replica of the stage ``epochs`` is in the tier and the follower's is compared, and vice versa."""
    log_dirs = [golden / each for each in case.logdirs]
    for number, (copied, replica) in enumerate(zip(log_dirs, reversed(log_dirs), strict=True)):
        session = await tier_of(copied, case.partition, tmp_path / str(number))
        found = await findings_of(session, replica / case.partition, is_compacted=False)
        assert faults(found) == set()
        at = note(found)
        common = min(at.tier_end_offset, at.standby_end_offset) - max(at.tier_start_offset, at.standby_start_offset)
        assert at.compared_records == max(common, 0)


@pytest.mark.parametrize("case", golden_cases("compact-before"), ids=lambda case: case.id)
async def test_copy_that_a_broker_has_cleaned_has_no_fault(golden: Path, tmp_path: Path, case: GoldenCase) -> None:
    log_dirs = [golden / case.logdirs[0].replace(STAGES[0], stage) for stage in STAGES]
    for log_dir in log_dirs:
        session = await tier_of(log_dir, case.partition, tmp_path / log_dir.parent.name)
        for replica in log_dirs:
            for is_compacted in (True, None):
                found = await findings_of(session, replica / case.partition, is_compacted=is_compacted)
                assert faults(found) <= {"standby-behind"}, (log_dir, replica)


async def appended_and_copied(pair: JoinedPair, folder: Path) -> Session:
    """Append as leader, and return the tier of the leader's log."""
    log = await pair.lead()
    await pair.append(log, 300)
    await pair.same_content(log)
    offsets = {log.partition.topic_partition: log.high_watermark}
    (folder / "leader" / REPLICATION_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(offsets))
    return await tier_of(folder / "leader", "orders-0", folder / "tierd")


async def test_copy_of_a_running_standby_has_no_fault_while_it_grows(tmp_path: Path) -> None:
    async with JoinedPair(tmp_path) as pair:
        session = await appended_and_copied(pair, tmp_path)
        log, going = await pair.lead(), True

        async def append_on() -> None:
            while going:
                await pair.append(log, 5, size=300)

        appending = asyncio.create_task(append_on(), name="appends")
        try:
            for _ in range(5):
                found = await findings_of(session, tmp_path / "standby" / "orders-0", is_compacted=False)
                assert faults(found) == set()
        finally:
            going = False
            await appending
        at = note(found)
        assert at.compared_records == at.tier_end_offset > 100
        assert at.standby_end_offset > 300


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda data: data[:-200] + bytes([data[-200] ^ 1]) + data[-199:], "standby-damage"),
        (lambda data: data[:-50], "standby-damage"),
    ],
)
async def test_damage_of_a_pushed_copy_is_found(tmp_path: Path, damage: Callable[[bytes], bytes], kind: str) -> None:
    async with JoinedPair(tmp_path) as pair:
        session = await appended_and_copied(pair, tmp_path)
    path = min((tmp_path / "standby" / "orders-0").glob("*.log"))
    path.write_bytes(damage(path.read_bytes()))
    assert kind in faults(await findings_of(session, path.parent, is_compacted=False))
