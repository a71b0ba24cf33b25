"""S3Versions: versions of objects in an S3 bucket, also of objects that were deleted or replaced."""

from tierd.errors import (
    ObjectVersionsUnknownError,
    RemoteAccessError,
    RemoteObjectRetainedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from tierd.remote.backends.s3.s3_connection import S3Connection
from tierd.remote.object_store import ObjectVersion

_RIGHTS = "allow s3:ListBucketVersions on the bucket and s3:DeleteObjectVersion on its objects to these credentials"


class S3Versions:
    """Versions in one bucket. One that never had versioning has a single version, ``null``, of each object."""

    def __init__(self, connection: S3Connection) -> None:
        self._connection = connection

    async def list(self, prefix: str) -> list[ObjectVersion]:
        """Return every version of the objects whose key begins with ``prefix``, markers included, by key.

        Raises:
            ObjectVersionsUnknownError: the store has no such listing, or refuses it to these credentials.
        """
        client = await self._connection.client()
        found: list[ObjectVersion] = []
        try:
            with self._connection.translated("list versions", prefix):
                pages = client.get_paginator("list_object_versions").paginate(
                    Bucket=self._connection.bucket, Prefix=prefix
                )
                async for page in pages:
                    found += [
                        _version(each["Key"], each["VersionId"], each["Size"], is_current=each["IsLatest"])
                        for each in page.get("Versions", [])
                    ]
                    found += [
                        _version(each["Key"], each["VersionId"], None, is_current=each["IsLatest"])
                        for each in page.get("DeleteMarkers", [])
                    ]
        except RemoteAccessError as error:
            raise ObjectVersionsUnknownError(str(error), remedy=_RIGHTS) from error
        except RemoteStorageError as error:
            if error.retriable:
                raise
            raise ObjectVersionsUnknownError(
                f"the store has no listing of versions: {error}",
                remedy="see with the store's own tools that no version is left, then tierd erase attest ID",
            ) from error
        return sorted(found, key=lambda version: version.key)

    async def delete(self, version: ObjectVersion) -> None:
        """Remove one version for good."""
        client = await self._connection.client()
        try:
            with self._connection.translated("delete version", version.key):
                await client.delete_object(
                    Bucket=self._connection.bucket, Key=version.key, VersionId=version.version_id
                )
        except RemoteResourceNotFoundError:
            pass
        except RemoteObjectRetainedError:
            raise
        except RemoteAccessError as error:
            raise ObjectVersionsUnknownError(str(error), remedy=_RIGHTS) from error


def _version(key: str, version_id: str, size_bytes: int | None, *, is_current: bool) -> ObjectVersion:
    return ObjectVersion(
        key=key,
        version_id=version_id,
        size_bytes=size_bytes or 0,
        is_current=is_current,
        is_marker=size_bytes is None,
    )
