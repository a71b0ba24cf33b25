"""Restore of a partition into a log dir: the directory that a broker finds, in each mode (changelog-restore 5)."""

import errno
import json
import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.logs import TransactionalProducer, TransactionalProducers, lead, read_all, records, rows
from tests.restore.log_dir.lab import (
    NEW_TOPIC,
    PARTITION,
    Lab,
    closed,
    content_of,
    new_log,
    stored_log,
    values,
    write_segments,
)
from tierd.errors import RefusedError, RemoteIntegrityError, RemoteResourceNotFoundError
from tierd.log import (
    CLEAN_SHUTDOWN_FILE,
    Damage,
    build_indexes,
    inspect_path,
    iter_batches,
    parse_producer_snapshot,
    read_offset_checkpoint,
    read_producer_snapshot,
    repair_partition,
)
from tierd.model import EpochEntry, IndexType, IsolationLevel, Lineage, RemoteLogSegmentMetadata
from tierd.restore.plan.partition_plan import RestoreMode

COMMITTED = IsolationLevel.READ_COMMITTED


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "host")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the log dir of the broker that was lost."""
    return tmp_path / "lost"


async def test_largest_timestamp_below_the_log_start_is_no_damage(lab: Lab, source: Path) -> None:
    """A search by time ends in the segment that has it, as with a broker, and finds nothing behind."""
    log = new_log(source)
    lead(log, rows(0, [(9_000, b"k", b"below the log start"), (1_000, b"k", b"v")]))
    log.roll(now_ms=9_000)
    lead(log, records(2, timestamp_ms=5_000))
    log.roll(now_ms=9_000)
    lost = values(read_all(log))

    await lab.restore(lab.plan(await lab.copy(closed(log)), log_start_offset=1))

    assert values(read_all(lab.load())) == lost[1:]


@pytest.mark.parametrize("topic", ["../evil", "a b", "a\n0\n", "__cluster_metadata"])
async def test_name_that_no_log_dir_can_have_is_refused_and_nothing_is_written(
    lab: Lab, source: Path, topic: str, tmp_path: Path
) -> None:
    write_segments(log := new_log(source), 1)
    plan = lab.plan(await lab.copy(closed(log)), mode=RestoreMode.IMPORT)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(RefusedError, match="is not the name of a topic"):
        await lab.restore(plan, partition=replace(NEW_TOPIC, topic=topic))
    assert set(tmp_path.rglob("*")) - before == {lab.stage}


@pytest.mark.spec("changelog-restore 65")
async def test_restored_directory_has_the_files_of_the_lost_one_and_every_record(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 3)
    lost = values(read_all(log))
    before = content_of(closed(log))
    restored = await lab.restore(lab.plan(await lab.copy(source / "orders-0")))
    found = content_of(lab.directory)
    names = [f"{base:020d}" for base in (0, 20, 40)]
    for name in [name + suffix for name in names for suffix in (".log", ".index", ".timeindex")]:
        assert found[name] == before[name], name
    assert found["leader-epoch-checkpoint"] == before["leader-epoch-checkpoint"]
    assert found["partition.metadata"] == before["partition.metadata"]
    assert found[f"{60:020d}.log"] == b"", "a fresh active segment"
    loaded = lab.load()
    assert values(read_all(loaded)) == lost
    assert (loaded.log_start_offset, loaded.log_end_offset) == (0, 60)
    assert (restored.segment_count, restored.batch_count, restored.end_offset) == (3, 30, 60)
    assert (restored.rebuilt_indexes, restored.moved_aside, restored.dropped) == (0, None, ())


@pytest.mark.spec("changelog-restore 66")
@pytest.mark.parametrize("kind", [IndexType.OFFSET, IndexType.TIMESTAMP])
async def test_index_that_contradicts_the_batches_is_built_anew(lab: Lab, source: Path, kind: IndexType) -> None:
    log = new_log(source)
    write_segments(log, 2)
    directory = closed(log)
    suffix = {IndexType.OFFSET: ".index", IndexType.TIMESTAMP: ".timeindex"}[kind]
    path = directory / f"{0:020d}{suffix}"
    wrong = bytearray(path.read_bytes())
    wrong[7] += 1  # the position of the first entry, or the timestamp
    path.write_bytes(wrong)
    restored = await lab.restore(lab.plan(await lab.copy(directory)))
    assert restored.rebuilt_indexes == 1
    offsets, times = build_indexes(lab.directory / f"{0:020d}.log", base_offset=0)
    assert (lab.directory / f"{0:020d}.index").read_bytes() == offsets
    assert (lab.directory / f"{0:020d}.timeindex").read_bytes() == times


@pytest.mark.spec("changelog-restore 66")
async def test_index_with_room_behind_its_entries_is_built_anew(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 1)
    directory = closed(log)
    path = directory / f"{0:020d}.index"
    path.write_bytes(path.read_bytes() + bytes(80))
    restored = await lab.restore(lab.plan(await lab.copy(directory)))
    assert restored.rebuilt_indexes == 1
    offsets, _ = build_indexes(lab.directory / f"{0:020d}.log", base_offset=0)
    assert (lab.directory / f"{0:020d}.index").read_bytes() == offsets


@pytest.mark.spec("changelog-restore 67")
async def test_segment_that_overlaps_the_one_before_is_cut_and_renamed(lab: Lab, source: Path, tmp_path: Path) -> None:
    log = new_log(source)
    write_segments(log, 2)
    lost = values(read_all(log))
    directory = closed(log)
    _, second = await lab.copy(directory)
    longer = new_log(tmp_path / "other")
    write_segments(longer, 1, batches=13)  # of another copy, whose segment reaches to 25
    (overlapping,) = await lab.copy(closed(longer))
    plan = lab.plan([overlapping, second])
    cut = [part._replace(start_offset=26) if part.metadata is second else part for part in plan.parts]
    cut[0] = cut[0]._replace(end_offset=26)
    restored = await lab.restore(replace(plan, parts=tuple(cut)))
    assert [base for base, _ in stored_log(lab.directory)] == [0, 26]
    offsets, times = build_indexes(lab.directory / f"{26:020d}.log", base_offset=26)
    assert (lab.directory / f"{26:020d}.index").read_bytes() == offsets
    assert (lab.directory / f"{26:020d}.timeindex").read_bytes() == times
    assert restored.rebuilt_indexes == 1
    assert values(read_all(lab.load())) == lost


@pytest.mark.spec("changelog-restore 68")
async def test_lost_snapshots_are_built_anew_and_no_stop_counts_as_clean(lab: Lab, source: Path) -> None:
    log = new_log(source)
    producers = TransactionalProducers(log)
    for entry in ("A", "A+", "B", "B!", "-", "A", "A+"):
        producers.append(entry)
        log.roll(now_ms=1)
    expected = {entry.producer_id: entry for entry in log.producers.entries}
    directory = closed(log)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    (lab.log_dir / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":1}')
    await lab.restore(lab.plan(await lab.copy(directory)))
    assert not (lab.log_dir / CLEAN_SHUTDOWN_FILE).exists()
    assert {entry.producer_id: entry for entry in lab.load().producers.entries} == expected


@pytest.mark.spec("changelog-restore 69")
async def test_snapshot_is_named_by_the_offset_behind_its_segment(lab: Lab, source: Path) -> None:
    log = new_log(source)
    producer = TransactionalProducer(log, 1000)
    for count, _ in ((40, 0), (30, 1), (30, 2)):
        producer.write(count - 1)
        producer.end(commit=True)
        log.roll(now_ms=1)
    directory = closed(log)
    await lab.restore(lab.plan(await lab.copy(directory)))
    names = sorted(path.name for path in lab.directory.glob("*.snapshot"))
    assert names == [f"{offset:020d}.snapshot" for offset in (40, 70, 100)]
    for name in names:
        assert read_producer_snapshot(lab.directory / name) == read_producer_snapshot(directory / name)


@pytest.mark.parametrize("are_lost", [False, True], ids=["in the tier", "lost"])
@pytest.mark.parametrize("mode", RestoreMode)
async def test_every_segment_but_the_first_has_a_snapshot_at_its_base_as_inspections_and_repairs_demand(
    lab: Lab, source: Path, mode: RestoreMode, are_lost: bool
) -> None:
    log = new_log(source)
    producers = TransactionalProducers(log)
    for entry in ("A", "A+", "B", "B!", "-", "A", "A+", "B", "B+"):
        producers.append(entry)
        log.roll(now_ms=1)
    directory = closed(log)
    kept = {path.name: read_producer_snapshot(path) for path in directory.glob("*.snapshot")}
    for path in directory.glob("*.snapshot"):
        if are_lost:
            path.unlink()
    restored = await lab.restore(lab.plan(await lab.copy(directory), mode=mode))

    bases = sorted(int(path.stem) for path in lab.directory.glob("*.log"))
    assert len(bases) > 4
    assert {int(path.stem) for path in lab.directory.glob("*.snapshot")} == {*bases[1:], restored.log_end_offset}
    if mode is not RestoreMode.IMPORT:
        assert {path.name: read_producer_snapshot(path) for path in lab.directory.glob("*.snapshot")} == kept
    assert [each for each in inspect_path(lab.directory, deep=True) if isinstance(each, Damage)] == []
    assert repair_partition(lab.directory, now_ms=1, dry_run=True).plan.steps == ()


async def test_highest_producer_id_is_that_of_batches_and_of_snapshots(lab: Lab, source: Path) -> None:
    log = new_log(source)
    for producer_id in (1500, 1000):
        producer = TransactionalProducer(log, producer_id)
        producer.write(1)
        producer.end(commit=True)
        log.roll(now_ms=1)
    segments = await lab.copy(closed(log))
    restored = await lab.restore(lab.plan(segments[1:]))
    assert restored.highest_producer_id == 1500, "it is in the snapshot alone"
    again = await lab.restore(lab.plan(segments[1:]))
    assert again.highest_producer_id == 1500


async def test_partition_without_producers_has_no_highest_producer_id(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 1)
    restored = await lab.restore(lab.plan(await lab.copy(closed(log))))
    assert restored.highest_producer_id == -1


@pytest.mark.spec("changelog-restore 74")
async def test_import_forgets_epochs_producers_and_aborted_records(lab: Lab, source: Path) -> None:
    log = new_log(source)
    producers = TransactionalProducers(log)
    for entry in ("-", "A", "B", "A!", "B+", "-", "A", "A+"):
        producers.append(entry)
        if entry in ("B", "-"):
            log.roll(now_ms=1)
    lead(log, records(3), epoch=4)
    log.roll(now_ms=1)
    committed = values(read_all(log, isolation=None))
    aborted, markers = {1}, {3, 4, 7}
    segments = await lab.copy(closed(log))
    restored = await lab.restore(lab.plan(segments, mode=RestoreMode.IMPORT))
    for base, data in stored_log(lab.directory):
        for batch in iter_batches(data, name=str(base)):
            assert batch.is_valid
            assert (batch.partition_leader_epoch, batch.producer_id) == (0, -1)
            assert (batch.producer_epoch, batch.base_sequence) == (-1, -1)
            assert not batch.is_transactional
            assert not batch.is_control
    assert (lab.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert restored.partition == NEW_TOPIC
    loaded = lab.load()
    assert loaded.topic_id == NEW_TOPIC.topic_id
    assert values(read_all(loaded)) == [each for each in committed if each[0] not in aborted | markers]
    snapshots = sorted(lab.directory.glob("*.snapshot"))
    assert [int(path.stem) for path in snapshots] == [base for base, _ in stored_log(lab.directory)[1:]] + [
        restored.log_end_offset
    ]
    for snapshot in snapshots:
        assert parse_producer_snapshot(snapshot.read_bytes(), "snapshot") == ()


@pytest.mark.spec("changelog-restore 75")
async def test_end_inside_a_batch_is_rounded_down_and_reported(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 2)
    segments = await lab.copy(closed(log))
    restored = await lab.restore(lab.plan(segments, end_offset=25, mode=RestoreMode.REPLICA))
    assert restored.end_offset == 24
    assert [(each.start_offset, each.end_offset) for each in restored.dropped] == [(24, 25)]
    assert lab.load().log_end_offset == 24


@pytest.mark.spec("changelog-restore 76")
async def test_existing_directory_is_moved_aside(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 2)
    segments = await lab.copy(closed(log))
    existing = new_log(lab.log_dir)
    write_segments(existing, 1, batches=3)
    before = content_of(closed(existing))
    restored = await lab.restore(lab.plan(segments))
    assert restored.moved_aside is not None
    assert restored.moved_aside.is_relative_to(lab.stage)
    assert content_of(restored.moved_aside) == before
    assert lab.load().log_end_offset == 40


async def test_existing_directory_of_another_topic_id_is_refused(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 1)
    segments = await lab.copy(closed(log))
    existing = new_log(lab.log_dir)
    closed(existing)
    (lab.directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACA")
    before = content_of(lab.directory)
    with pytest.raises(RefusedError, match="topic was deleted and made again"):
        await lab.restore(lab.plan(segments))
    assert content_of(lab.directory) == before


@pytest.mark.parametrize("mode", [RestoreMode.LAST_COPY, RestoreMode.IMPORT])
async def test_restore_ends_where_every_transaction_is_decided(lab: Lab, source: Path, mode: RestoreMode) -> None:
    """A's marker lies behind the begin of B, which no marker ends: a cut before B would open A again."""
    log = new_log(source)
    producers = TransactionalProducers(log)
    for entry in ("-", "A", "B", "A+", "-"):
        producers.append(entry)
    log.roll(now_ms=1)
    segments = await lab.copy(closed(log))
    restored = await lab.restore(lab.plan(segments, mode=mode))
    assert restored.end_offset == 1
    assert [each[:2] for each in restored.dropped] == [(1, 5)]
    assert restored.log_end_offset == (6 if mode is RestoreMode.LAST_COPY else 5), "no issued offset is issued again"
    loaded = lab.load()
    loaded.update_high_watermark(loaded.log_end_offset)
    assert loaded.last_stable_offset == loaded.log_end_offset == restored.log_end_offset
    assert [record.offset for record in read_all(loaded, isolation=COMMITTED)] == [0]


