"""Settings of a client of S3: the bucket, the access key, the way to the store, and what is asked for new objects."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlencode, urlsplit

from tierd.errors import RemoteStorageError
from tierd.remote.backends.client_settings import HttpTimeouts

StoreEncryption: TypeAlias = Literal["none", "s3", "kms", "c"]

_CUSTOMER_KEY_BYTES = 32
_MAX_TAGS = 10  # S3's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Bucket:
    """A bucket, which must exist, and its place.

    Attributes:
        endpoint_url: address of a store that is not AWS.
        region: region of the bucket; None: the region that the AWS environment names.
        path_style: put the bucket into the path of the URL, not into the host name.
    """

    name: str
    endpoint_url: str | None = None
    region: str | None = None
    path_style: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Keys:
    """An access key as it is configured.

    Without ``access_key_id`` and ``secret_access_key`` the client library finds credentials (environment, files,
    instance role) and renews them.

    Attributes:
        session_token: belongs to temporary keys.
    """

    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Network:
    """The way to the store.

    Attributes:
        proxy_url: address of the proxy to go through, which may hold a password; None: as the environment says.
        ca_file: certificates to trust instead of the system's.
    """

    timeouts: HttpTimeouts = field(default_factory=HttpTimeouts)
    proxy_url: str | None = field(default=None, repr=False)
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectOptions:
    """Options of the objects in a bucket.

    Attributes:
        storage_class: of logs; the objects beside them are small and read more often.
        encryption: by the store: ``s3`` with its own keys, ``kms`` with a named key, ``c`` with a key in every request;
            ``none`` leaves it to the bucket.
        kms_key_id: of ``kms``; None takes the account's default key.
        customer_key: 32 bytes, of ``c``.
        tags: of every object, for lifecycle rules and cost reports.
    """

    storage_class: str | None = None
    encryption: StoreEncryption = "none"
    kms_key_id: str | None = None
    customer_key: bytes | None = field(default=None, repr=False)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.encryption == "c" and len(self.customer_key or b"") != _CUSTOMER_KEY_BYTES:
            raise ValueError(f"a customer key has {_CUSTOMER_KEY_BYTES} bytes, not {len(self.customer_key or b'')}")
        if len(self.tags) > _MAX_TAGS:
            raise ValueError(f"an object has at most {_MAX_TAGS} tags, not {len(self.tags)}")

    def creation(self, *, is_log: bool) -> dict[str, Any]:
        """Return arguments of the request that creates an object, or begins a multipart upload."""
        arguments: dict[str, Any] = {**self.access()}
        if self.storage_class and is_log:
            arguments["StorageClass"] = self.storage_class
        if self.tags:
            arguments["Tagging"] = urlencode(self.tags)
        if self.encryption == "s3":
            arguments["ServerSideEncryption"] = "AES256"
        if self.encryption == "kms":
            arguments["ServerSideEncryption"] = "aws:kms"
            if self.kms_key_id:
                arguments["SSEKMSKeyId"] = self.kms_key_id
        return arguments

    def access(self) -> dict[str, Any]:
        """Return arguments of requests that read or describe an object, or send its parts."""
        if self.encryption != "c":
            return {}
        return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": self.customer_key}  # the library encodes it

    def require_private_way(self, endpoint_url: str | None) -> None:
        """Refuse to send a customer key in the clear to another host.

        Raises:
            RemoteStorageError: the key would be sent in the clear.
        """
        address = urlsplit(endpoint_url or "https://")
        if self.encryption == "c" and address.scheme != "https" and not _is_this_host(address.hostname or ""):
            raise RemoteStorageError(
                f"remote.s3.sse type c sends its key with every request, and {endpoint_url} is not encrypted",
                remedy="give remote.s3.endpoint_url as https://, or choose another remote.s3.sse",
            )


def customer_key_of(text: str) -> bytes:
    """Decode a customer key, 32 bytes in base64.

    Raises:
        ValueError: the text is no such key; the message does not show the text.
    """
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise ValueError("a customer key is 32 bytes in base64") from None
    if len(key) != _CUSTOMER_KEY_BYTES:
        raise ValueError(f"a customer key is 32 bytes in base64; this one has {len(key)}")
    return key


def _is_this_host(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
