"""The golden partitions that a broker cleaned twice: LogService writes the segments of the broker, group by group."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.golden.unpack import GoldenCase
from tests.log.cleaning.cleaners import own_log_rules
from tests.pipeline.rewriting.test_real_cleaner import (
    CASES,
    add_what_was_appended,
    assert_reads_as,
    bases_of,
    batches_of,
    content,
    identity,
    stage_dir,
    time_of_pass,
)
from tierd.log import LogConfig, LogManager, LogManagerSettings, LogService, read_offset_checkpoint
from tierd.model import TopicPartition

INTERVAL_S = 15  # interval of the cleaner
of_every_partition = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.broker}-{case.partition}")


async def clean(
    case: GoldenCase, log_dir: Path, *, now_ms: int, wait_until: Callable[[LogService], bool]
) -> LogService:
    """Open the log dir with the topic's settings and run the cleaner at ``now_ms``; no retention runs meanwhile."""
    config = LogConfig.from_kafka({name: str(value) for name, value in case.config.items()})
    clock = ManualClock(now_ms=now_ms - INTERVAL_S * 1000)
    manager = LogManager([log_dir], LogManagerSettings(config_for=lambda _: config, clock=clock))
    async with LogService(manager, clock=clock, rewriting=own_log_rules()) as service:
        await eventually(lambda: clock.sleeping == 3, what="the first look")
        log = service.log(TopicPartition.parse(case.partition))
        log.update_high_watermark(log.log_end_offset)
        clock.advance(INTERVAL_S)
        await eventually(lambda: wait_until(service) and clock.sleeping == 3, what="the cleaner")
    return service


def has_cleaned(service: LogService) -> bool:
    return service.cleaner_statistics().rounds > 0 or bool(service.uncleanable())


async def clean_as_the_broker(golden: Path, case: GoldenCase, directory: Path, before: str, after: str) -> list[int]:
    """Clean at the times of the broker; return the base offsets of the broker's outputs."""
    active = bases_of(directory)[-1]
    now_ms = time_of_pass(golden, case, before, after)
    service = await clean(case, directory.parent, now_ms=now_ms, wait_until=has_cleaned)
    assert service.uncleanable() == {}
    checkpoint = read_offset_checkpoint(directory.parent / "cleaner-offset-checkpoint")
    assert checkpoint == {TopicPartition.parse(case.partition): active}
    return [base for base in bases_of(stage_dir(golden, case, after)) if base < active]


@of_every_partition
async def test_service_writes_the_segments_that_the_broker_wrote_in_two_passes(
    golden: Path, case: GoldenCase, tmp_path: Path
) -> None:
    directory = tmp_path / "own" / case.partition
    shutil.copytree(stage_dir(golden, case, "compact-before"), directory)
    groups = await clean_as_the_broker(golden, case, directory, "compact-before", "compact-pass1")
    check(golden, case, directory, "compact-pass1", groups)
    add_what_was_appended(golden, case, directory)
    expire(directory, bases_of(stage_dir(golden, case, "compact-more"))[0])
    groups = await clean_as_the_broker(golden, case, directory, "compact-more", "compact-pass2")
    check(golden, case, directory, "compact-pass2", groups)


def expire(directory: Path, first_base: int) -> None:
    """Remove the segments that the broker's retention, which runs at other times, has removed by then."""
    for path in directory.glob("[0-9]*.*"):
        if int(path.stem) < first_base and path.suffix != ".snapshot":
            path.unlink()


def check(golden: Path, case: GoldenCase, directory: Path, stage: str, groups: list[int]) -> None:
    """Compare the segments, empty ones too, except the oldest ones, which only the broker's retention removed."""
    real = stage_dir(golden, case, stage)
    ours = [base for base in bases_of(directory)[:-1] if base >= groups[0]]
    assert ours[ours[0] != groups[0] :] == groups
    for base in groups[ours[0] != groups[0] :]:
        assert [identity(b) for b in batches_of(directory, base)] == [identity(b) for b in batches_of(real, base)]
        name = f"{base:020d}.txnindex"
        assert content(directory / name) == content(real / name)
    assert_reads_as(golden, case, directory, stage)