async def test_replica_keeps_open_transactions(lab: Lab, source: Path) -> None:
    log = new_log(source)
    producers = TransactionalProducers(log)
    for entry in ("-", "A", "B", "A+", "-"):
        producers.append(entry)
    log.roll(now_ms=1)
    expected = log.producers.entries
    segments = await lab.copy(closed(log))
    restored = await lab.restore(lab.plan(segments, mode=RestoreMode.REPLICA), known_end_offset=50)
    assert (restored.end_offset, restored.log_end_offset, restored.dropped) == (5, 5, ())
    loaded = lab.load()
    assert set(loaded.producers.entries) == set(expected)
    loaded.update_high_watermark(5)
    assert loaded.last_stable_offset == 2


@pytest.mark.parametrize("mode", [RestoreMode.LAST_COPY, RestoreMode.REPLICA])
async def test_transaction_that_is_open_from_below_the_log_start_is_forgotten_without_a_leader(
    lab: Lab, source: Path, mode: RestoreMode
) -> None:
    """The last copy has no batch of it. The last stable offset would stay at the log start for ever."""
    log = new_log(source)
    producers = TransactionalProducers(log)
    for entry in ("A", "-", "B", "B+", "-"):
        producers.append(entry)
        log.roll(now_ms=1)
    segments = await lab.copy(closed(log))
    await lab.restore(lab.plan(segments[1:], mode=mode))
    loaded = lab.load()
    loaded.update_high_watermark(5)
    assert {entry.producer_id for entry in loaded.producers.entries} == {1000, 1001}
    assert loaded.last_stable_offset == (5 if mode is RestoreMode.LAST_COPY else 1)


