"""S3RangedReads: parts of objects through obstore, which takes less than half of aiobotocore's CPU for them.

A refused read is asked again through aiobotocore, whose refusals name their reason. Retries are off. Where the settings
ask for something that obstore does differently, all reads go through aiobotocore:

===========================  =======================================================================
certificates to trust        obstore adds them to the system's; ``ca_file`` means them alone. They do not matter
                             where neither the store nor the proxy is reached through TLS
customer keys (SSE-C)        the key would be held twice, and go through two libraries
keys of unusual characters   obstore's paths are not S3's keys; tierd's own keys are plain
===========================  =======================================================================
"""

import os
import re
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from tierd.masking import Masking
from tierd.model import ByteRange
from tierd.remote.backends.answers import busy, is_busy, no_answer
from tierd.remote.backends.s3.s3_connection import one_attempt_session
from tierd.remote.backends.s3.s3_settings import S3Bucket, S3Keys, S3Network

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential, S3Store

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_STATUS = re.compile(r"status code: (\d{3})")
_HOST_NAME_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")

# obstore asks again five minutes before the end. botocore renews credentials that end within ten minutes or more, so
# that those that it returns are good for longer than this.
_CREDENTIALS_KEPT = timedelta(minutes=8)
_REQUEST_LIMIT = timedelta(hours=1)  # obstore insists on a limit; tierd has its own deadlines


class StoreAddress(NamedTuple):
    """Address of a bucket, in obstore's terms: with ``is_virtual_hosted`` the URL names the bucket."""

    url: str
    is_virtual_hosted: bool


class S3RangedReads:
    """Ranged reads of one bucket, with the credentials that aiobotocore would use."""

    def __init__(self, bucket: S3Bucket, *, keys: S3Keys, network: S3Network, masking: Masking) -> None:
        """Prepare to read; ``masking`` hides secrets in the messages of obstore.

        The endpoint and the region of ``bucket`` are not used: aiobotocore resolves them, and ``get`` takes them.
        """
        self._bucket = bucket.name
        self._masking = masking
        self._path_style = bucket.path_style
        self._credentials = _Credentials(keys)
        self._network = network
        self._store: S3Store | None = None

    async def get(self, key: str, byte_range: ByteRange, *, endpoint_url: str, region: str) -> bytes | None:
        """Return the bytes of ``byte_range`` clipped at the object's end; None: ask aiobotocore.

        Args:
            key: of the object.
            byte_range: the bytes to read.
            endpoint_url: of the store, as aiobotocore resolved it.
            region: likewise.

        Raises:
            RetriableRemoteStorageError: the store is busy, or does not answer.
            botocore.exceptions.BotoCoreError, ClientError: the credentials' provider failed; no other one is asked.
        """
        if not _PLAIN_KEY.fullmatch(key):
            return None
        import obstore  # noqa: PLC0415 - it costs 20 ms to load, and only reading needs it

        with self._masking.sealing():
            if self._store is None:
                self._store = self._open(endpoint_url, region)
            try:
                found = await obstore.get_range_async(self._store, key, start=byte_range.start, length=byte_range.size)
            except FileNotFoundError:
                return None  # the bucket or the object: aiobotocore tells which
            except obstore.exceptions.BaseError as error:
                self._raise_unless_refused(key, endpoint_url, error)
                found = None
        if found is None:
            self._credentials.raise_failure()
            return None
        return bytes(found)

    def _open(self, endpoint_url: str, region: str) -> "S3Store":
        from obstore.store import S3Store  # noqa: PLC0415 - as above

        address = store_address(endpoint_url, self._bucket, path_style=self._path_style)
        read_timeout = timedelta(seconds=self._network.timeouts.read_s)
        options: ClientConfig = {
            "allow_http": address.url.startswith("http:"),
            "connect_timeout": timedelta(seconds=self._network.timeouts.connect_s),
            "read_timeout": read_timeout,
            "timeout": _REQUEST_LIMIT,
        }
        if self._network.proxy_url:
            options["proxy_url"] = self._network.proxy_url
        return S3Store(
            self._bucket,
            config={
                "endpoint": address.url,
                "region": region,
                "virtual_hosted_style_request": address.is_virtual_hosted,
                "skip_signature": False,
            },
            client_options=options,
            retry_config={"max_retries": 0, "retry_timeout": read_timeout},
            credential_provider=self._credentials,
        )

    def _raise_unless_refused(self, key: str, endpoint_url: str, error: Exception) -> None:
        """Raise when the store is busy or gone; return when it refuses us, or our credentials are at fault."""
        from obstore.exceptions import UnauthenticatedError  # noqa: PLC0415 - as above

        failure = self._masking.error(error)
        cause = failure.text.partition("\n")[0]
        status = _STATUS.search(cause)
        subject = f"get s3://{self._bucket}/{key}"
        if status is None:
            if isinstance(error, UnauthenticatedError):
                return
            raise no_answer(f"{subject}: {endpoint_url} does not answer: {cause}") from failure
        if is_busy(int(status[1])):
            raise busy(f"{subject}: {cause}") from failure


class _Credentials:
    """Provider of credentials for obstore: those of the configuration, or of botocore's chain."""

    def __init__(self, keys: S3Keys) -> None:
        self._keys = keys
        self._session = one_attempt_session()
        self._failure: Exception | None = None

    async def __call__(self) -> "S3Credential":
        """Return credentials that are good until ``expires_at``, at least.

        Raises:
            NoCredentialsError: there are none.
        """
        key_id, secret = self._keys.access_key_id, self._keys.secret_access_key
        if key_id is not None and secret is not None:
            token = self._keys.session_token
            return {"access_key_id": key_id, "secret_access_key": secret, "token": token, "expires_at": None}
        self._failure = None
        try:
            found = await self._session.get_credentials()
            if found is None:
                raise NoCredentialsError
            frozen = await found.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            self._failure = error
            raise
        if not (frozen.access_key and frozen.secret_key):
            raise NoCredentialsError
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_KEPT,
        }

    def raise_failure(self) -> None:
        """Raise the failure of the last request for credentials, once; obstore hides it in an error of its own."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def can_read_ranges(*, endpoint_url: str | None, network: S3Network, has_customer_key: bool) -> bool:
    """Return True if obstore does what the settings and the environment say; ``endpoint_url`` None: that of AWS."""
    if has_customer_key:
        return False
    has_own_trust = network.ca_file is not None or bool(os.environ.get("AWS_CA_BUNDLE"))
    return not (has_own_trust and _uses_tls(endpoint_url, network))


def _uses_tls(endpoint_url: str | None, network: S3Network) -> bool:
    proxy_url = network.proxy_url or getproxies().get("http", "")
    return not (endpoint_url or "").lower().startswith("http:") or proxy_url.lower().startswith("https:")


def store_address(endpoint_url: str, bucket: str, *, path_style: bool) -> StoreAddress:
    """Return the address of botocore's ``auto`` addressing: by host name if the bucket's name can be part of one."""
    parts = urlsplit(endpoint_url)
    host = parts.hostname or ""
    if path_style or not _HOST_NAME_BUCKET.fullmatch(bucket) or _is_address(host) or "." not in host:
        return StoreAddress(endpoint_url.rstrip("/"), is_virtual_hosted=False)
    place = parts._replace(netloc=f"{bucket}.{parts.netloc}")
    return StoreAddress(place.geturl().rstrip("/"), is_virtual_hosted=True)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
