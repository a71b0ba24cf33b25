from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageFullError,
    RetriableRemoteStorageError,
)
from tierd.remote.backends.answers import UploadGoneError
from tierd.remote.backends.s3.s3_errors import S3Refusal, error_for

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
REFUSAL = S3Refusal(
    operation="put",
    bucket="tier",
    key="a/b.log",
    endpoint="https://s3.example.com",
    region="us-east-1",
    status=400,
    code="",
    message="the store's words",
    details={},
    headers={},
)


def refused(status: int, code: str, **fields: dict[str, str]) -> RemoteStorageError:
    return error_for(replace(REFUSAL, status=status, code=code, **fields), now=NOW)  # type: ignore[arg-type] # details, headers


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "SlowDown", RetriableRemoteStorageError),
        (503, "ServiceUnavailable", RetriableRemoteStorageError),
        (500, "InternalError", RetriableRemoteStorageError),
        (502, "502", RetriableRemoteStorageError),
        (429, "TooManyRequests", RetriableRemoteStorageError),
        (507, "XMinioStorageFull", RemoteStorageFullError),
        (507, "507", RemoteStorageFullError),
        (403, "QuotaExceeded", RemoteStorageFullError),
        (400, "XMinioAdminBucketQuotaExceeded", RemoteStorageFullError),
        (400, "RequestTimeout", RetriableRemoteStorageError),
        (400, "IncompleteBody", RetriableRemoteStorageError),
        (409, "ConditionalRequestConflict", RetriableRemoteStorageError),
        (409, "OperationAborted", RetriableRemoteStorageError),
        (200, "SlowDown", RetriableRemoteStorageError),
        (412, "PreconditionFailed", RemoteConflictError),
        (404, "NoSuchKey", RemoteResourceNotFoundError),
        (404, "404", RemoteResourceNotFoundError),
        (404, "NoSuchUpload", UploadGoneError),
        (404, "NoSuchBucket", RemoteAccessError),
        (403, "AccessDenied", RemoteAccessError),
        (403, "InvalidObjectState", RemoteAccessError),
        (403, "403", RemoteAccessError),
        (403, "SignatureDoesNotMatch", RemoteAccessError),
        (403, "InvalidAccessKeyId", RemoteAccessError),
        (400, "ExpiredToken", RemoteAccessError),
        (403, "RequestTimeTooSkewed", RemoteAccessError),
        (301, "PermanentRedirect", RemoteAccessError),
        (400, "AuthorizationHeaderMalformed", RemoteAccessError),
        (400, "BadDigest", RemoteIntegrityError),
        (400, "XAmzContentChecksumMismatch", RemoteIntegrityError),
        (501, "NotImplemented", RemoteStorageError),
        (409, "ObjectParentIsFile", RemoteStorageError),
        (400, "InvalidRequest", RemoteStorageError),
    ],
)
def test_a_refusal_is_classified_and_has_a_next_step(status: int, code: str, kind: type[RemoteStorageError]) -> None:
    error = refused(status, code)
    assert type(error) is kind
    assert error.remedy


def test_a_missing_bucket_is_named_with_what_to_do() -> None:
    error = refused(404, "NoSuchBucket")
    assert str(error) == "https://s3.example.com has no bucket 'tier'"
    assert "create bucket tier" in error.remedy


def test_a_skewed_clock_is_named_with_both_times() -> None:
    error = refused(403, "RequestTimeTooSkewed", headers={"date": "Sun, 01 Mar 2026 11:30:00 GMT"})
    assert "2026-03-01 12:00:00" in str(error)
    assert "2026-03-01 11:30:00" in str(error)
    assert "1800 s apart" in str(error)
    assert "clock" in error.remedy
    assert "clock" in str(refused(403, "RequestTimeTooSkewed"))


@pytest.mark.parametrize(
    "fields", [{"headers": {"x-amz-bucket-region": "eu-west-1"}}, {"details": {"Region": "eu-west-1"}}]
)
@pytest.mark.parametrize(("status", "code"), [(301, "301"), (400, "AuthorizationHeaderMalformed")])
def test_the_right_region_is_named(status: int, code: str, fields: dict[str, dict[str, str]]) -> None:
    error = refused(status, code, **fields)
    assert str(error) == "bucket 'tier' is in region eu-west-1, not in us-east-1"
    assert error.remedy == "set remote.s3.region: eu-west-1"


def test_a_region_that_the_store_does_not_tell_is_asked_for() -> None:
    error = refused(301, "PermanentRedirect", details={"Endpoint": "tier.s3.eu-west-1.amazonaws.com"})
    assert "tier.s3.eu-west-1.amazonaws.com" in error.remedy


def test_a_denied_call_names_operation_object_and_rights() -> None:
    error = refused(403, "AccessDenied")
    assert str(error) == "put s3://tier/a/b.log: 403 AccessDenied: the store's words"
    assert "s3:PutObject" in error.remedy


def test_archived_object_is_not_taken_for_a_missing_right() -> None:
    assert "thaw it" in refused(403, "InvalidObjectState").remedy
