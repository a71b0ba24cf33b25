"""AzureConnection: one container, through obstore, and through plain HTTP for requests that obstore lacks."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote, urlencode

import aiohttp
import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore
from yarl import URL

from tierd.errors import RemoteAccessError, RemoteConflictError, RemoteStorageError
from tierd.masking import Masking
from tierd.remote.backends.answers import conflict, no_answer
from tierd.remote.backends.azure.azure_errors import AzureRefusal, error_for, first_line
from tierd.remote.backends.client_settings import HttpTimeouts
from tierd.remote.backends.http_attempts import cutting_abandoned, without_repetition
from tierd.remote.chunks import ByteView, sliced

_VERSION = "2021-12-02"
_SKEW = timedelta(minutes=15)  # between the clocks of the store and of this host
_SIGNED_FOR = timedelta(hours=1)
_RENEWED_BEFORE = timedelta(minutes=20)  # no request takes longer
_LONGEST_REQUEST = timedelta(days=1)  # the caller's deadline ends it; the library's own would be 30 s
_UNREACHABLE = (aiohttp.ClientError, ConnectionError, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureContainer:
    """A container, which must exist, of a storage account.

    Attributes:
        endpoint_url: address of an emulator or a sovereign cloud, with the path of the account.
    """

    name: str
    account: str
    endpoint_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureCredentials:
    """The right to use a container: a key of the account, or a signature.

    Without both it is the identity of this host, as obstore finds it (environment, managed or workload identity).
    """

    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)


class AzureConnection:
    """A client without retries of its own."""

    def __init__(self, container: AzureContainer, *, credentials: AzureCredentials, timeouts: HttpTimeouts) -> None:
        self.container = container.name
        self._account = container.account
        self._account_key = credentials.account_key
        self.masking = Masking(credentials.account_key, credentials.sas_token)
        self._sas_token = credentials.sas_token.removeprefix("?") if credentials.sas_token else None
        endpoint_url = container.endpoint_url or f"https://{container.account}.blob.core.windows.net"
        self._endpoint = endpoint_url.rstrip("/")
        self._timeouts = timeouts
        self._store: AzureStore | None = None
        self._session: aiohttp.ClientSession | None = None
        self._signature = ""
        self._signed_until = datetime.fromtimestamp(0, UTC)

    @property
    def store(self) -> AzureStore:
        """Store of the client library.

        Raises:
            RemoteAccessError: the credentials cannot be used.
        """
        if self._store is None:
            credentials: dict[str, Any] = {}
            if self._account_key:
                credentials["account_key"] = self._account_key
            if self._sas_token:
                credentials["sas_key"] = self._sas_token
            try:
                self._store = AzureStore(
                    self.container,
                    account_name=self._account,
                    endpoint=self._endpoint,
                    client_options={
                        "allow_http": self._endpoint.startswith("http://"),
                        "connect_timeout": timedelta(seconds=self._timeouts.connect_s),
                        "read_timeout": timedelta(seconds=self._timeouts.read_s),
                        "timeout": _LONGEST_REQUEST,
                    },
                    retry_config={"max_retries": 0, "retry_timeout": timedelta(0)},
                    **credentials,
                )
            except (BaseError, ValueError) as error:
                failure = self.masking.error(error)
                raise RemoteAccessError(
                    f"azure://{self.container} cannot be opened: {first_line(failure.text)}",
                    remedy="correct the settings below remote.azure",
                ) from failure
        return self._store

    async def put(self, operation: str, key: str, query: str, content: ByteView, headers: Mapping[str, str]) -> None:
        """Send a PUT that the library has no method for.

        Raises:
            RemoteStorageError: the store refused it, as ``error_for`` classifies the refusal.
        """
        sent = {"Content-Length": str(len(content)), **headers}
        await self._request(operation, key, "PUT", query=query, headers=sent, content=content)

    async def delete(self, key: str) -> None:
        """Remove a blob by one plain request; the library would send a batch, which needs further rights.

        Raises:
            RemoteStorageError: the store refused it, as ``error_for`` classifies the refusal.
        """
        await self._request("delete", key, "DELETE")

    async def _request(
        self,
        operation: str,
        key: str,
        method: Literal["PUT", "DELETE"],
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        content: ByteView = b"",
    ) -> None:
        url = URL(await self._signed(method, key, query), encoded=True)
        if self._session is None:
            timeout = aiohttp.ClientTimeout(connect=self._timeouts.connect_s, sock_read=self._timeouts.read_s)
            connector = cutting_abandoned(aiohttp.TCPConnector())
            self._session = without_repetition(aiohttp.ClientSession(connector=connector, timeout=timeout))
        sent = {"x-ms-version": _VERSION, **(headers or {})}
        body = sliced(content) if content else None
        with self.translated(operation, key):
            async with self._session.request(method, url, data=body, headers=sent, allow_redirects=False) as response:
                answer = await response.text(errors="replace")
        if response.status >= 300:
            safe = self.masking.text(answer)
            raise error_for(AzureRefusal.from_answer(operation, self.container, key, response.status, safe))

    async def close(self) -> None:
        """Release the connections; the next call would connect again."""
        session, self._session, self._store = self._session, None, None
        if session is not None:
            await session.close()

    @contextmanager
    def translated(self, operation: str, key: str) -> Iterator[None]:
        """Translate the errors of both libraries into errors of tierd."""
        with self.masking.sealing(), self._translated(operation, key):
            yield

    @contextmanager
    def _translated(self, operation: str, key: str) -> Iterator[None]:
        subject = f"{operation} azure://{self.container}/{key}"
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            failure = self.masking.error(error)
            refusal = AzureRefusal.from_text(operation, self.container, key, failure.text)
            if refusal is not None:
                raise error_for(refusal) from failure
            raise no_answer(f"{subject}: {self._endpoint} does not answer: {first_line(failure.text)}") from failure
        except _UNREACHABLE as error:
            failure = self.masking.error(error)
            raise no_answer(f"{subject}: {self._endpoint} does not answer: {failure.named}") from failure
        except ValueError as error:
            failure = self.masking.error(error)
            raise RemoteStorageError(
                f"{subject}: {failure}", remedy="correct the settings below remote.azure"
            ) from failure

    def conflict(self, key: str, what: str) -> RemoteConflictError:
        """Return the error for an object with other content than expected."""
        return conflict(f"azure://{self.container}/{key} {what}")

    async def _signed(self, method: Literal["PUT", "DELETE"], key: str, query: str) -> str:
        """Return the address of a blob, with a signature to write or delete it."""
        if self._account_key is None and self._sas_token is None:
            with self.translated("sign", key):
                signed = await obstore.sign_async(self.store, method, key, _SIGNED_FOR)
            return f"{signed}&{query}" if query else signed
        url = f"{self._endpoint}/{self.container}/{quote(key, safe='/')}"
        return f"{url}?{query}&{self._own_signature()}" if query else f"{url}?{self._own_signature()}"

    def _own_signature(self) -> str:
        if self._account_key is None:
            return self._sas_token or ""
        now = datetime.now(UTC)
        if now > self._signed_until - _RENEWED_BEFORE:
            with self.translated("sign", ""):
                self._signature = container_sas(
                    account=self._account,
                    account_key=self._account_key,
                    container=self.container,
                    now=now,
                    lifetime=_SIGNED_FOR,
                )
            self._signed_until = now + _SIGNED_FOR
        return self._signature


def container_sas(*, account: str, account_key: str, container: str, now: datetime, lifetime: timedelta) -> str:
    """Return a query string that allows to write and delete the blobs of one container, and nothing else.

    Azure's page is "Create a service SAS". The signature is for requests that the client library cannot make.

    Raises:
        ValueError: the key is not base64; the message does not show it.
    """
    try:
        key = base64.b64decode(account_key, validate=True)
    except binascii.Error:
        raise ValueError("remote.azure.account_key is not base64") from None
    fields = {
        "sp": "cwd",  # create, write, delete
        "st": f"{now - _SKEW:%Y-%m-%dT%H:%M:%SZ}",
        "se": f"{now + lifetime:%Y-%m-%dT%H:%M:%SZ}",
    }
    resource = f"/blob/{account}/{container}"
    # After the resource: identifier, addresses, protocols; version, kind, snapshot, scope; five headers of the answer.
    signed = [*fields.values(), resource, "", "", "", _VERSION, "c", "", "", *[""] * 5]
    digest = hmac.digest(key, "\n".join(signed).encode(), hashlib.sha256)
    return urlencode(fields | {"sv": _VERSION, "sr": "c", "sig": base64.b64encode(digest).decode()})
