"""Drill of one partition: what was restored is compared with the tier as it is now, batch by batch."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.restore.log_dir.lab import CLUSTER_ID, PARTITION, Lab, closed, new_log, write_segments
from tierd.errors import CorruptRecordError, RefusedError, RemoteIntegrityError, RemoteResourceNotFoundError
from tierd.model import ByteRange, RemoteLogSegmentMetadata, TopicIdPartition
from tierd.remote import PacedReads, SegmentStorage
from tierd.restore.drill.partition_drill import PartitionDrill, Proof
from tierd.restore.drill.record_samples import choose_samples
from tierd.restore.log_dir.partition_restore import restore_partition
from tierd.restore.plan.partition_plan import PartitionPlan, PlanFinding, PlanSeverity


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
async def plan(lab: Lab) -> PartitionPlan:
    log = new_log(lab.root / "lost")
    write_segments(log, 3)
    return lab.plan(await lab.copy(closed(log)))


async def never(partition: TopicIdPartition) -> PartitionPlan:
    raise AssertionError(f"{partition} has lost no segment")


async def drill(
    lab: Lab, plan: PartitionPlan, *, storage: SegmentStorage | None = None, arrived: list[int] | None = None
) -> Proof:
    partition_drill = PartitionDrill(
        storage or lab.storage,
        cluster_id=CLUSTER_ID,
        command=None,
        replan=never,
        random=iter([n / 97 for n in range(97)]).__next__,
        arrived=(arrived if arrived is not None else []).append,
    )
    place = lab.root / "place"
    place.mkdir()
    return await partition_drill.run(plan, place)


async def test_restored_batches_are_compared_with_the_tier(lab: Lab, plan: PartitionPlan) -> None:
    arrived: list[int] = []
    proof = await drill(lab, plan, arrived=arrived)
    assert proof.checks == ("restored", "loaded", "compared")
    assert proof.failure is None
    assert 3 < proof.samples <= 18
    assert (proof.restored.end_offset, proof.restored.batch_count) == (60, 30)
    assert sum(arrived) == proof.restored.size_bytes == plan.fetch_bytes
    assert proof.restored.directory == lab.root / "place" / "log-dir" / str(PARTITION)


async def test_part_of_a_segment_is_compared_at_its_place_in_the_tier(lab: Lab, plan: PartitionPlan) -> None:
    cut = lab.plan([part.metadata for part in plan.parts], log_start_offset=6, end_offset=44)
    proof = await drill(lab, cut)
    assert (proof.restored.log_start_offset, proof.restored.end_offset) == (6, 44)
    assert proof.samples > 3


async def test_empty_batches_of_offsets_that_the_tier_never_had_are_not_compared(lab: Lab, plan: PartitionPlan) -> None:
    proof = await drill(lab, replace(plan, known_end_offset=100))
    assert (proof.restored.end_offset, proof.restored.log_end_offset) == (60, 101)
    assert proof.samples > 3


class OtherBytes(SegmentStorage):
    """Storage that gives other bytes for the ranges that a sample is fetched by."""

    damage = staticmethod(lambda data: data)

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        data = await super().fetch_log_segment(metadata, byte_range)
        return self.damage(data) if byte_range.size == 64 << 10 else data


async def test_batch_that_differs_from_the_tier_fails_and_is_named(
    lab: Lab, plan: PartitionPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = OtherBytes(lab.store, cluster_id=CLUSTER_ID, broker_id=1, chunk_size=1 << 20)
    epoch_of_first = slice(12, 16)  # not covered by the CRC of the batch

    def with_other_epoch(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[epoch_of_first] = b"\0\0\0\x63"
        return bytes(changed)

    monkeypatch.setattr(storage, "damage", with_other_epoch)
    with pytest.raises(RemoteIntegrityError, match="offset 0 was restored, and the batch in the tier has other bytes"):
        await drill(lab, plan, storage=storage)


async def test_batch_that_the_tier_lacks_fails(lab: Lab, plan: PartitionPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = OtherBytes(lab.store, cluster_id=CLUSTER_ID, broker_id=1, chunk_size=1 << 20)
    monkeypatch.setattr(storage, "damage", lambda _: b"")
    with pytest.raises(RemoteIntegrityError, match="offset 0 was restored, and the tier lacks the batch"):
        await drill(lab, plan, storage=storage)


async def test_batch_with_a_wrong_checksum_in_the_tier_fails(
    lab: Lab, plan: PartitionPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = OtherBytes(lab.store, cluster_id=CLUSTER_ID, broker_id=1, chunk_size=1 << 20)
    monkeypatch.setattr(storage, "damage", lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:])
    with pytest.raises(CorruptRecordError):
        await drill(lab, plan, storage=storage)


async def test_restored_log_that_was_changed_behind_the_restore_fails(
    lab: Lab, plan: PartitionPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def spoiling(*args: object, **kwargs: object) -> object:
        restored = await restore_partition(*args, **kwargs)  # type: ignore[arg-type]
        log = min(restored.directory.glob("*.log"))
        data = bytearray(log.read_bytes())
        data[70] ^= 1
        log.write_bytes(data)
        return restored

    monkeypatch.setattr("tierd.restore.drill.partition_drill.restore_partition", spoiling)
    with pytest.raises(RemoteIntegrityError, match="offset 0 was restored"):
        await drill(lab, plan)


class GoneOnce(SegmentStorage):
    """Storage whose first sample finds the segment removed."""

    is_gone = True

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        if self.is_gone and byte_range.size == 64 << 10:
            self.is_gone = False
            raise RemoteResourceNotFoundError(f"{metadata.segment} is gone")
        return await super().fetch_log_segment(metadata, byte_range)


@pytest.mark.parametrize("is_broker", [False, True], ids=["alone", "of a broker"])
async def test_partition_whose_segments_go_before_they_are_compared_is_restored_by_the_new_plan(
    lab: Lab, plan: PartitionPlan, *, is_broker: bool
) -> None:
    later = lab.plan([part.metadata for part in plan.parts[1:]], log_start_offset=20)

    async def replan(partition: TopicIdPartition) -> PartitionPlan:
        assert partition == plan.partition
        return later

    partition_drill = PartitionDrill(
        GoneOnce(lab.store, cluster_id=CLUSTER_ID, broker_id=1, chunk_size=1 << 20),
        cluster_id=CLUSTER_ID,
        command=None,
        replan=replan,
        random=lambda: 0.5,
        arrived=lambda _: None,
    )
    place = lab.root / "place"
    place.mkdir()
    if is_broker:
        proof = (await partition_drill.run_all([plan], place, of_one=(RemoteIntegrityError,)))[plan.partition]
        assert isinstance(proof, Proof), proof
    else:
        proof = await partition_drill.run(plan, place)
    assert proof.plan == later
    assert (proof.restored.log_start_offset, proof.restored.end_offset) == (20, 60)


async def test_refused_plan_is_refused_by_the_drill(lab: Lab, plan: PartitionPlan) -> None:
    hole = PlanFinding(PlanSeverity.REFUSED, "offsets 20 to 39 are missing in the middle", "")
    with pytest.raises(RefusedError, match="offsets 20 to 39 are missing"):
        await drill(lab, replace(plan, findings=(hole,)))


async def test_samples_have_the_first_and_the_last_batch_whatever_chance_says(lab: Lab, plan: PartitionPlan) -> None:
    directory = (await drill(lab, plan)).restored.directory
    for chance in (0.0, 0.5, 0.999999):
        samples = choose_samples(directory, end_offset=60, random=[chance, chance].pop, count=1)
        assert (samples[0].base_offset, samples[-1].last_offset) == (0, 59)


async def test_log_without_batches_has_no_samples(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").touch()
    assert choose_samples(tmp_path, end_offset=1, random=lambda: 0.5, count=3) == []


async def test_reads_of_a_drill_keep_to_the_rate(lab: Lab, plan: PartitionPlan) -> None:
    clock = FakeClock()
    paced = PacedReads(lab.store, bytes_per_second=100, clock=clock)
    storage = SegmentStorage(paced, cluster_id=CLUSTER_ID, broker_id=1, chunk_size=1 << 20)
    await drill(lab, plan, storage=storage)
    assert clock.monotonic_s() >= plan.fetch_bytes / 100 - 1
