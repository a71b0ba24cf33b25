"""Object stores that scenarios use, and the ``remote`` section of a configuration for each."""

from dataclasses import dataclass
from typing import Any

from tests.scenarios.installation import Settings
from tests.services.faulty_path import FaultyPath
from tests.services.s3 import S3Admin, S3Service


@dataclass(frozen=True, slots=True)
class SpoilableS3:
    """Empty bucket of the real S3 server behind a path that a test can spoil."""

    service: S3Service
    bucket: str
    admin: S3Admin
    path: FaultyPath

    def remote(self, **s3_settings: Any) -> Settings:  # noqa: ANN401 - any value of YAML
        """Return the ``remote`` section that leads through the path."""
        section = s3_section(self.service, self.bucket, endpoint_url=self.path.endpoint_url)
        return section | {"s3": section["s3"] | s3_settings}


def s3_section(service: S3Service, bucket: str, *, endpoint_url: str | None = None) -> Settings:
    """Return the ``remote`` section for a bucket of the real S3 server, through another endpoint if given."""
    return {
        "backend": "s3",
        "key_prefix": "tier",
        "s3": {
            "bucket": bucket,
            "endpoint_url": endpoint_url or service.endpoint_url,
            "region": service.region,
            "path_style": True,
            "access_key_id": service.access_key_id,
            "secret_access_key": service.secret_access_key,
            "connect_timeout": "2s",
            "read_timeout": "5s",
        },
        "retry": {"attempts": 2, "backoff": "50ms", "max_backoff": "200ms"},
    }
