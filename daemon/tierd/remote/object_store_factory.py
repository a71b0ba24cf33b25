"""open_object_store: the configured backend with its wrappers; libraries of other backends are not loaded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pydantic import SecretStr

from tierd.backoff import Backoff
from tierd.clock import Clock, SystemClock
from tierd.config import OBJECT_STORE, AzureSettings, GcsSettings, RemoteSettings, S3Settings, secrets_of
from tierd.errors import RemoteStorageError, TierError, install_extra
from tierd.masking import Masking
from tierd.remote.backends.client_settings import HttpTimeouts, PartLimits
from tierd.remote.deadlines import Deadlines
from tierd.remote.limited import ByteRate, LimitedObjectStore
from tierd.remote.object_store import ObjectStore
from tierd.remote.object_store_connector import open_plugged
from tierd.remote.observed import ObjectStoreCall, ObservedObjectStore
from tierd.remote.retrying import Retry, RetryingObjectStore
from tierd.remote.segments.segment_storage import SegmentStorage
from tierd.remote.transform.transform import Transform

_MAX_CALLS = 32  # what 2,000 partitions may ask of one store at a time


def open_object_store(
    settings: RemoteSettings,
    *,
    clock: Clock | None = None,
    max_bytes_per_second: int | None = None,
    on_call: Callable[[ObjectStoreCall], None] | None = None,
    on_attempt: Callable[[ObjectStoreCall], None] | None = None,
    on_retry: Callable[[str, TierError], None] | None = None,
) -> ObjectStore:
    """Return observed(retrying(limited(backend))). Nothing is connected before the first call.

    Args:
        settings: of the remote room.
        clock: for waits and durations; the system's by default.
        max_bytes_per_second: of all uploads together; None is unlimited.
        on_call: called for every call when it has ended, with its repetitions.
        on_attempt: called for every attempt at a call, each repetition by itself, and for every attempt at a request
            that a call repeats by itself: a part, the completion and the abort of an upload.
        on_retry: called for every failure that is about to be repeated, with the operation and the failure.

    Raises:
        RemoteStorageError: the library of the backend is not installed, or a setting cannot be used.
    """
    clock = clock or SystemClock()
    backoff = Backoff(base_s=settings.retry.backoff_s, cap_s=settings.retry.max_backoff_s)
    retry = Retry(
        clock=clock, backoff=backoff, attempts=settings.retry.attempts, on_retry=on_retry, on_request=on_attempt
    )
    rate = ByteRate(max_bytes_per_second, clock=clock) if max_bytes_per_second else None
    backend = _open_backend(settings, retry)
    store: ObjectStore = LimitedObjectStore(
        backend,
        deadlines=Deadlines(),
        max_calls=_MAX_CALLS,
        upload_rate=rate,
        masking=Masking(*secrets_of(settings.plugin)) if settings.plugin is not None else None,
    )
    if on_attempt:
        store = ObservedObjectStore(store, on_call=on_attempt, clock=clock)
    store = RetryingObjectStore(store, retry)
    return ObservedObjectStore(store, on_call=on_call, clock=clock) if on_call else store


def segment_storages(
    settings: RemoteSettings, store: ObjectStore, transform: Transform, *, cluster_id: str, broker_id: int
) -> partial[SegmentStorage]:
    """Return a maker of segment storages over ``store``, which takes the arguments of ranged reads."""
    return partial(
        SegmentStorage,
        store,
        cluster_id=cluster_id,
        broker_id=broker_id,
        key_prefix=settings.key_prefix,
        chunk_size=settings.chunk_size_bytes,
        transform=transform,
    )


def _open_backend(settings: RemoteSettings, retry: Retry) -> ObjectStore:
    if settings.backend == "filesystem":
        from tierd.remote.backends.files import FilesystemObjectStore  # noqa: PLC0415 - only when configured

        assert settings.filesystem is not None, "the schema asks for the section of the backend"
        return FilesystemObjectStore(settings.filesystem.path)
    if settings.backend == "s3":
        assert settings.s3 is not None, "the schema asks for the section of the backend"
        return _open_s3(settings.s3, retry, key_prefix=settings.key_prefix)
    if settings.backend not in OBJECT_STORE.built_in:
        return open_plugged(settings)
    with _extra_installed(settings.backend):
        if settings.backend == "gcs":
            assert settings.gcs is not None, "the schema asks for the section of the backend"
            return _open_gcs(settings.gcs, retry)
        assert settings.azure is not None, "the schema asks for the section of the backend"
        return _open_azure(settings.azure, retry)


def _open_s3(settings: S3Settings, retry: Retry, *, key_prefix: str) -> ObjectStore:
    # Imported here because aiobotocore costs 0.3 s and 30 MB to load.
    from tierd.remote.backends.s3 import (  # noqa: PLC0415
        ObjectOptions,
        S3Bucket,
        S3Keys,
        S3Network,
        S3ObjectStore,
        customer_key_of,
    )

    sse = settings.sse
    return S3ObjectStore(
        S3Bucket(
            name=settings.bucket,
            endpoint_url=settings.endpoint_url,
            region=settings.region,
            path_style=settings.path_style,
        ),
        keys=S3Keys(
            access_key_id=_revealed(settings.access_key_id),
            secret_access_key=_revealed(settings.secret_access_key),
            session_token=_revealed(settings.session_token),
        ),
        network=S3Network(
            timeouts=HttpTimeouts(connect_s=settings.connect_timeout_s, read_s=settings.read_timeout_s),
            proxy_url=_revealed(settings.proxy_url),
            ca_file=settings.ca_file,
        ),
        parts=PartLimits(part_size=settings.part_size_bytes, max_concurrency=settings.max_concurrency),
        options=ObjectOptions(
            storage_class=settings.storage_class,
            encryption=sse.type,
            kms_key_id=sse.kms_key_id,
            customer_key=customer_key_of(sse.customer_key.get_secret_value()) if sse.customer_key else None,
            tags=settings.tags,
        ),
        check_prefix=f"{key_prefix}/" if key_prefix else "",
        retry=retry,
    )


def _open_gcs(settings: GcsSettings, retry: Retry) -> ObjectStore:
    from tierd.remote.backends.gcs import GcsObjectStore  # noqa: PLC0415 - of an extra

    return GcsObjectStore(
        settings.bucket,
        endpoint_url=settings.endpoint_url,
        credentials_file=settings.credentials_file,
        timeouts=HttpTimeouts(connect_s=settings.connect_timeout_s, read_s=settings.read_timeout_s),
        retry=retry,
    )


def _open_azure(settings: AzureSettings, retry: Retry) -> ObjectStore:
    from tierd.remote.backends.azure import AzureContainer, AzureCredentials, AzureObjectStore  # noqa: PLC0415

    return AzureObjectStore(
        AzureContainer(name=settings.container, account=settings.account, endpoint_url=settings.endpoint_url),
        credentials=AzureCredentials(
            account_key=_revealed(settings.account_key), sas_token=_revealed(settings.sas_token)
        ),
        timeouts=HttpTimeouts(connect_s=settings.connect_timeout_s, read_s=settings.read_timeout_s),
        retry=retry,
    )


@contextmanager
def _extra_installed(extra: str) -> Iterator[None]:
    """Translate the absence of a backend's library into the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "tierd":
            raise
        raise RemoteStorageError(
            f"remote.backend {extra} needs the Python package {error.name}, which is not installed",
            remedy=install_extra(extra),
        ) from error


def _revealed(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None
