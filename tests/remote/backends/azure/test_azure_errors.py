import pytest

from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteObjectRetainedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.remote.backends.answers import UploadGoneError
from tierd.remote.backends.azure.azure_errors import AzureRefusal, error_for, first_line

REFUSED = """Generic MicrosoftAzure error: Error performing PUT http://host/c/k in 2ms - Server returned non-2xx \
status code: 409 Conflict: <?xml version="1.0"?><Error>
  <Code>BlobImmutableDueToPolicy</Code>
  <Message>This operation is not permitted as the blob is immutable due to a policy.
RequestId:1</Message>
</Error>

Debug source:
Generic { store: "MicrosoftAzure" }"""
LOST = "Generic MicrosoftAzure error: Error performing HEAD http://host/c/k in 1s - HTTP error: error sending request"


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (404, "ContainerNotFound", "The specified container does not exist.", RemoteAccessError),
        (404, "BlobNotFound", "The specified blob does not exist.", RemoteResourceNotFoundError),
        (404, "", "", RemoteResourceNotFoundError),
        (409, "BlobAlreadyExists", "The specified blob already exists.", RemoteConflictError),
        (412, "ConditionNotMet", "", RemoteConflictError),
        (409, "BlobImmutableDueToPolicy", "", RemoteObjectRetainedError),
        (409, "BlobImmutableDueToLegalHold", "", RemoteObjectRetainedError),
        (409, "SnapshotsPresent", "", RemoteObjectRetainedError),
        (409, "OperationTimedOut", "", RetriableRemoteStorageError),
        (400, "Md5Mismatch", "", RemoteIntegrityError),
        (400, "InvalidBlockList", "", UploadGoneError),
        (400, "InvalidInput", "", RemoteStorageError),
        (401, "", "", RemoteAccessError),
        (403, "AuthenticationFailed", "", RemoteAccessError),
        (429, "", "", RetriableRemoteStorageError),
        (503, "ServerBusy", "", RetriableRemoteStorageError),
        (501, "", "", RemoteStorageError),
    ],
)
def test_refusals_are_classified_by_status_and_code(
    status: int, code: str, message: str, kind: type[RemoteStorageError]
) -> None:
    refused = AzureRefusal(operation="put", container="c", key="k", status=status, code=code, message=message)
    error = error_for(refused)
    assert type(error) is kind
    assert code in str(error)
    assert error.remedy


def test_messages_of_the_library_are_parsed() -> None:
    refused = AzureRefusal.from_text("delete", "c", "k", REFUSED)
    assert refused is not None
    assert (refused.status, refused.code) == (409, "BlobImmutableDueToPolicy")
    assert str(refused) == (
        "delete azure://c/k: 409 BlobImmutableDueToPolicy: "
        "This operation is not permitted as the blob is immutable due to a policy."
    )
    assert AzureRefusal.from_text("head", "c", "k", LOST) is None
    assert "Debug" not in first_line(REFUSED)


def test_an_answer_without_a_body_is_its_status() -> None:
    assert str(AzureRefusal.from_answer("put", "c", "k", 503, "")) == "put azure://c/k: 503"
