"""Checks of ``check-config --online``: log dirs, holds, disks, Kafka, stores, Spark, ports; nothing stays behind."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

from tierd.app.checks.checklist import Checklist, CheckStep
from tierd.app.checks.store_self_test import StoreSelfTest
from tierd.app.engine.deployment import Deployment
from tierd.clock import SystemClock
from tierd.config import RemoteSettings
from tierd.errors import (
    FencedError,
    LogDirOfflineError,
    MetadataError,
    PreconditionFailedError,
    StateDirError,
    TierError,
)
from tierd.files import nearest_existing
from tierd.log import BrokerIdentity, list_log_dir
from tierd.metadata import Batch, Expect, KeyValueStore, Put, metadata_keys
from tierd.pipeline import find_spark
from tierd.remote import ObjectKeyFactory, open_object_store

_MIB = 1 << 20
_LEAST_FREE_SHARE = 0.02
_LEAST_FREE_BYTES = 5 * 1024 * _MIB
_PART_BYTES = {"filesystem": 4 * _MIB, "gcs": 16 * _MIB, "azure": 16 * _MIB}


async def check_online(
    deployment: Deployment,
    *,
    on_step: Callable[[CheckStep], None] = lambda _: None,
    step_timeout_s: float | None = None,
) -> list[CheckStep]:
    """Check everything that the configuration names; a daemon may run meanwhile.

    The areas are checked at the same time, once the log dirs are, and listed in their order.

    Args:
        deployment: the configuration.
        on_step: called with every step when it begins and when it was taken.
        step_timeout_s: longest time of a step; None leaves every step to its own deadlines.
    """
    new_checklist = partial(Checklist, on_step=on_step, step_timeout_s=step_timeout_s)
    local = new_checklist()
    identity = await _check_host(deployment, local)
    checks = [(new_checklist(), area, check) for area, check in _areas(deployment, identity)]
    async with asyncio.TaskGroup() as group:
        for checklist, area, check in checks:
            group.create_task(check(checklist), name=f"check {area}")
    return [step for checklist in (local, *(each for each, _, _ in checks)) for step in checklist.steps]


async def _check_host(deployment: Deployment, checklist: Checklist) -> BrokerIdentity | None:
    """Check log dirs and disks; return the cluster and the broker, if the log dirs or the file name them."""
    config = deployment.config
    for log_dir in config.log_dirs:
        await checklist.step("log dirs", str(log_dir.path), partial(_check_log_dir, log_dir.path, config.hold_dir))
    identity: list[BrokerIdentity] = []

    async def identify() -> str:
        identity.append(await deployment.identity())
        return f"cluster {identity[0].cluster_id}, broker {identity[0].node_id}"

    await checklist.step("log dirs", "identity", identify)
    for path in dict.fromkeys((*deployment.log_dirs, deployment.state_dir)):
        await checklist.step("disks", str(path), partial(_check_disk, path))
    return identity[0] if identity else None


def _areas(
    deployment: Deployment, identity: BrokerIdentity | None
) -> Iterator[tuple[str, Callable[[Checklist], Coroutine[object, object, object]]]]:
    """Yield name and check of every service that the configuration names."""
    config = deployment.config
    cluster_id = identity.cluster_id if identity else config.cluster_id or "unknown"
    if config.leadership.kafka is not None:
        from tierd.app.checks.check_kafka import check_kafka  # noqa: PLC0415 - what speaks Kafka's protocol, only if configured

        yield "Kafka", partial(check_kafka, config.leadership.kafka, identity)
    try_metadata = partial(_try_metadata, deployment, cluster_id)
    yield "metadata store", lambda steps: steps.step("metadata store", config.metadata.backend, try_metadata)
    yield "object store", partial(_check_object_store, config.remote, cluster_id)
    if config.pipeline.enabled:
        find_java = partial(_check_spark, config.pipeline.java_home)
        yield "pipeline", lambda steps: steps.step("pipeline", "Spark", find_java)
    if config.kafka.is_enabled:
        from tierd.app.checks.check_endpoint import check_endpoint  # noqa: PLC0415 - as above

        yield "read endpoint", partial(check_endpoint, config.kafka, clock=SystemClock())
    if config.push.is_configured:
        from tierd.app.checks.check_push import check_push  # noqa: PLC0415 - as above

        yield "push replication", partial(check_push, config.push, identity, clock=SystemClock())


async def _check_object_store(remote: RemoteSettings, cluster_id: str, checklist: Checklist) -> None:
    clock = SystemClock()
    settings = remote.model_copy(update={"retry": remote.retry.model_copy(update={"attempts": 1})})
    try:
        store = open_object_store(settings, clock=clock)
    except TierError as error:
        await checklist.step("object store", "open", partial(_raise, error))
        return
    try:
        tier = ObjectKeyFactory(settings.key_prefix, cluster_id).tier_identity.rpartition("/")[0]
        folder = f"{tier}/self-test/{uuid4().hex}/"
        await StoreSelfTest(store, folder, large_bytes=_part_bytes(settings) + _MIB + 1, clock=clock).run(checklist)
    finally:
        await store.close()


def _part_bytes(settings: RemoteSettings) -> int:
    return settings.s3.part_size_bytes if settings.s3 is not None else _PART_BYTES.get(settings.backend, 16 * _MIB)


async def _raise(error: TierError) -> str:
    raise error


async def _check_spark(java_home: Path | None) -> str:
    found = await find_spark(java_home)
    return f"pyspark in {found.home}, Java {found.java_version}" + (f" in {found.java_home}" if found.java_home else "")


# ---------------------------------------------------------------- log dirs


async def _check_log_dir(log_dir: Path, hold_dir: Path) -> str:
    return await asyncio.to_thread(_log_dir_and_hold, log_dir, hold_dir)


def _log_dir_and_hold(log_dir: Path, hold_dir: Path) -> str:
    partitions = list_log_dir(log_dir).partitions
    segment = next((path for each in partitions for path in sorted(each.path.glob("*.log"))), None)
    found = f"readable, {len(partitions)} partitions"
    if segment is None:
        return f"{found}; no segment yet to try a hold with"
    if not os.access(segment, os.R_OK):
        raise LogDirOfflineError(
            f"{segment} cannot be read by user id {os.geteuid()}", remedy="run tierd as a member of the broker's group"
        )
    return f"{found}; {_hold_mode(segment, hold_dir)}"


def _hold_mode(segment: Path, hold_dir: Path) -> str:
    """Link a segment for a moment, as a hold does, and return which kind of hold this host allows."""
    folder = nearest_existing(hold_dir)
    link = folder / f".tierd-check-{uuid4().hex}"
    try:
        link.hardlink_to(segment)
    except OSError as error:
        return f"segments are held by open files, since {folder} takes no link to them: {error.strerror or error}"
    link.unlink()
    return "segments are held by hard links"


# ---------------------------------------------------------------- disks


async def _check_disk(path: Path) -> str:
    return await asyncio.to_thread(require_room, path)


def require_room(path: Path) -> str:
    """Require room on the file system of ``path``, or of its nearest parent that exists; return what there is.

    Raises:
        LogDirOfflineError: the file system does not say.
        StateDirError: it is nearly full.
    """
    try:
        use = os.statvfs(nearest_existing(path))
    except OSError as error:
        raise LogDirOfflineError(f"{path}: {error.strerror}", remedy="check the disk and its mount") from error
    return room_left(path, use)


def room_left(path: Path, use: os.statvfs_result) -> str:
    """Return the room that ``use`` shows on the file system of ``path``. Pure.

    Raises:
        StateDirError: fewer than two percent of the blocks and 5 GiB are free, or than two percent of the inodes.
    """
    free, share = use.f_bavail * use.f_frsize, use.f_bavail / max(use.f_blocks, 1)
    if share < _LEAST_FREE_SHARE and free < _LEAST_FREE_BYTES:
        raise StateDirError(
            f"the disk of {path} has {free / 1e9:.1f} GB left", remedy="free space there, or add some to the disk"
        )
    if use.f_files and use.f_favail / use.f_files < _LEAST_FREE_SHARE:
        raise StateDirError(
            f"the file system of {path} has {use.f_favail} inodes left", remedy="remove files there that are not needed"
        )
    return f"{free / 1e9:.1f} GB free"


# ---------------------------------------------------------------- metadata store


async def _try_metadata(deployment: Deployment, cluster_id: str) -> str:
    config = deployment.config
    if config.metadata.backend == "sqlite" and not await asyncio.to_thread(config.sqlite_path.exists):
        return await asyncio.to_thread(_require_writable, config.sqlite_path.parent)
    keys = metadata_keys(config.metadata, cluster_id)
    async with deployment.metadata_store(read_only=False) as rows:
        identity = await rows.get(keys.store_key)
        await _try_fencing(rows, f"{keys.all_prefix}self-test/{uuid4().hex}/")
    return "writable, and refuses a writer that is not the latest" + ("" if identity else "; never used yet")


async def _try_fencing(rows: KeyValueStore, folder: str) -> None:
    """Write a scratch row, require that a write with a stale precondition is refused, and remove the row."""
    key = f"{folder}row"
    await rows.create(key, b"epoch 1")
    try:
        await rows.update(key, b"epoch 2")
        try:
            await rows.apply(Batch([Put(key, b"epoch 1")], [Expect(key, b"epoch 0")]))
        except (PreconditionFailedError, FencedError):
            if await rows.get(key) == b"epoch 2":
                return
        raise MetadataError(
            "the store took a write whose precondition did not hold",
            remedy="use another store: with this one two leaders could write at once",
        )
    finally:
        await rows.remove_prefix(folder)


def _require_writable(directory: Path) -> str:
    existing = nearest_existing(directory)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StateDirError(
            f"{existing} cannot be written by user id {os.geteuid()}", remedy="make it writable, or correct state_dir"
        )
    return f"not made yet; {existing} is writable"
