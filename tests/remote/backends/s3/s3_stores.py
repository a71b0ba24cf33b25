"""Stores on S3 for the tests of this room, from flat settings as most tests change one of them."""

from dataclasses import fields
from typing import Any

from tierd.remote.backends.client_settings import HttpTimeouts, PartLimits
from tierd.remote.backends.s3 import S3Bucket, S3Keys, S3Network, S3ObjectStore


def s3_store(
    *,
    bucket: str,
    part_size: int = 5 << 20,
    max_concurrency: int = 4,
    read_timeout_s: float = 60.0,
    **settings: Any,  # noqa: ANN401 - of any type
) -> S3ObjectStore:
    """Return a store; ``settings`` are fields of ``S3Bucket``, ``S3Keys`` and ``S3Network``, and its own arguments."""

    def taken(record: type[Any]) -> dict[str, Any]:
        return {each.name: settings.pop(each.name) for each in fields(record) if each.name in settings}

    return S3ObjectStore(
        S3Bucket(name=bucket, **taken(S3Bucket)),
        keys=S3Keys(**taken(S3Keys)),
        network=S3Network(timeouts=HttpTimeouts(read_s=read_timeout_s), **taken(S3Network)),
        parts=PartLimits(part_size=part_size, max_concurrency=max_concurrency),
        **settings,
    )
