"""S3Connection: one client of one bucket, connected at its first use, and its errors as errors of tierd."""

import asyncio
import base64
import ssl
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, cast

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession, get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from tierd.errors import RemoteAccessError, RemoteStorageError, RetriableRemoteStorageError
from tierd.masking import Masking
from tierd.remote.backends.answers import no_answer
from tierd.remote.backends.http_attempts import cutting_abandoned, without_repetition
from tierd.remote.backends.s3.s3_errors import S3Refusal, error_for
from tierd.remote.backends.s3.s3_settings import S3Bucket, S3Keys, S3Network

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

_UNREACHABLE = (
    BotoConnectionError,
    HTTPClientError,
    ResponseParserError,  # a proxy's page instead of an answer of S3, or half an answer
    aiohttp.ClientError,  # from reading a body
    ConnectionError,
    TimeoutError,
)


class S3Connection:
    """A client whose own retries and redirects are off."""

    def __init__(
        self,
        bucket: S3Bucket,
        *,
        keys: S3Keys,
        network: S3Network,
        max_connections: int,
        customer_key: bytes | None = None,
    ) -> None:
        """Prepare to connect; ``customer_key`` is masked in messages."""
        self.bucket = bucket.name
        self.masking = Masking(
            keys.access_key_id,
            keys.secret_access_key,
            keys.session_token,
            network.proxy_url,
            base64.b64encode(customer_key).decode() if customer_key else None,
        )
        proxy_url, self._ca_file = network.proxy_url, network.ca_file
        self._resources = AsyncExitStack()
        self._connecting = asyncio.Lock()
        self._connected: S3Client | None = None
        self._client_arguments: dict[str, Any] = {
            "endpoint_url": bucket.endpoint_url,
            "region_name": bucket.region,
            "aws_access_key_id": keys.access_key_id,
            "aws_secret_access_key": keys.secret_access_key,
            "aws_session_token": keys.session_token,
            "verify": str(network.ca_file) if network.ca_file else None,
            "config": AioConfig(
                connect_timeout=network.timeouts.connect_s,
                read_timeout=network.timeouts.read_s,
                max_pool_connections=max_connections,
                proxies={"http": proxy_url, "https": proxy_url} if proxy_url else None,
                retries={"total_max_attempts": 1},
                http_session_cls=OneAttemptSession,
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={"addressing_style": "path" if bucket.path_style else "auto", "payload_signing_enabled": False},
            ),
        }

    async def client(self) -> "S3Client":
        """Return the client, connecting at the first call.

        Raises:
            RemoteAccessError: the certificates to trust cannot be loaded.
            RemoteStorageError: the settings are not usable.
        """
        if self._connected is None:
            async with self._connecting:
                if self._connected is None:
                    await self._require_certificates()
                    with self.translated("connect", ""):
                        context = one_attempt_session().create_client("s3", **self._client_arguments)
                        client = await self._resources.enter_async_context(cast("_Connecting", context))
                    client.meta.events.register("before-call.s3", _never_redirect)
                    self._connected = client
        return self._connected

    async def _require_certificates(self) -> None:
        """Load the certificates once as a check: the library reports a wrong file as a server that does not answer."""
        if self._ca_file is None:
            return
        try:
            await asyncio.to_thread(ssl.create_default_context, cafile=str(self._ca_file))
        except OSError as error:  # a file without a certificate too
            raise RemoteAccessError(
                f"certificates {self._ca_file}: {error.strerror or 'cannot be used'}",
                remedy="correct remote.s3.ca_file",
            ) from self.masking.error(error)

    async def close(self) -> None:
        """Release the connections; the next call of ``client`` would connect again."""
        async with self._connecting:
            self._connected = None
            await self._resources.aclose()

    @contextmanager
    def translated(self, operation: str, key: str) -> Iterator[None]:
        """Translate the client library's errors, and those of the libraries below it, into errors of tierd."""
        with self.masking.sealing(), self._translated(operation, key):
            yield

    @contextmanager
    def _translated(self, operation: str, key: str) -> Iterator[None]:
        subject = f"{operation} s3://{self.bucket}/{key}"
        try:
            yield
        except ClientError as error:
            raise error_for(self._refusal(operation, key, error), now=datetime.now(UTC)) from self.masking.error(error)
        except (NoCredentialsError, PartialCredentialsError) as error:
            failure = self.masking.error(error)
            raise RemoteAccessError(
                f"{subject}: no credentials: {failure}",
                remedy="set remote.s3.access_key_id and secret_access_key, or give this host a role",
            ) from failure
        except (CredentialRetrievalError, MetadataRetrievalError) as error:
            failure = self.masking.error(error)
            raise RetriableRemoteStorageError(
                f"{subject}: this host gets no credentials from their provider: {failure}",
                remedy="it is tried again; look at the role of this host, or set remote.s3.access_key_id",
            ) from failure
        except SSLError as error:
            raise RemoteAccessError(
                f"{subject}: {self.masking.error(_innermost(error)).named}",
                remedy="set remote.s3.ca_file to the authority that signed the store's certificate",
            ) from self.masking.error(error)
        except _UNREACHABLE as error:
            raise no_answer(
                f"{subject}: {self._endpoint} does not answer: {self.masking.error(_innermost(error)).named}"
            ) from self.masking.error(error)
        except (BotoCoreError, ValueError) as error:
            failure = self.masking.error(error)
            raise RemoteStorageError(
                f"{subject}: {failure}", remedy="correct the settings below remote.s3"
            ) from failure

    @property
    def _endpoint(self) -> str:
        if self._connected is not None:
            return self._connected.meta.endpoint_url
        return str(self._client_arguments["endpoint_url"] or "S3")

    def _refusal(self, operation: str, key: str, error: ClientError) -> S3Refusal:
        fields = {name: self.masking.text(str(value)) for name, value in error.response.get("Error", {}).items()}
        metadata = error.response.get("ResponseMetadata", {})
        region = self._connected.meta.region_name if self._connected else None
        return S3Refusal(
            operation=operation,
            bucket=self.bucket,
            key=key,
            endpoint=self._endpoint,
            region=region or "(none)",
            status=status_of(error),
            code=fields.pop("Code", ""),
            message=fields.pop("Message", ""),
            details=fields,
            headers={
                name.lower(): self.masking.text(str(value)) for name, value in metadata.get("HTTPHeaders", {}).items()
            },
        )


