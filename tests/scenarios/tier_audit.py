"""Checks of the tier of several brokers at rest: complete, equal for all hosts, without leftovers."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from tests.scenarios.cluster_lab import ClusterLab
from tests.scenarios.installation import Installation
from tests.scenarios.journal import Record, assert_agrees
from tests.scenarios.oracle import assert_same_records
from tests.services.waiting import wait_until
from tierd.app import Deployment
from tierd.config import load_config
from tierd.metadata import MetadataKeyFactory, PartitionView, list_partitions, read_partition
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, uuid_to_text
from tierd.tiering.removing.ledger import DeleteReason

CLUSTER_ID = "dGllcmQtdGVzdGtpdC0wMQ"
QUIET_DEADLINE_S = 90.0
_OBJECTS_OF_NO_SEGMENT = ("tierd.json", "log-start.json")


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of segments in the metadata store, read without a daemon."""

    views: dict[TopicIdPartition, PartitionView]

    def of(self, topic_id: UUID, partition: int) -> PartitionView | None:
        """Return the rows of one partition."""
        return next(
            (v for p, v in self.views.items() if p.topic_id == topic_id and p.partition == partition),
            None,
        )

    def unfinished(self) -> list[str]:
        """Return the segments whose copy or deletion was begun and has not ended.

        Those that differ from the log after an unclean election are left out: they can be taken back for a week.
        Whether they count as that or as segments of another branch depends on the moment at which the broker writes its
        leader epochs.
        """
        return [
            f"{row.segment}: {row.state.name} {row.soft_delete or ''}".rstrip()
            for view in self.views.values()
            for row in view.list()
            if row.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED and not _is_diverged(row)
        ]

    def diverged_topics(self) -> set[str]:
        """Return the topics of segments that differ from the log."""
        return {view.partition.topic for view in self.views.values() for row in view.list() if _is_diverged(row)}


def _is_diverged(row: RemoteLogSegmentMetadata) -> bool:
    return row.soft_delete is not None and row.soft_delete.reason == DeleteReason.DIVERGED


def read_rows(host: Installation) -> Rows:
    """Read the metadata store that this host's configuration names."""
    return asyncio.run(_read_rows(host))


async def _read_rows(host: Installation) -> Rows:
    deployment = Deployment(load_config(host.config_file, {}), host.config_file)
    keys = MetadataKeyFactory(CLUSTER_ID)
    async with deployment.metadata_store(read_only=True) as store:
        return Rows({each: await read_partition(store, keys, each) for each in await list_partitions(store, keys)})


def wait_quiet(lab: ClusterLab) -> None:
    """Wait until no copy, deletion or upload is active."""
    host = next(iter(lab.hosts.values()))
    wait_until(
        lambda: not (read_rows(host).unfinished() or orphans(lab) or lab.s3.admin.unfinished_uploads(lab.s3.bucket)),
        what="a quiet tier",
        deadline_s=QUIET_DEADLINE_S,
        last_seen=lambda: (
            read_rows(host).unfinished(),
            orphans(lab),
            lab.s3.admin.unfinished_uploads(lab.s3.bucket),
        ),
        interval_s=0.5,
    )


def orphans(lab: ClusterLab) -> list[str]:
    """Return the objects in the bucket that belong to no row."""
    known = {
        uuid_to_text(row.segment.id)
        for view in read_rows(next(iter(lab.hosts.values()))).views.values()
        for row in view.list()
    }
    keys = lab.s3.admin.keys(lab.s3.bucket)
    of_segments = [key for key in keys if not key.endswith(_OBJECTS_OF_NO_SEGMENT) and "/catalogue/" not in key]
    return [key for key in of_segments if _segment_id(key) not in known]


def _segment_id(key: str) -> str:
    """Return the segment id of a name such as ``<20 digits>-<22 characters>.log``."""
    return key.rpartition("/")[2][21:43]


def assert_whole(lab: ClusterLab, partitions: Sequence[tuple[str, int]]) -> None:
    """Check that every host reads the acknowledged records of every partition, and those of a real consumer."""
    consumed = lab.cluster.consume_all(partitions, committed=True)
    for topic, partition in partitions:
        for node in lab.hosts:
            assert_host_reads(lab, node, topic, partition, consumed[topic, partition])


def assert_host_reads(
    lab: ClusterLab, node: int, topic: str, partition: int, consumed: Sequence[Record], *, journalled: bool = True
) -> None:
    """Compare ``tierd cat --committed`` of one host with the journal of the producers and with the consumer."""
    name, what = f"{topic}-{partition}", f"{topic}-{partition} on host {node}"
    is_local = lab.cluster.partition_dir(topic, partition, node=node) is not None
    rolled = lab.cluster.leader_base_offsets(topic, partition)[-1]
    end = consumed[-1]["offset"] + 1 if is_local and consumed else rolled
    found: list[Record] = []

    def reaches_the_end() -> bool:  # the checkpoint of the broker has the exposed offset within a second
        found[:] = lab.hosts[node].cat(name, "--committed")
        return not is_local or not consumed or bool(found and found[-1]["offset"] >= consumed[-1]["offset"])

    wait_until(reaches_the_end, what=f"{what} to be read to its end", deadline_s=30, interval_s=0.5)
    start = lab.log_starts.get((topic, partition), 0)
    assert all(record["offset"] >= start for record in found), f"{what}: deleted records are read"
    if journalled:
        assert_agrees(found, lab.traffic.journal.of(topic, partition), start=start, end=end, what=what)
    local = [record for record in consumed if record["offset"] < end]
    if local:
        assert_same_records([r for r in found if local[0]["offset"] <= r["offset"] < end], local, what=what)


def assert_verified(hosts: Iterable[Installation]) -> None:
    """Check that ``tierd verify --deep`` has no finding."""
    for host in hosts:
        verified = host.ask("verify", "--deep")
        assert verified.exit_code == 0, f"{host.root.name}: {verified.output}"


def assert_no_bugs(lab: ClusterLab) -> None:
    """Check that no daemon logged an error: a fault of its own, damage, or an impossible step."""
    for node in lab.hosts:
        errors = lab.errors(node)
        assert errors == [], f"host {node}: {errors[:3]}"
