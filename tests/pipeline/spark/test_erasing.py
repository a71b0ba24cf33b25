"""Erasures by the real job: of both kinds of topics, in a folder and in a bucket that keeps versions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.pipeline.erasing.lab import COMPACTED, KEPT, SECRET, ErasureLab
from tests.pipeline.spark.job_lab import carry_out, remote_settings
from tests.services.s3 import S3Admin, S3Service
from tests.tiering.setups import BROKER_ID, CLUSTER_ID
from tierd.config import MetadataSettings, RemoteSettings
from tierd.log import Compression, NewRecord, encode_batch
from tierd.metadata import KeyValueStore, open_metadata
from tierd.pipeline.access import TierAccess
from tierd.pipeline.committing import CompactionLeader, LeaderClient, LeaderServer
from tierd.pipeline.erasing.erase_request import ErasePhase
from tierd.remote import open_object_store

POLICIES = {"orders-0": KEPT, "users-0": COMPACTED}


class SparkErasureLab(ErasureLab):
    """ErasureLab whose runs are carried out by the job on a session."""

    def __init__(self, root: Path, spark: SparkContext, remote: RemoteSettings, rows: KeyValueStore) -> None:
        super().__init__(root, POLICIES, store=open_object_store(remote), rows=rows)
        self._spark = spark
        self._access = TierAccess(
            remote=remote,
            metadata=MetadataSettings(backend="sqlite"),
            sqlite_path=root / "metadata.db",
            log_dirs=(self.writer.path,),
            cluster_id=CLUSTER_ID,
            broker_id=BROKER_ID,
        )

    async def _carry_out(self, leader: CompactionLeader) -> None:
        socket = self.root / "run" / "leader.sock"
        server = LeaderServer(leader, socket)

        def job() -> None:
            carry_out(self._spark, LeaderClient.connect(socket), self._access)

        async with server.listening(), asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve())
            await asyncio.to_thread(job)
            serving.cancel()


@asynccontextmanager
async def opened(root: Path, spark: SparkSession, remote: RemoteSettings) -> AsyncIterator[SparkErasureLab]:
    settings = MetadataSettings(backend="sqlite")
    rows = await open_metadata(settings, sqlite_path=root / "metadata.db", read_only=False)
    lab = SparkErasureLab(root, spark.sparkContext, remote, rows)
    try:
        for name in POLICIES:
            lab.fill(name, segments=4, secret_in=(1, 3))
        await lab.copy()
        yield lab
    finally:
        await lab.tier.store.close()
        await rows.close()


async def erase_from_both(lab: SparkErasureLab) -> None:
    """File a request for both topics, run, and step beyond the grace."""
    before = {name: [(r.offset, r.key, r.value, r.timestamp_ms) for r in await lab.read(name)] for name in POLICIES}
    requests = [await lab.file(name) for name in POLICIES]
    rounds = await lab.run()
    assert [(len(each.outputs), each.counts["records_erased"]) for each in rounds] == [(2, 2)] * 2
    for stepped in await lab.keeper.step_all():
        assert stepped.phase is ErasePhase.LEAVING, stepped.problem
    await lab.end_of_grace()
    for done in await lab.keeper.step_all():
        assert done.phase is ErasePhase.DONE, done.problem
        assert [(note.searched, note.rewritten, note.records_erased) for note in done.runs] == [(4, 2, 2)]
        assert [(each.start_offset, each.gone_at_ms is not None) for each in done.left] == [(3, True), (9, True)]
    assert len(requests) == 2
    for name in POLICIES:
        after = [(r.offset, r.key, r.value, r.timestamp_ms) for r in await lab.read(name)]
        assert after == [record for record in before[name] if record[1] != SECRET]
        assert await lab.session.findings(lab.path(name)) == []


async def test_keys_are_erased_from_both_kinds_of_topics_the_bucket_and_the_caches(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "bucket").mkdir()
    async with opened(tmp_path, spark, remote_settings(tmp_path)) as lab:
        stored = await lab.stored()
        assert await lab.keep_chunks() == 8
        assert sum(SECRET in chunk for chunk in lab.chunks()) == 4
        await erase_from_both(lab)
        assert await lab.holders() == []
        assert [SECRET in chunk for chunk in lab.chunks()] == [False] * 4
        untouched = {key: content for key, content in stored.items() if "/00000000000000000000-" in key}
        assert len(untouched) == 6
        assert untouched.items() <= (await lab.stored()).items(), "byte for byte what it was"


async def test_erasure_waits_for_an_unread_batch_until_a_request_removes_unread_batches(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "bucket").mkdir()
    async with opened(tmp_path, spark, remote_settings(tmp_path)) as lab:
        batch = encode_batch([NewRecord(SECRET, bytes(257 << 20), 5)], compression=Compression.ZSTD)
        lab.partitions["orders-0"].append_batch(batch, 1)
        lab.roll("orders-0")
        await lab.copy()
        before = [record.offset for record in await lab.read("users-0")]

        waiting = await lab.file("orders-0")
        (round_,) = await lab.run("orders-0")
        assert (len(round_.outputs), round_.counts["records_erased"]) == (2, 2), "the other groups are processed"
        (stepped,) = await lab.keeper.step_all()
        assert stepped.phase is ErasePhase.SEARCHING
        assert "1 batches unpack to more than tierd opens, the first at offset 12" in stepped.problem
        assert "tierd erase request --remove-unread" in stepped.problem
        (round_,) = await lab.run("orders-0")
        assert not round_.outputs, "no other record is lost"

        await lab.file("orders-0", removes_unread=True)
        (round_,) = await lab.run("orders-0")
        assert (len(round_.outputs), round_.counts["batches_unread"], round_.counts["records_erased"]) == (1, 1, 1)
        await lab.keeper.step_all()
        await lab.end_of_grace()
        assert [done.phase for done in await lab.keeper.step_all()] == [ErasePhase.DONE] * 2
        assert waiting.id in {done.id for done in await lab.requests.list(only_open=False)}
        assert SECRET not in {record.key for record in await lab.read("orders-0")}
        assert [record.offset for record in await lab.read("users-0")] == before


@pytest.mark.service("s3")
async def test_keys_are_erased_from_older_versions_in_a_bucket(
    tmp_path: Path, spark: SparkSession, s3_service: S3Service, s3_admin: S3Admin
) -> None:
    bucket = s3_admin.create_versioned_bucket()
    access = {
        "bucket": bucket,
        "endpoint_url": s3_service.endpoint_url,
        "region": s3_service.region,
        "access_key_id": s3_service.access_key_id,
        "secret_access_key": s3_service.secret_access_key,
        "path_style": True,
    }
    async with opened(tmp_path, spark, RemoteSettings.model_validate({"backend": "s3", "s3": access})) as lab:
        await erase_from_both(lab)
        assert not any(SECRET in content for content in s3_admin.read_versions(bucket).values())