class _Connecting(Protocol):
    async def __aenter__(self) -> "S3Client": ...

    async def __aexit__(self, *exc: object) -> bool | None: ...


def status_of(error: ClientError) -> int:
    """Return the HTTP status of a refusal, 0 when it has none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _innermost(error: BaseException) -> BaseException:
    """Return the error of the library at the bottom; those above it mostly repeat the URL."""
    inner = getattr(error, "kwargs", {}).get("error")
    return inner if isinstance(inner, BaseException) else error


def _never_redirect(params: dict[str, Any], **_: object) -> None:
    # botocore follows the region that a refusal names. The streamed bodies could not be sent twice, and the operator
    # should correct the region. So this option makes botocore think that it has followed the region already.
    params.setdefault("context", {})["s3_redirect"] = {"redirected": True, "bucket": ""}


class OneAttemptSession(AIOHTTPSession):
    """HTTP connections of one client, each request an attempt."""

    async def _create_connector(self, proxy_url: str | None) -> aiohttp.TCPConnector:
        return cutting_abandoned(await super()._create_connector(proxy_url))  # type: ignore[misc]  # not in the stubs

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        return without_repetition(await super()._get_session(proxy_url))  # type: ignore[misc]  # not in the stubs


def one_attempt_session() -> AioSession:
    """Return a session whose clients, those that fetch credentials included, do not repeat requests by themselves."""
    session = get_session()
    session.set_default_client_config(AioConfig(retries={"total_max_attempts": 1}, http_session_cls=OneAttemptSession))
    return session
