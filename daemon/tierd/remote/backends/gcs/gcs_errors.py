"""Refusals of Google Cloud Storage as errors of tierd: one pure decision for all operations."""

import re
from dataclasses import dataclass

from tierd.errors import (
    RemoteAccessError,
    RemoteObjectRetainedError,
    RemoteStorageError,
)
from tierd.json_parsing import parse_json
from tierd.remote.backends.answers import busy, conflict, damaged_on_the_way, is_busy, not_found, upload_gone

_RETAINED = re.compile(r"retention|under active|event-based hold|temporary hold", re.IGNORECASE)
_NO_BUCKET = re.compile(r"bucket does not exist", re.IGNORECASE)
_DAMAGED = re.compile(r"crc32c|checksum|hash", re.IGNORECASE)
_BUSY_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
_OF_THE_BUCKET = frozenset({"list", "check", "begin upload", "put"})
_OF_AN_UPLOAD = frozenset({"upload part", "ask upload", "abort upload"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsRefusal:
    """An error answer. ``text`` is its body, JSON as a rule."""

    operation: str
    bucket: str
    key: str
    status: int
    text: str

    def __str__(self) -> str:
        return f"{self.operation} gs://{self.bucket}/{self.key}: {self.status} {self.message}".rstrip()

    @property
    def message(self) -> str:
        """Return the sentence of the answer that names the failure."""
        error = self._error()
        return str(error.get("message", "")) or " ".join(self.text.split())[:200]

    @property
    def reasons(self) -> frozenset[str]:
        """Return the words of the answer that name the cause."""
        errors = self._error().get("errors")
        listed = errors if isinstance(errors, list) else []
        return frozenset(str(each["reason"]) for each in listed if isinstance(each, dict) and "reason" in each)

    def _error(self) -> dict[str, object]:
        try:
            answer = parse_json(self.text[self.text.index("{") :])
        except ValueError:
            return {}
        error = answer.get("error") if isinstance(answer, dict) else None
        return error if isinstance(error, dict) else {}


def error_for(refusal: GcsRefusal) -> RemoteStorageError:
    """Classify a refusal."""
    status, message = refusal.status, refusal.message
    if refusal.operation in _OF_AN_UPLOAD and status in {404, 410}:
        return upload_gone(str(refusal))
    if status == 404 and (refusal.operation in _OF_THE_BUCKET or _NO_BUCKET.search(message)):
        return RemoteAccessError(
            f"there is no bucket {refusal.bucket!r}: {refusal}",
            remedy=f"create bucket {refusal.bucket} or correct remote.gcs.bucket; tierd creates none by itself",
        )
    if status == 404:
        return not_found(str(refusal))
    if status == 412:
        return conflict(str(refusal))
    if status == 409 or is_busy(status) or refusal.reasons & _BUSY_REASONS:
        return busy(str(refusal))
    if status in {400, 403} and _RETAINED.search(message):
        return RemoteObjectRetainedError(
            str(refusal), remedy="the bucket keeps it until its retention or hold ends; a later attempt deletes it"
        )
    if status in {401, 403}:
        return RemoteAccessError(
            str(refusal),
            remedy="allow storage.objects.create, get, list and delete on the bucket to this account; "
            "tierd check-config --policy prints a role that does",
        )
    if status == 400 and _DAMAGED.search(message):
        return damaged_on_the_way(str(refusal))
    return RemoteStorageError(str(refusal), remedy="look the message up in the store's documentation")
