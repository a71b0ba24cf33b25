"""Runs of drills: what all partitions share is read once, and what one of them lacks keeps no other from its drill."""

from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation
from tierd.app import copy_once
from tierd.app.engine.deployment import Deployment
from tierd.app.restore.drill_run import DrillProgress, DrillRequest, DrillRun
from tierd.app.restore.restore_source import RestoreSource, SourceRequest, restore_source
from tierd.app.restore.standby_directories import StandbyDirectories
from tierd.config import load_config
from tierd.errors import RemoteFormatError
from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore import CatalogueStorage, DrillHistory, DrillOutcome

CLOCK = FakeClock(now_ms=1_700_000_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedSource(RestoreSource):
    """Tier that counts what is read of all partitions at once.

    Attributes:
        reads: number of reads, by their kind.
        is_later: the catalogue is of a later tierd.
    """

    reads: Counter[str]
    is_later: bool = False

    @property
    def catalogue(self) -> CatalogueStorage:
        self.reads["catalogue"] += 1
        if self.is_later:
            raise RemoteFormatError("the catalogue is of a later tierd", remedy="update tierd")
        return CatalogueStorage(self.stored.objects, self.stored.object_keys, self.ring)

    async def partitions(
        self, names: Collection[TopicPartition] = (), *, standbys: StandbyDirectories | None = None
    ) -> list[TopicIdPartition]:
        self.reads["partitions"] += 1
        return await RestoreSource.partitions(self, names, standbys=standbys)


async def copied(folder: Path, partitions: int) -> Deployment:
    """Return a tier that has a segment of each partition of a topic."""
    log_dir = LogDirWriter(folder / "kafka")
    for number in range(partitions):
        orders = log_dir.add_partition("orders", number)
        orders.append([b"value"])
        orders.roll()
    log_dir.write_checkpoints()
    tierd = Installation(folder / "tierd", [log_dir.path])
    deployment = Deployment(load_config(tierd.config_file, {}), tierd.config_file)
    await copy_once(deployment, None)
    return deployment


@asynccontextmanager
async def counted(deployment: Deployment, *, is_later: bool = False) -> AsyncIterator[CountedSource]:
    async with restore_source(deployment, SourceRequest(), clock=CLOCK, on_progress=lambda _: None) as source:
        facts = {each.name: getattr(source, each.name) for each in fields(source)}
        yield CountedSource(**facts, reads=Counter(), is_later=is_later)


@pytest.mark.parametrize("is_broker", [False, True], ids=["one by one", "as a broker"])
async def test_drill_reads_what_all_partitions_share_as_often_for_six_partitions_as_for_two(
    tmp_path: Path, *, is_broker: bool
) -> None:
    request = DrillRequest(is_everything=not is_broker, is_broker=is_broker)
    reads = []
    for number in (2, 6):
        deployment = await copied(tmp_path / str(number), number)
        async with counted(deployment) as source:
            history = DrillHistory(deployment.state_dir)
            await DrillRun(deployment, source, history, clock=CLOCK, random=lambda: 0.5).run(request, DrillProgress())
        assert [each.outcome for each in history.read()] == [DrillOutcome.PROVEN] * number
        reads.append(source.reads)
    assert reads[0] == reads[1]
    assert reads[0]["catalogue"] == 1


async def test_catalogue_that_cannot_be_read_fails_the_drill_of_each_partition(tmp_path: Path) -> None:
    deployment = await copied(tmp_path, 2)
    async with counted(deployment, is_later=True) as source:
        history = DrillHistory(deployment.state_dir)
        run = DrillRun(deployment, source, history, clock=CLOCK, random=lambda: 0.5)
        await run.run(DrillRequest(is_everything=True), DrillProgress())
    assert [(each.outcome, each.remedy) for each in history.read()] == [(DrillOutcome.FAILED, "update tierd")] * 2
