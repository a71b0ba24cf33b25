"""Settings to a wrapped backend; a backend's libraries are loaded only when it is configured."""

from collections.abc import Callable

from pydantic import SecretStr

from tierd.clock import Clock, SystemClock
from tierd.config import RemoteSettings, S3Settings
from tierd.errors import TierError
from tierd.remote.deadlines import Deadlines
from tierd.remote.limited import ByteRate, LimitedObjectStore
from tierd.remote.object_store import ObjectStore
from tierd.remote.observed import ObjectStoreCall, ObservedObjectStore
from tierd.remote.retrying import Backoff, Retry, RetryingObjectStore

_MAX_CALLS = 32  # what 2,000 partitions may ask of one store at a time


def open_object_store(
    settings: RemoteSettings,
    *,
    clock: Clock | None = None,
    max_bytes_per_second: int | None = None,
    on_call: Callable[[ObjectStoreCall], None] | None = None,
    on_retry: Callable[[str, TierError], None] | None = None,
) -> ObjectStore:
    """Return observed(retrying(limited(backend))). Nothing is connected before the first call.

    Args:
        settings: of the remote room.
        clock: for waits and durations; the system's by default.
        max_bytes_per_second: of all uploads together; None is unlimited.
        on_call: told of every call when it has ended, repetitions included in it.
        on_retry: told of every failure that is about to be repeated: the operation, and why.
    """
    clock = clock or SystemClock()
    backoff = Backoff(
        base_s=settings.retry.backoff_s, cap_s=settings.retry.max_backoff_s, attempts=settings.retry.attempts
    )
    retry = Retry(clock=clock, backoff=backoff, on_retry=on_retry)
    rate = ByteRate(max_bytes_per_second, clock=clock) if max_bytes_per_second else None
    backend = _open_backend(settings, retry)
    limited = LimitedObjectStore(backend, deadlines=Deadlines(), max_calls=_MAX_CALLS, upload_rate=rate)
    store: ObjectStore = RetryingObjectStore(limited, retry)
    return ObservedObjectStore(store, on_call=on_call, clock=clock) if on_call else store


def _open_backend(settings: RemoteSettings, retry: Retry) -> ObjectStore:
    if settings.backend == "filesystem":
        from tierd.remote.backends.filesystem import FilesystemObjectStore  # noqa: PLC0415 - only when configured

        assert settings.filesystem is not None, "the schema asks for the section of the backend"
        return FilesystemObjectStore(settings.filesystem.path)
    assert settings.s3 is not None, "the schema asks for the section of the backend"
    return _open_s3(settings.s3, retry)


def _open_s3(settings: S3Settings, retry: Retry) -> ObjectStore:
    from tierd.remote.backends.s3 import S3ObjectStore  # noqa: PLC0415 - aiobotocore costs 0.3 s and 30 MB to load

    return S3ObjectStore(
        bucket=settings.bucket,
        endpoint_url=settings.endpoint_url,
        region=settings.region,
        access_key_id=_revealed(settings.access_key_id),
        secret_access_key=_revealed(settings.secret_access_key),
        part_size=settings.part_size_bytes,
        max_concurrency=settings.max_concurrency,
        path_style=settings.path_style,
        storage_class=settings.storage_class,
        ca_file=settings.ca_file,
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
        retry=retry,
    )


def _revealed(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None
