"""GcsVersions: noncurrent generations and soft-deleted objects of a Google Cloud Storage bucket."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Final

from tierd.errors import ObjectVersionsUnknownError, RemoteAccessError, RemoteResourceNotFoundError
from tierd.remote.backends.gcs.gcs_connection import GcsConnection
from tierd.remote.object_store import ObjectVersion

_FIELDS: Final = "nextPageToken,items(name,size,generation,timeDeleted,softDeleteTime,hardDeleteTime)"
_RIGHTS: Final = "allow storage.objects.list, storage.objects.restore and storage.objects.delete to these credentials"


class GcsVersions:
    """Generations in one bucket. The bucket's policy keeps a soft-deleted generation until its time has passed."""

    def __init__(self, connection: GcsConnection) -> None:
        self._connection = connection

    async def list(self, prefix: str) -> list[ObjectVersion]:
        """Return every generation of the objects whose key begins with ``prefix``, by key.

        Raises:
            ObjectVersionsUnknownError: the store does not list them to these credentials.
        """
        found: dict[tuple[str, str], ObjectVersion] = {}
        try:
            for which in ("versions", "softDeleted"):
                async for item in self._items(prefix, which):
                    version = _version(item)
                    if which == "versions" or version.kept_until_ms is not None:
                        found[version.key, version.version_id] = version
        except RemoteAccessError as error:
            raise ObjectVersionsUnknownError(str(error), remedy=_RIGHTS) from error
        return sorted(found.values(), key=lambda version: version.key)

    async def delete(self, version: ObjectVersion) -> None:
        """Remove one generation for good."""
        storage = await self._connection.storage()
        try:
            with self._connection.translated("delete version", version.key):
                await storage.delete(
                    self._connection.bucket,
                    version.key,
                    params={"generation": version.version_id},
                    timeout=self._connection.timeout,
                )
        except RemoteResourceNotFoundError:
            pass
        except RemoteAccessError as error:
            raise ObjectVersionsUnknownError(str(error), remedy=_RIGHTS) from error

    async def _items(self, prefix: str, which: str) -> AsyncIterator[dict[str, Any]]:
        storage = await self._connection.storage()
        params = {"prefix": prefix, "maxResults": "1000", "fields": _FIELDS, which: "true"}
        while True:
            with self._connection.translated("list versions", prefix):
                page = await storage.list_objects(
                    self._connection.bucket, params=params, timeout=self._connection.timeout
                )
            for item in page.get("items", []):
                yield item
            if not page.get("nextPageToken"):
                return
            params = params | {"pageToken": page["nextPageToken"]}


def _version(item: dict[str, Any]) -> ObjectVersion:
    is_gone = "timeDeleted" in item or "softDeleteTime" in item
    kept_until = item.get("hardDeleteTime") if "softDeleteTime" in item else None
    return ObjectVersion(
        key=item["name"],
        version_id=str(item["generation"]),
        size_bytes=int(item["size"]),
        is_current=not is_gone,
        kept_until_ms=round(datetime.fromisoformat(kept_until).timestamp() * 1000) if kept_until else None,
    )