async def test_next_record_comes_behind_every_known_offset(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 2)
    lost = values(read_all(log))
    segments = await lab.copy(closed(log))
    restored = await lab.restore(lab.plan(segments), known_end_offset=77)
    assert (restored.end_offset, restored.log_end_offset) == (40, 78)
    loaded = lab.load()
    assert loaded.log_end_offset == 78
    assert values(read_all(loaded)) == lost
    gap = loaded.read(40, max_bytes=1000, isolation=None).records
    assert [(batch.base_offset, batch.last_offset) for batch in iter_batches(gap, name="gap")] == [(40, 77)]
    lead(loaded, records(1))
    assert [record.offset for record in read_all(loaded)][-1] == 78


@pytest.mark.parametrize("end_offset", range(40, 78))
async def test_copy_with_records_that_the_restored_log_lacks_ends_on_no_border_of_its_batches(
    lab: Lab, source: Path, end_offset: int
) -> None:
    """Its last leader epoch is the leader's, so that only the batches can tell it where it has to truncate."""
    log = new_log(source)
    write_segments(log, 2)
    await lab.restore(lab.plan(await lab.copy(closed(log))), known_end_offset=77)
    fetched = lab.load().read(end_offset, max_bytes=1000, isolation=None).records
    assert next(iter_batches(fetched, name="fetched")).base_offset == 40


