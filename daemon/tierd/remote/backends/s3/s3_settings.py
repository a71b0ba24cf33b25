"""Settings of a client of S3: the bucket, the access key, and the way to the store."""

from dataclasses import dataclass, field
from pathlib import Path

from tierd.remote.backends.client_settings import HttpTimeouts


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
