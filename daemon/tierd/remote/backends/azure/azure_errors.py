"""Refusals of Azure Blob Storage as errors of tierd: one pure decision, and a parser of the library's messages."""

import re
from dataclasses import dataclass

from tierd.errors import (
    RemoteAccessError,
    RemoteObjectRetainedError,
    RemoteStorageError,
)
from tierd.remote.backends.answers import busy, conflict, damaged_on_the_way, is_busy, not_found, upload_gone

_RETAINED = re.compile(r"immutab|retention|legal.?hold|SnapshotsPresent", re.IGNORECASE)
_STATUS = re.compile(r"status code: (\d{3})|\(code: (\d{3})\)")
_CODE = re.compile(r"<Code>([A-Za-z0-9]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]*)")
_CONFLICTS = frozenset({"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet", "UnauthorizedBlobOverwrite"})
_DAMAGED = frozenset({"Md5Mismatch", "Crc64Mismatch", "InvalidMd5"})
_GONE = frozenset({"InvalidBlockList", "InvalidBlobOrBlock"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureRefusal:
    """An error answer. ``code`` is the server's name of the error, empty where the answer had no body."""

    operation: str
    container: str
    key: str
    status: int
    code: str
    message: str

    def __str__(self) -> str:
        subject = f"{self.operation} azure://{self.container}/{self.key}"
        return f"{subject}: {self.status} {self.code}: {self.message}".removesuffix(": ").rstrip()

    @classmethod
    def from_text(cls, operation: str, container: str, key: str, text: str) -> "AzureRefusal | None":
        """Parse a message of the client library; None for a message about something else, such as a lost connection."""
        status = _STATUS.search(text)
        if status is None:
            return None
        otherwise = first_line(text).rpartition(": ")[2]
        return cls._parsed(operation, container, key, int(status[1] or status[2]), text=text, otherwise=otherwise)

    @classmethod
    def from_answer(cls, operation: str, container: str, key: str, status: int, body: str) -> "AzureRefusal":
        """Parse an HTTP answer."""
        otherwise = " ".join(body.split())[:200]
        return cls._parsed(operation, container, key, status, text=body, otherwise=otherwise)

    @classmethod
    def _parsed(
        cls, operation: str, container: str, key: str, status: int, *, text: str, otherwise: str
    ) -> "AzureRefusal":
        """Take code and message from ``text``; the message is ``otherwise`` where the text has none."""
        code, message = _CODE.search(text), _MESSAGE.search(text)
        return cls(
            operation=operation,
            container=container,
            key=key,
            status=status,
            code=code[1] if code else "",
            message=message[1] if message else otherwise,
        )


def first_line(text: str) -> str:
    """Return the first line of a library's message; the following lines describe the library's internals."""
    return text.partition("\n")[0].strip()


def error_for(refusal: AzureRefusal) -> RemoteStorageError:
    """Classify a refusal."""
    status, code = refusal.status, refusal.code
    if code in {"ContainerNotFound", "ContainerBeingDeleted", "ResourceNotFound"} and status in {404, 409}:
        return RemoteAccessError(
            f"there is no container {refusal.container!r}: {refusal}",
            remedy=f"create container {refusal.container} or correct remote.azure.container; tierd creates none itself",
        )
    if status == 404:
        return not_found(str(refusal))
    if status in {403, 409} and _RETAINED.search(f"{code} {refusal.message}"):
        return RemoteObjectRetainedError(
            str(refusal),
            remedy="a policy, hold or snapshot keeps it; a later attempt deletes it when that has ended",
        )
    if code in _DAMAGED:
        return damaged_on_the_way(str(refusal))
    if code in _GONE:
        return upload_gone(str(refusal))
    if status == 412 or code in _CONFLICTS:
        return conflict(str(refusal))
    if status in {401, 403}:
        return RemoteAccessError(
            str(refusal),
            remedy="correct remote.azure.account_key or sas_token, or give this identity the role Storage Blob Data "
            "Contributor on the container; tierd check-config --policy prints what is needed at least",
        )
    if status == 409 or is_busy(status):
        return busy(str(refusal))
    return RemoteStorageError(str(refusal), remedy="look the code up in the store's documentation")
