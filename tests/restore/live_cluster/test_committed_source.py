"""The end up to which every transaction is decided, in plans that cut batches and segments."""

from pathlib import Path

from tests.log.logs import lead, lead_marker, records
from tests.restore.log_dir.lab import Lab, closed, new_log
from tierd.log import Producer, UnifiedLog
from tierd.model import RemoteLogSegmentMetadata
from tierd.restore.live_cluster.committed_source import CommittedSource
from tierd.restore.plan.partition_plan import RestoreMode


def in_transaction(log: UnifiedLog, producer_id: int, count: int) -> None:
    lead(log, records(count, producer=Producer(producer_id, 0, 0), transactional=True))


async def copied(lab: Lab, log: UnifiedLog) -> list[RemoteLogSegmentMetadata]:
    log.roll(now_ms=9)
    return await lab.copy(closed(log))


async def test_transaction_whose_batch_the_cut_divides_is_not_decided_there(tmp_path: Path) -> None:
    lab, log = Lab(tmp_path / "lab"), new_log(tmp_path / "source")
    lead(log, records(2))  # 0, 1
    in_transaction(log, 7, 3)  # 2 to 4
    lead_marker(log, 7, commit=False)  # 5
    segments = await copied(lab, log)
    source = CommittedSource(lab.storage, lab.plan(segments, mode=RestoreMode.IMPORT, end_offset=4).parts)

    assert await source.stable_end_offset(4) == 2


async def test_transactions_of_another_branch_of_the_log_do_not_move_the_end(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    log = new_log(tmp_path / "source")
    lead(log, records(4))  # 0 to 3
    in_transaction(log, 7, 2)  # 4, 5: of a leader that lost
    segments = await copied(lab, log)
    log = new_log(tmp_path / "other")
    lead(log, records(4))  # 0 to 3
    log.roll(now_ms=5)
    lead(log, records(4))  # 4 to 7
    (_, true) = await copied(lab, log)
    plan = lab.plan([segments[0], true], mode=RestoreMode.IMPORT, end_offset=7)
    assert [(part.start_offset, part.end_offset) for part in plan.parts] == [(0, 4), (4, 7)]

    assert await CommittedSource(lab.storage, plan.parts).stable_end_offset(7) == 7


async def test_marker_of_another_branch_of_the_log_decides_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    log = new_log(tmp_path / "source")
    in_transaction(log, 7, 4)  # 0 to 3
    lead_marker(log, 7, commit=True)  # 4: of a leader that lost
    segments = await copied(lab, log)
    log = new_log(tmp_path / "other")
    lead(log, records(4))
    log.roll(now_ms=5)
    lead(log, records(4))  # 4 to 7
    (_, true) = await copied(lab, log)
    plan = lab.plan([segments[0], true], mode=RestoreMode.IMPORT, end_offset=7)

    assert await CommittedSource(lab.storage, plan.parts).stable_end_offset(7) == 0
