"""GcsConnection: one client of one bucket, its credentials, and its errors as errors of tierd."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import aiohttp
from gcloud.aio.auth import Token
from gcloud.aio.storage import Storage
from yarl import URL

from tierd.errors import RemoteAccessError, RemoteStorageError
from tierd.masking import MaskedError, Masking
from tierd.remote.backends.answers import NoAnswerError, no_answer
from tierd.remote.backends.client_settings import HttpTimeouts
from tierd.remote.backends.gcs.gcs_errors import GcsRefusal, error_for
from tierd.remote.backends.http_attempts import cutting_abandoned, without_repetition
from tierd.remote.chunks import sliced
from tierd.tasks import end_tasks, retrieve

_ROOT = "https://storage.googleapis.com"
_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]
_UNREACHABLE = (aiohttp.ClientError, ConnectionError, TimeoutError)


class Reply(NamedTuple):
    """An answer that is no refusal; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class GcsConnection:
    """A client, connected at its first use. With ``endpoint_url``, an emulator's, no credentials are sent."""

    def __init__(
        self,
        bucket: str,
        *,
        endpoint_url: str | None,
        credentials_file: Path | None,
        timeouts: HttpTimeouts,
        max_connections: int,
    ) -> None:
        self.bucket = bucket
        self.masking = Masking()  # tokens and keys come from files and servers: their shape gives them away
        self._root = (endpoint_url or _ROOT).rstrip("/")
        self._is_emulator = endpoint_url is not None
        self._credentials_file = credentials_file
        self._timeout = aiohttp.ClientTimeout(connect=timeouts.connect_s, sock_read=timeouts.read_s)
        self._max_connections = max_connections
        self._session: aiohttp.ClientSession | None = None
        self._storage: Storage | None = None
        self._token: _SharedToken | None = None

    @property
    def timeout(self) -> int:
        """Return the timeouts of the library's calls, which take fractions although their annotations say int."""
        return cast("int", self._timeout)

    async def storage(self) -> Storage:
        """Return the library's client, with a valid token where one is needed.

        Raises:
            RemoteAccessError: no credentials, or refused ones.
            RetriableRemoteStorageError: the server that issues tokens does not answer.
        """
        if self._storage is None or self._session is None:
            connector = cutting_abandoned(aiohttp.TCPConnector(limit=self._max_connections))
            self._session = without_repetition(aiohttp.ClientSession(connector=connector, timeout=self._timeout))
            try:
                self._token = _SharedToken(self._credentials, session=self._session, scopes=_SCOPES)
            except (OSError, ValueError, KeyError) as error:
                await self.close()
                failure = self.masking.error(error)
                raise self._no_credentials(failure) from failure
            self._storage = Storage(
                session=_as_session(self._session), token=self._token, api_root=self._root, api_is_dev=self._is_emulator
            )
        if not self._is_emulator:
            await self._authorize()
        return self._storage

    async def request(
        self,
        operation: str,
        key: str,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        max_bytes: int | None = None,
    ) -> Reply:
        """Make a request that the library has no method for; ``url`` is whole and encoded.

        At most the first ``max_bytes`` of the answer are read: a store that unpacks an object on its way, because it
        was stored as gzip, sends more than the range that it was asked for.

        Raises:
            RemoteStorageError: the store refused it, as ``error_for`` classifies the refusal; 308 and 416 are answers.
        """
        await self.storage()
        assert self._session is not None, "the client has one"
        allowed = {"Content-Length": str(len(content)), **(headers or {})} if method != "GET" else dict(headers or {})
        with self.translated(operation, key):
            if self._token is not None and not self._is_emulator:
                allowed["Authorization"] = f"Bearer {await self._token.get()}"
            async with self._session.request(
                method,
                URL(url, encoded=True),
                headers=allowed,
                data=sliced(content) if content else None,
                allow_redirects=False,
            ) as response:
                reply = Reply(
                    response.status,
                    {name.lower(): value for name, value in response.headers.items()},
                    await (response.read() if max_bytes is None else _first_bytes(response.content, max_bytes)),
                )
        if reply.status >= 400 and reply.status != 416:
            raise error_for(self._refusal(operation, key, reply.status, reply.content.decode(errors="replace")))
        return reply

    def object_url(self, key: str, query: str = "") -> str:
        """Return the address of an object."""
        return f"{self._root}/storage/v1/b/{self.bucket}/o/{quote(key, safe='')}?{query}"

    def upload_url(self, query: str) -> str:
        """Return the address that objects are sent to."""
        return f"{self._root}/upload/storage/v1/b/{self.bucket}/o?{query}"

    def reachable(self, url: str) -> str:
        """Return an address from the store as it is reached from here: an emulator may give another name of itself."""
        return self._root + URL(url, encoded=True).raw_path_qs if self._is_emulator else url

    async def close(self) -> None:
        """Release the connections; the next call would connect again."""
        if self._token is not None:
            await self._token.settle()
        if self._session is not None:
            await self._session.close()
        self._storage = self._session = self._token = None

    @contextmanager
    def translated(self, operation: str, key: str) -> Iterator[None]:
        """Translate the library's errors, and those of the library below it, into errors of tierd."""
        with self.masking.sealing(), self._translated(operation, key):
            yield

    @contextmanager
    def _translated(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except aiohttp.ClientResponseError as error:
            refusal = self._refusal(operation, key, error.status, error.message)
            raise error_for(refusal) from self.masking.error(error)
        except _UNREACHABLE as error:
            failure = self.masking.error(error)
            subject = f"{operation} gs://{self.bucket}/{key}"
            raise no_answer(f"{subject}: {self._root} does not answer: {failure.named}") from failure
        except (ValueError, KeyError) as error:  # not the store that answered: a proxy's page, or half an answer
            failure = self.masking.error(error)
            raise NoAnswerError(
                f"{operation} gs://{self.bucket}/{key}: the answer cannot be understood: {failure.named}",
                remedy="it is tried again; look at the proxies on the way to the store",
            ) from failure

    @property
    def _credentials(self) -> str | None:
        return str(self._credentials_file) if self._credentials_file else None

    async def _authorize(self) -> None:
        assert self._token is not None, "made with the client"
        with self.masking.sealing():
            try:
                await self._token.get()
            except aiohttp.ClientResponseError as error:
                failure = self.masking.error(error)
                if error.status in {408, 429} or error.status >= 500:
                    raise self._no_answer_for_token(failure) from failure
                raise self._no_credentials(failure) from failure
            except _UNREACHABLE as error:
                failure = self.masking.error(error)
                raise self._no_answer_for_token(failure) from failure
            except (ValueError, KeyError) as error:
                failure = self.masking.error(error)
                raise self._no_credentials(failure) from failure

    def _no_answer_for_token(self, failure: MaskedError) -> RemoteStorageError:
        return NoAnswerError(
            f"no access token for gs://{self.bucket}: {failure.named}",
            remedy="it is tried again; outside Google Cloud set remote.gcs.credentials_file",
        )

    def _no_credentials(self, failure: MaskedError) -> RemoteStorageError:
        source = self._credentials_file or "the default credentials of this host"
        return RemoteAccessError(
            f"{source} give no access to gs://{self.bucket}: {failure.named}",
            remedy="set remote.gcs.credentials_file to the JSON key of a service account that may use the bucket",
        )

    def _refusal(self, operation: str, key: str, status: int, text: str) -> GcsRefusal:
        return GcsRefusal(operation=operation, bucket=self.bucket, key=key, status=status, text=self.masking.text(text))


def _as_session(session: aiohttp.ClientSession) -> Any:  # noqa: ANN401 - the library names the class of its twin without asyncio
    return session


class _SharedToken(Token):
    """Token of the library that is asked for once, and whose waiting callers may be cancelled one by one."""

    def __init__(self, service_file: str | None, *, session: aiohttp.ClientSession, scopes: list[str]) -> None:
        super().__init__(service_file=service_file, session=_as_session(session), scopes=scopes)
        self._waits: set[asyncio.Task[None]] = set()

    async def ensure_token(self) -> None:
        """Wait for a valid token; a cancellation stops the waiting, not the asking."""
        waiting = asyncio.create_task(super().ensure_token(), name="wait for a token")
        self._waits.add(waiting)
        waiting.add_done_callback(self._waits.discard)
        waiting.add_done_callback(retrieve)  # the callers have the failure
        await asyncio.shield(waiting)

    async def acquire_access_token(self, timeout: int = 10) -> None:  # type: ignore[override]  # theirs is decorated
        """Ask once: the wrapper of the store repeats."""
        once: Any = Token.acquire_access_token
        await once.__wrapped__(self, timeout=timeout)

    async def settle(self) -> None:
        """End the requests for a token that are under way."""
        await end_tasks([*self._waits, *([self.acquiring] if self.acquiring else [])])


async def _first_bytes(stream: aiohttp.StreamReader, max_bytes: int) -> bytes:
    content = bytearray()
    while len(content) < max_bytes and (piece := await stream.read(max_bytes - len(content))):
        content += piece
    return bytes(content)