async def test_gap_of_more_offsets_than_a_segment_has_is_covered(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 1)
    segments = await lab.copy(closed(log))
    most = (1 << 31) - 1
    await lab.restore(lab.plan(segments), known_end_offset=20 + most + 5)
    assert [base for base, _ in stored_log(lab.directory)] == [0, 20, 20 + most]
    assert [path.stem for path in sorted(lab.directory.glob("*.log"))] == [f"{n:020d}" for n in (0, 20, 20 + most)]
    assert lab.load().log_end_offset == 20 + most + 6


async def test_epochs_come_back_trimmed_to_the_log(lab: Lab, source: Path) -> None:
    log = new_log(source)
    for epoch in (2, 3, 7):
        lead(log, records(5), epoch=epoch)
        lead(log, records(5), epoch=epoch)
        log.roll(now_ms=1)
    segments = await lab.copy(closed(log))
    await lab.restore(lab.plan(segments, log_start_offset=12, end_offset=25, mode=RestoreMode.REPLICA))
    assert lab.epochs() == Lineage((EpochEntry(3, 12), EpochEntry(7, 20)))
    starts = read_offset_checkpoint(lab.log_dir / "log-start-offset-checkpoint")
    assert starts[PARTITION.topic_partition] == 12
    loaded = lab.load()
    assert [record.offset for record in read_all(loaded)] == list(range(12, 25))


