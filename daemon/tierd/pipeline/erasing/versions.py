"""Removal of the old object versions and unfinished uploads of a partition that may hold an erased key."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tierd.errors import RemoteObjectRetainedError
from tierd.metadata import PartitionView
from tierd.pipeline.erasing.erase_request import EraseRequest, VersionsNote
from tierd.remote import ObjectKeyFactory, ObjectStore, ObjectVersion

_LOG: Final = ".log"
_UPLOAD_AGE_MS: Final = 3_600_000  # no attempt at a copy takes longer


@dataclass(frozen=True, slots=True)
class VersionsPlan:
    """Plan for the versions below the partition's prefixes: old ones to remove, and orphans, which block the request.

    Attributes:
        looked_at: number of versions of segments that begin below the end offset of the request.
        old: versions to be removed, in this order: markers after all other versions.
        orphans: log objects that can be read and that the metadata does not know.
    """

    looked_at: int = 0
    old: tuple[ObjectVersion, ...] = ()
    orphans: tuple[ObjectVersion, ...] = ()


def plan_versions(
    versions: Iterable[ObjectVersion],
    *,
    keys: Iterable[ObjectKeyFactory],
    known: Container[UUID],
    end_offset: int,
) -> VersionsPlan:
    """Choose the versions that may hold a key that was erased.

    Args:
        versions: versions of every object of the partition.
        keys: factories that parse the object keys.
        known: ids of segments that the metadata has; their current objects were searched, or go with the segment.
        end_offset: end offset of the request; segments that begin there or later are left out.
    """
    factories = tuple(keys)
    looked_at, old, orphans = 0, list[ObjectVersion](), list[ObjectVersion]()
    for version in versions:
        parsed = next((found for factory in factories if (found := factory.parse(version.key))), None)
        if parsed is None or parsed.start_offset >= end_offset:
            continue
        looked_at += 1
        is_log = version.key.endswith(_LOG)
        if parsed.segment_id in known:
            if is_log and not version.is_current:
                old.append(version)
        elif not version.is_current or version.is_marker:
            old.append(version)
        elif is_log:
            orphans.append(version)
    return VersionsPlan(looked_at, tuple(sorted(old, key=lambda each: (each.is_marker, each.key))), tuple(orphans))


@dataclass(frozen=True, slots=True)
class VersionsOutcome:
    """Outcome of ``OldVersions.clear``: the note where nothing is left that may hold a key, else the problem."""

    note: VersionsNote | None = None
    problem: str = ""


class OldVersions:
    """Remover of old versions of a partition's objects. Every call may be repeated; a cancelled one leaves some."""

    def __init__(self, store: ObjectStore, keys: ObjectKeyFactory) -> None:
        """Take the store, and the ``keys`` of new segments; older segments are found by their custom metadata."""
        self._store = store
        self._keys = keys

    async def clear(self, request: EraseRequest, view: PartitionView, *, now_ms: int) -> VersionsOutcome:
        """Remove the old versions that may hold a key, list again, and return the note or what is left.

        Raises:
            ObjectVersionsUnknownError: the store cannot list versions, or does not let tierd list them.
            RemoteStorageError: the store did not answer.
        """
        planned = await self._plan(request, view)
        kept = await self._delete(planned.old)
        if kept:
            key, why = next(iter(kept.items()))
            return VersionsOutcome(
                problem=f"the store keeps old versions of {len(kept)} objects and refuses to remove them, "
                f"such as {key}: {why}; it is tried again until their retention, lock or soft delete has ended"
            )
        young = await self._abort_uploads(request, view, now_ms=now_ms)
        if young:
            return VersionsOutcome(
                problem=f"{young} unfinished uploads may hold a key: they are aborted once they are an hour old"
            )
        left = await self._plan(request, view)
        if left.orphans:
            return VersionsOutcome(
                problem=f"{len(left.orphans)} log objects are of no segment that the metadata knows, and may hold a "
                f"key: {left.orphans[0].key}; run tierd repair-tier, which removes or adopts them"
            )
        if left.old:
            return VersionsOutcome(problem=f"{len(left.old)} old versions are still there: {left.old[0].key}")
        deleted_bytes = sum(version.size_bytes for version in planned.old)
        note = VersionsNote(
            at_ms=now_ms, looked_at=planned.looked_at, deleted=len(planned.old), deleted_bytes=deleted_bytes
        )
        return VersionsOutcome(note)

    async def _delete(self, versions: Iterable[ObjectVersion]) -> dict[str, str]:
        """Remove versions in their order; return by key why one is kept, whose marker stays to hide it."""
        kept: dict[str, str] = {}
        for version in versions:
            if version.kept_until_ms is not None:
                kept[version.key] = f"soft-deleted, kept until {version.kept_until_ms} ms"
            elif not (version.is_marker and version.key in kept):
                try:
                    await self._store.delete_version(version)
                except RemoteObjectRetainedError as error:
                    kept[version.key] = str(error)
        return kept

    async def _abort_uploads(self, request: EraseRequest, view: PartitionView, *, now_ms: int) -> int:
        """Abort the uploads of unknown segments that are over an hour old; return the number of younger ones."""
        young = 0
        for factory in self._factories(request, view):
            for upload in await self._store.list_unfinished_uploads(factory.partition_prefix(request.partition)):
                parsed = factory.parse(upload.key)
                if parsed is None or parsed.segment_id in view.segments or parsed.start_offset >= request.end_offset:
                    continue
                if upload.initiated_ms > now_ms - _UPLOAD_AGE_MS:
                    young += 1
                else:
                    await self._store.abort_upload(upload)
        return young

    async def _plan(self, request: EraseRequest, view: PartitionView) -> VersionsPlan:
        factories = self._factories(request, view)
        versions = [
            version
            for factory in factories
            for version in await self._store.list_versions(factory.partition_prefix(request.partition))
        ]
        return plan_versions(versions, keys=factories, known=view.segments, end_offset=request.end_offset)

    def _factories(self, request: EraseRequest, view: PartitionView) -> tuple[ObjectKeyFactory, ...]:
        """Return the key factories of every prefix that segments of the partition have had, as far as is known."""
        recorded = [each.custom_metadata for each in (*view.list(), *view.tombstones.values())]
        recorded += [each.custom_metadata for each in request.left]
        topic = request.partition.topic
        stored = [self._keys.for_custom_metadata(each, topic) for each in recorded]
        return tuple(dict.fromkeys([*self._keys.forms(topic), *stored]))
