"""GCS emulator for tests: its address, and buckets."""

import json
import urllib.request
from dataclasses import dataclass
from uuid import uuid4

from tests.services.services import Services


@dataclass(frozen=True, slots=True)
class GcsService:
    """Running emulator. ``services`` can kill, freeze and restart it under the name ``gcs``."""

    endpoint_url: str
    services: Services

    def create_bucket(self) -> str:
        """Make an empty bucket with a fresh name."""
        bucket = f"tierd-{uuid4().hex}"
        request = urllib.request.Request(
            f"{self.endpoint_url}/storage/v1/b?project=tierd",
            data=json.dumps({"name": bucket}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()
        return bucket
