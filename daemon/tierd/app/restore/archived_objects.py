"""Archived objects of a plan: they have to be thawed before the restore begins (DESIGN 13, trap 13)."""

import asyncio
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Final

from tierd.cost import thaw_offers
from tierd.remote import ArchiveState, ObjectInfo, ObjectKeyFactory, ObjectStore
from tierd.restore import PartitionPlan, PlanFinding, PlanSeverity

_READ: Final = (".log", ".indexes", ".manifest")
_AT_ONCE: Final = 16
_GIB: Final = 1 << 30


async def archived_objects(plan: PartitionPlan, store: ObjectStore, keys: ObjectKeyFactory) -> tuple[ObjectInfo, ...]:
    """Return the objects that the plan reads and that are archived, or are being thawed, by key.

    Listings tell the storage class. Only an object of a class with archives is asked for itself.

    Raises:
        RemoteStorageError: the store failed, or custom metadata of a segment is of a later tierd.
    """
    wanted: set[str] = set()
    prefixes: set[str] = set()
    for part in plan.parts:
        factory = keys.for_custom_metadata(part.metadata.custom_metadata, plan.partition.topic)
        prefixes.add(factory.partition_prefix(plan.partition))
        wanted |= {factory.segment(part.metadata, suffix) for suffix in _READ}
    listed = [info for prefix in sorted(prefixes) for info in await store.list_objects(prefix)]
    unknown = [info.key for info in listed if info.key in wanted and info.archive is not ArchiveState.READABLE]
    slots = asyncio.Semaphore(_AT_ONCE)

    async def described(key: str) -> ObjectInfo:
        async with slots:
            return await store.head(key)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(described(key), name=f"head {key}") for key in unknown]
    except ExceptionGroup as failures:  # the first one, which a handler knows, ended the others
        raise failures.exceptions[0] from None
    found = (task.result() for task in tasks)
    return tuple(info for info in found if info.archive is not ArchiveState.READABLE)


def archive_findings(archived: Collection[ObjectInfo]) -> list[PlanFinding]:
    """Return the refusals for archived objects of a plan, one for each storage class, with time and cost."""
    by_class = sorted(archived, key=lambda info: info.storage_class)
    return [_finding(name, list(found)) for name, found in groupby(by_class, key=lambda info: info.storage_class)]


def _finding(storage_class: str, found: list[ObjectInfo]) -> PlanFinding:
    frozen = [info for info in found if info.archive is ArchiveState.ARCHIVED]
    size_bytes = sum(info.size_bytes for info in frozen)
    parts = [f"{len(found)} of its objects are in the storage class {storage_class}, and cannot be read until thawed"]
    if frozen:
        offers = " or ".join(_offers(storage_class, objects=len(frozen), size_bytes=size_bytes))
        parts.append(f"to thaw {len(frozen)} of them, {size_bytes / _GIB:.2f} GiB, takes {offers or 'an unknown time'}")
    if len(frozen) < len(found):
        parts.append(f"{len(found) - len(frozen)} are being thawed")
    remedy = "thaw them as docs/restore.md says; --json lists them under archived; then run the same command again"
    return PlanFinding(PlanSeverity.REFUSED, "; ".join(parts), remedy)


def _offers(storage_class: str, *, objects: int, size_bytes: int) -> Iterable[str]:
    for offer in thaw_offers(storage_class):
        cost = offer.cost(objects=objects, size_bytes=size_bytes)
        yield f"{offer.hours} hours and about {cost:.2f} USD ({offer.tier})"
