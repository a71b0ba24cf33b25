"""Comparison of a standby's copy with the tier: the finding for each way in which a copy may differ."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.logs import follow
from tests.tiering.compacted import Compaction
from tests.tiering.standbys.compared import note
from tests.tiering.standbys.replicated import COMPACT, Replicated, keyed
from tierd.errors import RemoteIntegrityError
from tierd.log import LEADER_EPOCH_CHECKPOINT, encode_lineage, identify_directory, iter_batches, set_leader_epoch
from tierd.model import Lineage
from tierd.tiering import Severity
from tierd.tiering.standbys.batch_comparison import BatchComparison
from tierd.tiering.standbys.key_comparison import KeyComparison
from tierd.tiering.standbys.offset_comparison import CommonOffsets, CopyCompared
from tierd.tiering.standbys.standby_copy import read_standby_copy


async def copied(folder: Path, *, policy: frozenset[str] | None = None) -> Replicated:
    """Return a pair with 12 records in three batches in the tier and on the standby."""
    pair = Replicated(folder) if policy is None else Replicated(folder, policy=policy)
    for keys in ("abcd", "efgh", "ijkl"):
        pair.append(keyed(*keys))
    await pair.copy()
    pair.follow()
    return pair


def rewrite_log(pair: Replicated, change: Callable[[bytearray], object]) -> None:
    """Change the bytes of the standby's first segment."""
    path = min(pair.standby.directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


async def test_copy_that_is_ahead_of_the_tier_has_a_note_alone(tmp_path: Path) -> None:
    pair = await copied(tmp_path)
    pair.append(keyed("m", "n"))
    pair.follow()
    (found,) = await pair.verify()
    assert found == CopyCompared(
        Severity.NOTE,
        "standby-compared",
        "orders-0: offsets 0 to 13; the tier has 0 to 11; both have 0 to 11; 2 beyond the tier; 12 records are equal",
        str(pair.standby.directory),
        "nothing to do",
        partition="orders-0",
        tier_start_offset=0,
        tier_end_offset=12,
        standby_start_offset=0,
        standby_end_offset=14,
        compared_records=12,
    )
    assert note(await pair.verify(deep=False)).compared_records is None


async def test_copy_of_a_partition_that_is_not_in_the_tier_has_a_note_alone(tmp_path: Path) -> None:
    pair = Replicated(tmp_path)
    pair.append(keyed("a", "b"))
    pair.follow()
    (found,) = await pair.verify()
    assert found.what == "orders-0: offsets 0 to 1; the tier has none; 2 beyond the tier; 0 records are equal"


async def test_copy_that_ends_before_the_tier_is_behind(tmp_path: Path) -> None:
    pair = await copied(tmp_path)
    pair.append(keyed("m", "n", "o"))
    await pair.copy()
    for deep in (False, True):
        found = await pair.verify(deep=deep)
        assert [(each.kind, each.what) for each in found[1:]] == [
            ("standby-behind", "it ends at 12, the tier at 15: 3 offsets behind")
        ]


async def test_offsets_that_neither_has_are_a_gap(tmp_path: Path) -> None:
    pair = await copied(tmp_path)
    for keys in ("mn", "op"):
        pair.append(keyed(*keys))
    pair.follow()
    pair.standby.truncate_fully_and_start_at(14, now_ms=pair.now_ms)
    assert await pair.faults() == ["standby-gap"]


@pytest.mark.parametrize("deep", [False, True])
async def test_copy_of_another_leader_epoch_has_diverged(tmp_path: Path, deep: bool) -> None:
    pair = Replicated(tmp_path)
    pair.append(keyed(*"abcd"))
    pair.follow()
    pair.begin_epoch()
    ours = pair.leader.log_end_offset
    pair.append(keyed(*"xyz"))
    await pair.copy()
    from_old_leader = bytearray(bytes(pair.leader.read(ours, max_bytes=1 << 20, isolation=None).records))
    set_leader_epoch(from_old_leader, 0)
    follow(pair.standby, bytes(from_old_leader))
    assert await pair.faults(deep=deep) == ["standby-diverged"]


async def test_batch_with_another_epoch_inside_an_epoch_is_found_by_a_deep_comparison(tmp_path: Path) -> None:
    pair = await copied(tmp_path)

    def change(data: bytearray) -> None:
        size = len(data) // 3
        second = data[size : 2 * size]
        set_leader_epoch(second, 5)
        data[size : 2 * size] = second

    rewrite_log(pair, change)
    assert await pair.faults(deep=False) == []
    assert "standby-diverged" in await pair.faults()


async def test_leader_epochs_that_the_copy_notes_wrongly_have_diverged(tmp_path: Path) -> None:
    pair = await copied(tmp_path)
    (pair.standby.directory / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_lineage(Lineage.of([(0, 0), (3, 4)])))
    assert "standby-diverged" in await pair.faults(deep=False)


async def test_missing_leader_epochs_of_the_copy_are_damage(tmp_path: Path) -> None:
    pair = await copied(tmp_path)
    (pair.standby.directory / LEADER_EPOCH_CHECKPOINT).unlink()
    assert await pair.faults(deep=False) == ["standby-damage"]


async def test_other_record_at_an_offset_is_found_by_a_deep_comparison(tmp_path: Path) -> None:
    pair = await copied(tmp_path)
    pair.standby.truncate_to(8, now_ms=pair.now_ms)
    other = Replicated(tmp_path / "other")
    for keys in ("abcd", "efgh", "wxyz"):
        other.append(keyed(*keys))
    follow(pair.standby, bytes(other.leader.read(8, max_bytes=1 << 20, isolation=None).records))
    assert await pair.faults(deep=False) == []
    assert await pair.faults() == ["standby-differs"]


@pytest.mark.parametrize("is_compacted", [False, None])
async def test_batch_without_keys_that_the_copy_lacks_is_a_hole(tmp_path: Path, is_compacted: bool | None) -> None:
    pair = Replicated(tmp_path)
    for _ in range(3):
        pair.append([(None, b"value"), (None, b"value")])
    await pair.copy()
    data = bytes(pair.leader.read(0, max_bytes=1 << 20, isolation=None).records)
    size = len(data) // 3
    follow(pair.standby, data[:size])
    follow(pair.standby, data[2 * size :])
    found = await pair.verify(is_compacted=is_compacted)
    assert [(each.kind, each.what) for each in found[1:]] == [
        ("standby-hole", "it lacks 2 offsets from 2 to 3, which the tier has, between offsets that it has")
    ]


async def test_records_that_the_tier_has_erased_are_a_note(tmp_path: Path) -> None:
    pair = await copied(tmp_path)
    await Compaction(pair.session, pair.partition, tmp_path / "compacted").replace(0, 11, {0, 8})
    found = await pair.verify(is_compacted=False)
    assert [(each.kind, each.severity, each.what) for each in found[1:]] == [
        (
            "standby-extra",
            Severity.NOTE,
            "it has 4 offsets from 4 to 7, which the tier does not have: lost there, compacted or erased",
        )
    ]
    assert note(found).compared_records == 8


async def test_more_keys_than_fit_in_memory_are_not_compared(tmp_path: Path) -> None:
    pair = await copied(tmp_path, policy=COMPACT)
    tier = list(iter_batches(bytes(pair.leader.read(0, max_bytes=1 << 20, isolation=None).records), name="tier"))
    pair.standby.truncate_fully_and_start_at(0, now_ms=pair.now_ms)
    directory = identify_directory(pair.standby.directory)
    assert directory is not None
    comparison = BatchComparison(
        read_standby_copy(directory), CommonOffsets(0, 12), is_compacted=True, keys=KeyComparison(max_keys=11)
    )
    comparison.take(tier)
    comparison.finish()
    assert [(each.kind, each.severity) for each in comparison.findings()] == [("standby-not-compared", Severity.NOTE)]


async def test_flipped_bit_of_the_copy_is_damage(tmp_path: Path) -> None:
    pair = await copied(tmp_path)
    rewrite_log(pair, lambda data: data.__setitem__(-1, data[-1] ^ 1))
    assert await pair.faults(deep=False) == []
    assert set(await pair.faults()) == {"standby-damage"}


async def test_torn_end_of_the_active_segment_is_damage_if_it_stays(tmp_path: Path) -> None:
    pair = await copied(tmp_path)
    path = max(pair.standby.directory.glob("*.log"))
    path.write_bytes(path.read_bytes() + b"torn")
    assert set(await pair.faults()) == {"standby-damage"}


async def test_segments_that_are_never_replaced_to_the_end_are_not_compared(tmp_path: Path) -> None:
    pair = await copied(tmp_path)
    path = min(pair.standby.directory.glob("*.log"))
    path.with_name(f"{path.name}.swap").write_bytes(path.read_bytes())
    (found,) = await pair.verify()
    assert (found.severity, found.kind) == (Severity.WARNING, "standby-not-compared")
    assert "replacing segments" in found.what


async def test_damaged_tier_is_a_note_and_no_fault_of_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = await copied(tmp_path)

    async def damaged(*_: object) -> bytes:
        raise RemoteIntegrityError("chunk 0: wrong checksum")

    monkeypatch.setattr(pair.session.storage, "fetch_log_segment", damaged)
    found = {each.kind: each.severity for each in await pair.verify()}
    assert found == {"standby-compared": Severity.NOTE, "standby-not-compared": Severity.NOTE}


class TestCompacted:
    """Copies of compacted topics: the same latest record of each key."""

    async def test_cleaned_copy_beside_a_tier_that_is_not_cleaned_has_no_fault(self, tmp_path: Path) -> None:
        pair = Replicated(tmp_path, policy=COMPACT)
        for keys in ("abca", "bBca", "ad"):
            pair.append(keyed(*keys))
        await pair.copy()
        pair.follow()
        pair.clean_standby()
        assert pair.standby.log_end_offset == 10
        found = await pair.verify(is_compacted=True)
        assert len(found) == 1
        assert (note(found).compared_records or 0) < 10

    async def test_later_record_beyond_the_tier_explains_what_the_copy_lacks(self, tmp_path: Path) -> None:
        pair = Replicated(tmp_path, policy=COMPACT)
        pair.append(keyed("a", "b"))
        await pair.copy()
        pair.append(keyed("a", "c"))
        pair.follow()
        pair.clean_standby()
        assert await pair.faults(is_compacted=True) == []

    async def test_latest_record_of_a_key_that_the_copy_lacks_is_found(self, tmp_path: Path) -> None:
        pair = Replicated(tmp_path, policy=COMPACT)
        pair.append(keyed("a", "b"))
        await pair.copy()
        pair.append(keyed("a", "c"))
        pair.clean_leader()
        pair.follow(1)  # the cleaned batch with b alone; the later record of a is not there yet
        assert pair.standby.log_end_offset == 2
        found = await pair.verify(is_compacted=True)
        assert [(each.kind, each.severity, each.what) for each in found[1:]] == [
            ("standby-keys", Severity.WARNING, "it lacks the latest record of 1 keys, the first at offset 0")
        ]
        pair.follow()
        assert await pair.faults(is_compacted=True) == []

    async def test_copy_that_missed_a_deletion_brings_a_key_back(self, tmp_path: Path) -> None:
        pair = Replicated(tmp_path, policy=COMPACT)
        pair.append(keyed("a", "b"))
        pair.follow()
        pair.append(keyed("A", "c"))
        pair.append(keyed("d"))
        await pair.copy()
        for _ in range(3):  # the second round sets the delete horizon, a later one removes the tombstone
            pair.clean_leader()
        pair.follow()
        found = await pair.verify(is_compacted=True)
        assert [(each.kind, each.what) for each in found[1:]] == [
            ("standby-revived", "the key at offset 0 was deleted later, and the copy has lost the deletion")
        ]

    async def test_topic_that_is_not_compacted_has_no_explanation_by_keys(self, tmp_path: Path) -> None:
        pair = Replicated(tmp_path)
        for keys in ("ab", "ac", "ad"):
            pair.append(keyed(*keys))
        await pair.copy()
        data = bytes(pair.leader.read(0, max_bytes=1 << 20, isolation=None).records)
        size = len(data) // 3
        follow(pair.standby, data[:size])
        follow(pair.standby, data[2 * size :])
        assert await pair.faults(is_compacted=False) == ["standby-hole"]
        assert await pair.faults(is_compacted=None) == ["standby-keys"]
        assert await pair.faults(is_compacted=True) == ["standby-keys"]
