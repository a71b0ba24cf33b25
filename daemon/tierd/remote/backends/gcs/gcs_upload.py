"""ResumableUploads: large objects in parts, one after the other, whole or not at all."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlencode

import structlog

from tierd.errors import RemoteStorageError, RetriableRemoteStorageError
from tierd.json_parsing import parse_json
from tierd.masking import masked
from tierd.remote.backends.answers import NoAnswerError, UploadGoneError, upload_gone
from tierd.remote.backends.clean_ups import CleanUps
from tierd.remote.backends.gcs.gcs_connection import GcsConnection, Reply
from tierd.remote.deadlines import Deadlines, deadline
from tierd.remote.retrying import Retry

log = structlog.get_logger()

_UNFINISHED = 308
_CANCELLED = 499  # how the store answers the abort of an upload


class ResumableUploads:
    """Uploads that the store keeps for a week unless they are completed or aborted. They cannot be listed.

    ``retry`` repeats single parts: the store is asked how far it got, so that a hiccup does not cost the whole object.
    """

    def __init__(self, connection: GcsConnection, *, deadlines: Deadlines, retry: Retry | None) -> None:
        self._connection = connection
        self._deadlines = deadlines
        self._retry = retry
        self._clean_ups = CleanUps()

    @asynccontextmanager
    async def begun(self, key: str, *, checksum: str | None) -> AsyncIterator["ResumableUpload"]:
        """Begin an upload of a key that must not exist, to be completed inside the context; otherwise it is aborted.

        Args:
            key: the object's.
            checksum: of the whole, in the store's form, which the store verifies; None where it is not known yet.
        """
        begin = self._ask_for_upload(key, checksum)
        abort = partial(self._abort, key)
        async with self._clean_ups.upload(key, begin, abort, patience_s=self._deadlines.clean_up_s) as url:
            yield ResumableUpload(self._connection, key, url, deadlines=self._deadlines, retry=self._retry)

    async def close(self) -> None:
        """Finish the aborts of cancelled uploads; each abort has a deadline."""
        await self._clean_ups.close()

    async def _ask_for_upload(self, key: str, checksum: str | None) -> str:
        query = urlencode({"uploadType": "resumable", "name": key, "ifGenerationMatch": "0"})
        described: dict[str, str] = {"name": key} | ({"crc32c": checksum} if checksum else {})
        async with deadline(f"begin upload {key}", self._deadlines.for_size(0)):
            reply = await self._connection.request(
                "begin upload",
                key,
                "POST",
                self._connection.upload_url(query),
                headers={"Content-Type": "application/json; charset=UTF-8"},
                content=json.dumps(described).encode(),
            )
        if "location" not in reply.headers:
            raise NoAnswerError(f"begin upload {key}: the store named no address for it", remedy="it is tried again")
        return self._connection.reachable(reply.headers["location"])

    async def _abort(self, key: str, url: str) -> None:
        try:
            async with deadline(f"abort upload {key}", self._deadlines.clean_up_s):
                await self._connection.request("abort upload", key, "DELETE", url)
        except UploadGoneError:
            pass
        except RemoteStorageError as error:
            if f": {_CANCELLED} " not in f"{error} ":
                # The store drops it in a week. The failure before the abort is the one to report.
                log.warning("upload_not_aborted", key=key, error=str(error))


class ResumableUpload:
    """One upload under way."""

    def __init__(
        self, connection: GcsConnection, key: str, url: str, *, deadlines: Deadlines, retry: Retry | None
    ) -> None:
        self._connection = connection
        self._key = key
        self._url = url
        self._deadlines = deadlines
        self._retry = retry

    async def send(self, content: bytes, *, position: int, is_last: bool) -> dict[str, Any] | None:
        """Send the part that begins at ``position``; return what the store says of the object after the last one.

        Raises:
            RemoteConflictError: the key exists.
            UploadGoneError: the upload was aborted by another caller.
            NoAnswerError: the last part may have completed the upload.
        """
        total = position + len(content) if is_last else None
        asked = False

        async def attempt() -> dict[str, Any] | None:
            nonlocal asked
            begin = position
            if asked:
                reply = await self._put(b"", f"bytes */{'*' if total is None else total}", "ask upload")
                if reply.status != _UNFINISHED:
                    return _described(reply)
                begin = self._progress(reply, position, len(content))
            asked = True
            return await self._send_from(content, position, begin, total)

        call: Callable[[], Awaitable[dict[str, Any] | None]] = attempt
        return await (self._retry.request("upload_part", call, key=self._key, part=position) if self._retry else call())

    async def _send_from(self, content: bytes, position: int, begin: int, total: int | None) -> dict[str, Any] | None:
        end = position + len(content)
        while begin < end:
            content_range = f"bytes {begin}-{end - 1}/{'*' if total is None else total}"
            reply = await self._put(content[begin - position :], content_range, "upload part")
            if reply.status != _UNFINISHED:
                return _described(reply)
            kept = self._progress(reply, position, len(content))
            if kept <= begin:
                raise RetriableRemoteStorageError(f"{self._key}: the store kept nothing of {content_range}")
            begin = kept
        if total is not None:
            raise RetriableRemoteStorageError(f"{self._key}: the store has every byte and does not complete the object")
        return None

    def _progress(self, reply: Reply, position: int, size: int) -> int:
        """Return the number of bytes that the store has; it must be inside the part that is being sent."""
        _, dash, last = reply.headers.get("range", "").partition("-")
        kept = int(last) + 1 if dash else 0
        if not position <= kept <= position + size:
            raise upload_gone(f"{self._key}: the store kept {kept} bytes, while those from {position} on are sent")
        return kept

    async def _put(self, content: bytes, content_range: str, operation: str) -> Reply:
        request = partial(self._connection.request, operation, self._key, "PUT", self._url)
        async with deadline(f"{operation} {self._key}", self._deadlines.for_size(len(content))):
            return await request(headers={"Content-Range": content_range}, content=content)


def _described(reply: Reply) -> dict[str, Any]:
    try:
        described = parse_json(reply.content)
    except ValueError:
        answer = masked(reply.content.decode(errors="replace"))[:80]
        raise NoAnswerError(f"the store's answer is no JSON: {answer!r}") from None
    return described if isinstance(described, dict) else {}
