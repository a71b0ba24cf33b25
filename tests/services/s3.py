"""S3 server for tests: its address, and buckets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast
from uuid import uuid4

import botocore.config
import botocore.session

from tests.services.services import Services


@dataclass(frozen=True, slots=True)
class S3Service:
    """Running S3 server. ``services`` can kill, freeze and restart it under the name ``s3``."""

    endpoint_url: str
    region: str
    access_key_id: str
    secret_access_key: str
    services: Services

    @classmethod
    def of(cls, settings: Mapping[str, str], services: Services) -> Self:
        """Return the server that ``services`` started with these ``settings``."""
        return cls(
            endpoint_url=settings["TIERD_TEST_S3_ENDPOINT"],
            region=settings["TIERD_TEST_S3_REGION"],
            access_key_id=settings["TIERD_TEST_S3_ACCESS_KEY"],
            secret_access_key=settings["TIERD_TEST_S3_SECRET_KEY"],
            services=services,
        )


class _AnyOperation(Protocol):
    """Method of botocore: they are made at run time, so that the type checker knows only this one."""

    def _make_api_call(self, operation: str, parameters: dict[str, object]) -> dict[str, Any]: ...

    def close(self) -> None: ...


class S3Admin:
    """Plain, blocking S3 client that makes buckets and reads them beside the code under test."""

    def __init__(self, service: S3Service) -> None:
        client = botocore.session.get_session().create_client(
            "s3",
            region_name=service.region,
            endpoint_url=service.endpoint_url,
            aws_access_key_id=service.access_key_id,
            aws_secret_access_key=service.secret_access_key,
            config=botocore.config.Config(s3={"addressing_style": "path"}),
        )
        self._client = cast("_AnyOperation", client)

    def create_bucket(self) -> str:
        """Make an empty bucket with a fresh name."""
        bucket = f"tierd-{uuid4().hex}"
        self._call("CreateBucket", Bucket=bucket)
        return bucket

    def keys(self, bucket: str) -> list[str]:
        """Return every visible key, ascending."""
        keys: list[str] = []
        while True:
            start = {"StartAfter": keys[-1]} if keys else {}
            answer = self._call("ListObjectsV2", Bucket=bucket, **start)
            keys += [str(item["Key"]) for item in answer.get("Contents", [])]
            if not answer.get("IsTruncated"):
                return keys

    def read(self, bucket: str, key: str) -> bytes:
        """Return the bytes of one object."""
        body: bytes = self._call("GetObject", Bucket=bucket, Key=key)["Body"].read()
        return body

    def overwrite(self, bucket: str, key: str, content: bytes) -> None:
        """Put ``content`` in the place of any existing object."""
        self._call("PutObject", Bucket=bucket, Key=key, Body=content)

    def begin_upload(self, bucket: str, key: str) -> str:
        """Begin a multipart upload and leave it; return its id."""
        upload_id: str = self._call("CreateMultipartUpload", Bucket=bucket, Key=key)["UploadId"]
        return upload_id

    def unfinished_uploads(self, bucket: str) -> list[str]:
        """Return the keys of the multipart uploads that were begun and never ended."""
        return [str(item["Key"]) for item in self._call("ListMultipartUploads", Bucket=bucket).get("Uploads", [])]

    def allow(self, bucket: str, access_key: str, policy: Mapping[str, object]) -> None:
        """Grant a user the rights of an IAM policy, as a policy of the bucket. The server knows no conditions."""
        statements = policy["Statement"]
        assert isinstance(statements, list)
        known = [{k: v for k, v in each.items() if k != "Condition"} for each in statements]
        granted = [{**each, "Principal": {"AWS": access_key}} for each in known]
        self._call("PutBucketPolicy", Bucket=bucket, Policy=json.dumps({**policy, "Statement": granted}))

    def create_locked_bucket(self) -> str:
        """Make a bucket whose objects are retained for a day against any user."""
        bucket = f"tierd-{uuid4().hex}"
        self._call("CreateBucket", Bucket=bucket, ObjectLockEnabledForBucket=True)
        retention = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
        locked = {"ObjectLockEnabled": "Enabled", "Rule": retention}
        self._call("PutObjectLockConfiguration", Bucket=bucket, ObjectLockConfiguration=locked)
        return bucket

    def create_versioned_bucket(self) -> str:
        """Make an empty bucket that keeps every version of its objects."""
        bucket = self.create_bucket()
        self._call("PutBucketVersioning", Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        return bucket

    def read_versions(self, bucket: str) -> dict[tuple[str, str], bytes]:
        """Return the bytes of every version of every object, by key and version id."""
        listed = self._call("ListObjectVersions", Bucket=bucket).get("Versions", [])
        return {
            (each["Key"], each["VersionId"]): self._call(
                "GetObject", Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"]
            )["Body"].read()
            for each in listed
        }

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _call(self, operation: str, **parameters: object) -> dict[str, Any]:
        return self._client._make_api_call(operation, parameters)