async def test_batches_of_another_branch_are_refused(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 2)
    segments = await lab.copy(closed(log))
    lineage = Lineage((EpochEntry(0, 0), EpochEntry(1, 30)))
    with pytest.raises(Exception, match="leader epoch 0 at offset 30"):
        await lab.restore(lab.plan(segments, lineage=lineage))
    assert not lab.directory.exists()


async def test_damaged_segment_is_named_and_nothing_is_restored(
    lab: Lab, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log(source)
    write_segments(log, 2)
    segments = await lab.copy(closed(log))

    async def damaged(
        metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        async for piece in plain(metadata, start, end):
            data = bytearray(piece)
            data[300] ^= 1
            yield bytes(data)

    plain = lab.storage.stream_log_segment
    monkeypatch.setattr(lab.storage, "stream_log_segment", damaged)
    with pytest.raises(RemoteIntegrityError, match=r"orders-0:.* is damaged in the tier"):
        await lab.restore(lab.plan(segments))
    assert list(lab.log_dir.iterdir()) == []


async def test_segment_that_is_gone_is_an_error_and_nothing_is_restored(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 2)
    segments = await lab.copy(closed(log))
    await lab.storage.delete_log_segment_data(segments[1])
    with pytest.raises(RemoteResourceNotFoundError):
        await lab.restore(lab.plan(segments))
    assert list(lab.log_dir.iterdir()) == []


async def test_wrong_transaction_index_is_built_anew(lab: Lab, source: Path) -> None:
    log = new_log(source)
    producers = TransactionalProducers(log)
    for entry in ("A", "-", "A!", "-", "B", "B!"):
        producers.append(entry)
    log.roll(now_ms=1)
    log.update_high_watermark(log.log_end_offset)
    expected = [record.offset for record in read_all(log, isolation=COMMITTED)]
    directory = closed(log)
    path = directory / f"{0:020d}.txnindex"
    right = path.read_bytes()
    path.write_bytes(right[:34])
    await lab.restore(lab.plan(await lab.copy(directory)))
    assert (lab.directory / path.name).read_bytes() == right
    loaded = lab.load()
    loaded.update_high_watermark(loaded.log_end_offset)
    assert [record.offset for record in read_all(loaded, isolation=COMMITTED)] == expected


async def test_manifest_tells_what_was_restored_with_digests(lab: Lab, source: Path) -> None:
    log = new_log(source)
    write_segments(log, 1)
    restored = await lab.restore(lab.plan(await lab.copy(closed(log))))
    manifest = json.loads(restored.manifest.read_text())
    assert manifest["end_offset"] == 20
    assert set(manifest["files"]) == set(content_of(lab.directory))
    sizes = {name: file["size_bytes"] for name, file in manifest["files"].items()}
    assert sizes == {name: len(content) for name, content in content_of(lab.directory).items()}


async def test_file_system_without_links_gets_copies(lab: Lab, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(source)
    write_segments(log, 2)
    lost = values(read_all(log))
    segments = await lab.copy(closed(log))

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    await lab.restore(lab.plan(segments))
    assert values(read_all(lab.load())) == lost
