"""Changelogs restored into real stores by the reader, from the tier and from log dirs (changelog-restore 3)."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.restore.changelog.sources.changelog_fixtures import MovingLogs, RemoteLogs, batch_of
from tests.restore.stores.store_fixtures import KINDS, ON_DISK, Store, content
from tierd.log import empty_batch, iter_batches
from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore.changelog.changelog_source import ChangelogSource
from tierd.restore.changelog.reader.changelog_restorer import ChangelogRestorer, StoreRestoreOutcome
from tierd.restore.changelog.reader.restore_limits import RestorerSettings
from tierd.restore.changelog.reader.restore_task import RestoreTask
from tierd.restore.changelog.sources.remote_blocks import BlockBudget, BlockLimits
from tierd.restore.changelog.sources.remote_segment_source import RemoteSegmentSource, RemoteTier

DAY_MS = 86_400_000
TOPIC_ID = UUID(int=7)
PARTITIONS = 8

T = TypeVar("T", bound=RemoteLogs)
Change = tuple[bytes | None, bytes | None]
KEYS = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c", b""]))
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=9))), min_size=1, max_size=6)


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC_ID, "app-counts-changelog", number)


def changelog(
    number: int, segments: Sequence[Sequence[Sequence[Change]]], *, emptied: frozenset[int] = frozenset()
) -> RemoteLogs:
    """Return a tier with these segments of batches; compaction has emptied the batches with the given base offsets."""
    return filled(RemoteLogs(partition(number)), segments, emptied=emptied)


def filled(remote: T, segments: Sequence[Sequence[Sequence[Change]]], *, emptied: frozenset[int] = frozenset()) -> T:
    """Add segments to a tier that has none, as ``changelog`` does."""
    offset = 0
    for batches in segments:
        start, log = offset, b""
        for records in batches:
            data = batch_of(records, base_offset=offset)
            if offset in emptied:
                (batch,) = iter_batches(data, name="log")
                data = empty_batch(batch, base_offset=offset)
            log += data
            offset += len(records)
        remote.add(log, start=start, end=offset)
    return remote


class Tiers:
    """Tiers of several partitions as one, with a budget that they share."""

    def __init__(self, remotes: Mapping[TopicPartition, RemoteLogs]) -> None:
        self.remotes = remotes
        self.budget = BlockBudget(4000)

    def source(self) -> RemoteSegmentSource:
        """Return a source over all partitions, of a compacted topic."""
        first = next(iter(self.remotes.values()))
        for other in self.remotes.values():
            first._logs.update(other._logs)
            first._artefacts.update(other._artefacts)
        tier = RemoteTier(
            load_view=lambda wanted: self.remotes[wanted.topic_partition].load_view(wanted),
            storage=first,
            limits=BlockLimits(block_bytes=500),
            budget=self.budget,
        )
        return RemoteSegmentSource(
            {name: remote.view.partition for name, remote in self.remotes.items()},
            tier,
            delete_retention=lambda _: DAY_MS,
        )


async def restored(
    source: ChangelogSource,
    stores: Mapping[TopicPartition, Store],
    root: Path,
    *,
    parallelism: int = 4,
    batch_records: int = 500,
) -> StoreRestoreOutcome:
    """Restore changelogs into their stores, each below ``root``, and close these."""
    restorer = ChangelogRestorer(
        source,
        clock=FakeClock(),
        settings=RestorerSettings(parallelism=parallelism, fetch_bytes=100, batch_records=batch_records),
    )
    for name, store in stores.items():
        directory = root / str(name)
        await store.open(directory / "store")
        restorer.register(name, RestoreTask(f"0_{name.partition}", directory, {name: store}))
    outcome = await restorer.run_until_completed()
    for store in stores.values():
        await store.close(clean=True)
    return outcome


def expected_content(segments: Sequence[Sequence[Sequence[Change]]], *, emptied: frozenset[int]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    offset = 0
    for records in (batch for batches in segments for batch in batches):
        for key, value in records if offset not in emptied else ():
            if key is not None and value is None:
                found.pop(key, None)
            elif key is not None and value is not None:
                found[key] = value
        offset += len(records)
    return found


@pytest.mark.spec("changelog-restore 64")
@given(
    segments=st.lists(st.lists(CHANGES, min_size=1, max_size=4), min_size=1, max_size=3),
    emptied=st.frozensets(st.integers(0, 20)),
)
@settings(max_examples=6, deadline=None)
def test_same_changelog_gives_identical_stores_of_every_kind(
    tmp_path_factory: pytest.TempPathFactory, segments: list[list[list[Change]]], emptied: frozenset[int]
) -> None:
    root, found = tmp_path_factory.mktemp("stores"), []
    for kind in KINDS:
        remote, store = changelog(0, segments, emptied=emptied), KINDS[kind]("counts")
        name = remote.view.partition.topic_partition
        outcome = asyncio.run(restored(Tiers({name: remote}).source(), {name: store}, root / kind, batch_records=3))
        assert outcome.completed == {name}
        found.append(content(store, root / kind / str(name) / "store"))
    assert found == [expected_content(segments, emptied=emptied)] * len(KINDS)


@pytest.mark.spec("changelog-restore 63")
async def test_eight_partitions_restored_in_parallel_equal_sequential_ones_within_the_budget(tmp_path: Path) -> None:
    remotes = {}
    for number in range(PARTITIONS):
        batches = [[(b"k%d" % (n % 17), b"%d-%d" % (number, n))] * 3 for n in range(17 + 4 * number)]
        remotes[partition(number).topic_partition] = changelog(number, [batches[:9], batches[9:]])
    found = []
    for parallelism in (1, PARTITIONS):
        tiers, root = Tiers(remotes), tmp_path / str(parallelism)
        kinds = {0: "rocks", 1: "sqlite"}
        stores: dict[TopicPartition, Store] = {
            name: KINDS[kinds.get(name.partition, "dict")]("counts") for name in remotes
        }
        outcome = await restored(tiers.source(), stores, root, parallelism=parallelism)
        assert outcome.completed == set(remotes)
        found.append({name: content(stores[name], root / str(name) / "store") for name in remotes})
        assert 0 < tiers.budget.peak_bytes <= 4000
    assert found[0] == found[1]
    assert all(len(each) == 17 for each in found[0].values())


@pytest.mark.spec("changelog-restore 57")
@pytest.mark.parametrize("kind", KINDS)
async def test_tombstone_deletes_from_a_timestamped_store_and_an_empty_value_keeps_its_time(
    tmp_path: Path, kind: str
) -> None:
    remote = changelog(0, [[[(b"gone", b"1"), (b"kept", b"2"), (b"gone", None), (b"empty", b"")]]])
    store = KINDS[kind]("counts", timestamped=True)
    name = remote.view.partition.topic_partition

    await restored(Tiers({name: remote}).source(), {name: store}, tmp_path)

    assert content(store, tmp_path / str(name) / "store") == {
        b"kept": (1).to_bytes(8, "big") + b"2",
        b"empty": (3).to_bytes(8, "big"),
    }


@pytest.mark.spec("changelog-restore 60")
@pytest.mark.parametrize("kind", ON_DISK)
async def test_store_whose_offset_lies_beyond_the_changelog_is_wiped_and_filled_anew(tmp_path: Path, kind: str) -> None:
    long = changelog(0, [[[(b"old", b"1"), (b"old2", b"1"), (b"old3", b"1")]]])
    short = changelog(0, [[[(b"new", b"2")]]])
    name = long.view.partition.topic_partition
    for remote in (long, short):
        store = ON_DISK[kind]("counts")
        outcome = await restored(Tiers({name: remote}).source(), {name: store}, tmp_path)
        assert outcome.completed == {name}
    assert content(store, tmp_path / str(name) / "store") == {b"new": b"2"}


@pytest.mark.spec("changelog-restore 54")
@pytest.mark.parametrize("kind", ON_DISK)
async def test_store_whose_segment_is_replaced_twice_under_the_restore_is_not_wiped(tmp_path: Path, kind: str) -> None:
    first = [[(b"k%d" % n, b"first")] for n in range(20)]
    changed = [[(b"k%d" % n, b"changed")] for n in range(30)]  # of a log that never changes, for proof
    begun = changelog(0, [first])
    replaced = filled(MovingLogs(None, 2, partition(0)), [changed[:20], changed[20:]])
    name = begun.view.partition.topic_partition
    await restored(Tiers({name: begun}).source(), {name: ON_DISK[kind]("counts")}, tmp_path)
    store = ON_DISK[kind]("counts")

    outcome = await restored(Tiers({name: replaced}).source(), {name: store}, tmp_path)

    assert outcome.completed == {name}
    assert replaced.moves_left == 0
    expected = {b"k%d" % n: b"first" if n < 20 else b"changed" for n in range(30)}
    assert content(store, tmp_path / str(name) / "store") == expected


@pytest.mark.parametrize("kind", ON_DISK)
async def test_store_goes_on_behind_its_own_offset(tmp_path: Path, kind: str) -> None:
    first = [[(b"k%d" % n, b"first")] for n in range(20)]
    changed = [[(b"k%d" % n, b"changed")] for n in range(30)]  # of a log that never changes, for proof
    begun, whole = changelog(0, [first]), changelog(0, [changed])
    name = begun.view.partition.topic_partition
    await restored(Tiers({name: begun}).source(), {name: ON_DISK[kind]("counts")}, tmp_path)
    store = ON_DISK[kind]("counts")

    await restored(Tiers({name: whole}).source(), {name: store}, tmp_path)

    expected = {b"k%d" % n: b"first" if n < 20 else b"changed" for n in range(30)}
    assert content(store, tmp_path / str(name) / "store") == expected
