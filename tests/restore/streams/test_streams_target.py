from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.restore.streams.kinds import log_of
from tests.restore.streams.states import IDENTITY
from tierd.errors import RefusedError
from tierd.log import Record
from tierd.model import IsolationLevel, TopicPartition
from tierd.restore.changelog.changelog_errors import CorruptSourceError, RestoreError, StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogIdentity, ChangelogRecords, ReadResult
from tierd.restore.journal import Journal
from tierd.restore.streams.state_directory import StreamsStateDirectory
from tierd.restore.streams.streams_restore import RestoredStreamsStore
from tierd.restore.streams.streams_store import StreamsStoreType
from tierd.restore.streams.streams_target import StreamsTarget
from tierd.restore.streams.topology_file import StreamsTopology

TOPOLOGY = StreamsTopology.model_validate(
    {
        "application_id": "app",
        "stores": [
            {"name": "a", "changelog": "log-a", "subtopology": 0, "type": "key-value"},
            {"name": "b", "changelog": "log-b", "subtopology": 0, "type": "key-value"},
        ],
    }
)
A, B = TopicPartition("log-a", 0), TopicPartition("log-b", 0)
LOG = log_of(StreamsStoreType.KEY_VALUE, count=50)


class WholeSource:
    """Source that gives a changelog in one read, and fails for some."""

    def __init__(self, rows: Sequence[Record], *, damaged: Sequence[TopicPartition] = ()) -> None:
        self._rows = rows
        self._damaged = damaged

    async def list_partitions(self) -> frozenset[TopicPartition]:
        return frozenset((A, B))

    async def identity(self, partition: TopicPartition) -> ChangelogIdentity:
        return IDENTITY

    async def earliest_offset(self, partition: TopicPartition) -> int:
        return 0

    async def end_offset(self, partition: TopicPartition, isolation: IsolationLevel) -> int:
        return len(self._rows)

    async def committed_offset(self, group: str, partition: TopicPartition) -> int | None:
        return None

    async def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        is_encoded: bool = False,
    ) -> ReadResult:
        if partition in self._damaged:
            raise CorruptSourceError(partition, "a batch is damaged")
        records = ChangelogRecords.of(self._rows[offset:])
        return ReadResult(records=records, next_offset=len(self._rows), size_bytes=1, at_end=True)


async def restored(
    state_dir: Path, source: WholeSource, told: list[str] | None = None
) -> dict[TopicPartition, RestoredStreamsStore | RestoreError]:
    on_progress = (told if told is not None else []).append
    return await StreamsTarget(TOPOLOGY, state_dir).restore(source, [A, B], clock=FakeClock(), on_progress=on_progress)


async def test_stores_of_a_task_share_its_checkpoint(tmp_path: Path) -> None:
    told: list[str] = []
    done = await restored(tmp_path, WholeSource(LOG), told)

    assert {partition.topic: getattr(each, "last_offset", None) for partition, each in done.items()} == {
        "log-a": 49,
        "log-b": 49,
    }
    lines = (tmp_path / "app/0_0/.checkpoint").read_text().splitlines()
    assert (lines[:2], sorted(lines[2:])) == (["0", "2"], ["log-a 0 49", "log-b 0 49"])
    assert told[-1].endswith("of 2 stores, 100 records")


async def test_failure_of_one_store_leaves_the_others_complete(tmp_path: Path) -> None:
    done = await restored(tmp_path, WholeSource(LOG, damaged=[A]))

    assert isinstance(done[A], CorruptSourceError)
    assert isinstance(done[B], RestoredStreamsStore)
    assert (tmp_path / "app/0_0/.checkpoint").read_text() == "0\n1\nlog-b 0 49\n"


async def test_failure_outside_of_the_store_is_one_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RefusedError("no", remedy="yes")

    monkeypatch.setattr(Journal, "append", refuse)
    done = await restored(tmp_path, WholeSource(LOG))

    problem = done[A]
    assert isinstance(problem, StoreFailedError)
    assert (str(problem), problem.remedy) == ("store a: no", "yes")


async def test_directory_is_free_again_after_a_run(tmp_path: Path) -> None:
    await restored(tmp_path, WholeSource(LOG, damaged=[A, B]))

    StreamsStateDirectory.open(tmp_path, "app").close()


async def test_changelog_without_a_store_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    target = StreamsTarget(TOPOLOGY, tmp_path)

    with pytest.raises(RefusedError, match="no store with the changelog other"):
        await target.restore(
            WholeSource(LOG), [A, TopicPartition("other", 0)], clock=FakeClock(), on_progress=lambda _: None
        )
    assert not list(tmp_path.iterdir())
