"""Refusals of an S3 server as errors of tierd: one pure decision for all operations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from tierd.errors import (
    RemoteAccessError,
    RemoteObjectRetainedError,
    RemoteStorageError,
    RemoteStorageFullError,
)
from tierd.remote.backends.answers import busy, conflict, damaged_on_the_way, is_busy, not_found, upload_gone

_READING = frozenset({"get", "head", "delete"})
_MAX_FILE_NAME_BYTES = 255
_BUSY = frozenset(
    {
        "BandwidthLimitExceeded",
        "ConditionalRequestConflict",
        "IncompleteBody",  # the connection broke while the body was sent
        "InvalidPart",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestTimeout",  # answered with 400
        "SlowDown",
        "TemporaryRedirect",
        "TooManyRequests",
    }
)
_FULL = frozenset({"QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull"})  # Ceph, MinIO
_COMPLETION = "complete upload"
_UPLOAD_SPOILT = frozenset(
    {
        "ConditionalRequestConflict",  # a request for the same key came between: S3 wants the parts again
        "InvalidPart",  # the store has lost a part
    }
)
_DAMAGED = frozenset(
    {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch", "EntityTooSmall"}
)
_WRONG_REGION = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "IncorrectEndpoint"}
)
_RETAINED = re.compile(r"object.?lock|WORM|retention|legal.?hold|immutable", re.IGNORECASE)
_SKEWED = "RequestTimeTooSkewed"
_EXPIRED = "renew the session token in the place that tierd takes its credentials from"
_CREDENTIALS = {
    "SignatureDoesNotMatch": "correct remote.s3.secret_access_key",
    "InvalidAccessKeyId": "correct remote.s3.access_key_id",
    "ExpiredToken": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Refusal:
    """An error answer of an S3 server; header names in lower case.

    Attributes:
        code: the server's name of the error; the status in digits where the answer had no body.
        details: further fields of the error body, for example ``Region``.
    """

    operation: str
    bucket: str
    key: str
    endpoint: str
    region: str
    status: int
    code: str
    message: str
    details: Mapping[str, str]
    headers: Mapping[str, str]

    def __str__(self) -> str:
        subject = f"{self.operation} s3://{self.bucket}/{self.key}"
        return f"{subject}: {self.status} {self.code}: {self.message}"


def error_for(refusal: S3Refusal, *, now: datetime) -> RemoteStorageError:
    """Classify a refusal; ``now`` is this host's clock, with a time zone."""
    code, status = refusal.code, refusal.status
    if code == "NoSuchBucket":
        return RemoteAccessError(
            f"{refusal.endpoint} has no bucket {refusal.bucket!r}",
            remedy=f"create bucket {refusal.bucket} or correct remote.s3.bucket; tierd creates none by itself",
        )
    if code == "NoSuchUpload" or (code in _UPLOAD_SPOILT and refusal.operation == _COMPLETION):
        return upload_gone(str(refusal))
    if code == _SKEWED:
        return _skewed(refusal, now)
    if code in _WRONG_REGION or status == 301:
        return _wrong_region(refusal)
    if code in _FULL or status == 507:
        remedy = "make room in the store, or raise the quota of the bucket; tierd goes on by itself then"
        return RemoteStorageFullError(str(refusal), remedy=remedy)
    if code in _BUSY or is_busy(status):
        return busy(str(refusal))
    if code in _DAMAGED:
        return damaged_on_the_way(str(refusal))
    if status == 412:
        return conflict(str(refusal))
    if status in {400, 403, 405, 409} and _RETAINED.search(f"{code} {refusal.message}"):
        return RemoteObjectRetainedError(
            str(refusal),
            remedy="the bucket keeps it until its retention or legal hold ends; tierd deletes it at a later attempt",
        )
    if code == "InvalidObjectState":
        return RemoteAccessError(
            str(refusal),
            remedy="the object is archived: thaw it (RestoreObject), wait until that is done, and try again",
        )
    if status in {401, 403} or code in _CREDENTIALS:
        return _forbidden(refusal)
    if status == 404 or _is_too_long_to_exist(refusal):
        return not_found(str(refusal))
    if status == 501:
        remedy = "tierd needs conditional writes (If-None-Match) and CRC-32C checksums; use a store that has them"
        return RemoteStorageError(str(refusal), remedy=remedy)
    return RemoteStorageError(str(refusal), remedy="look the code up in the store's documentation")


def _is_too_long_to_exist(refusal: S3Refusal) -> bool:
    """Return True for a key too long for a server on a file system, which gives ``head`` no reason."""
    if refusal.status != 400 or refusal.operation not in _READING:
        return False
    is_too_long = any(len(part.encode()) > _MAX_FILE_NAME_BYTES for part in refusal.key.split("/"))
    return refusal.code == "KeyTooLongError" or (is_too_long and refusal.code in {"", "400"})


def _skewed(refusal: S3Refusal, now: datetime) -> RemoteStorageError:
    cause = f"this host's clock says {now:%Y-%m-%d %H:%M:%S} UTC"
    try:
        theirs = parsedate_to_datetime(refusal.headers.get("date", ""))
    except ValueError:
        cause += f", too far from the clock of {refusal.endpoint}"
    else:
        cause += f", the clock of {refusal.endpoint} says {theirs:%Y-%m-%d %H:%M:%S} UTC"
        cause += f": {abs((now - theirs).total_seconds()):.0f} s apart"
    return RemoteAccessError(cause, remedy="set this host's clock, for example by starting chrony or systemd-timesyncd")


def _wrong_region(refusal: S3Refusal) -> RemoteStorageError:
    right = refusal.headers.get("x-amz-bucket-region") or refusal.details.get("Region")
    if not right:
        endpoint = refusal.details.get("Endpoint", "another address")
        return RemoteAccessError(
            f"bucket {refusal.bucket!r} is not in region {refusal.region}: {refusal.code}: {refusal.message}",
            remedy=f"set remote.s3.region to the bucket's region; the store names the endpoint {endpoint}",
        )
    return RemoteAccessError(
        f"bucket {refusal.bucket!r} is in region {right}, not in {refusal.region}",
        remedy=f"set remote.s3.region: {right}",
    )


def _forbidden(refusal: S3Refusal) -> RemoteStorageError:
    rights = (
        "allow s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload, s3:ListBucket and "
        f"s3:ListBucketMultipartUploads on bucket {refusal.bucket} to these credentials; "
        "tierd check-config --policy prints a policy that does"
    )
    return RemoteAccessError(str(refusal), remedy=_CREDENTIALS.get(refusal.code, rights))
