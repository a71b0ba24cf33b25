import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.bodies import content_of, file_body
from tests.fakes.clock import FakeClock
from tests.services.s3 import S3Service
from tierd.config import FilesystemSettings, RemoteSettings, S3Settings
from tierd.remote import ObjectStoreCall, open_object_store


def filesystem(root: Path) -> RemoteSettings:
    return RemoteSettings(backend="filesystem", filesystem=FilesystemSettings(path=root))


async def test_a_filesystem_tier_stores_observed_and_paced(tmp_path: Path) -> None:
    clock, calls = FakeClock(), list[ObjectStoreCall]()
    store = open_object_store(
        filesystem(tmp_path / "tier"), clock=clock, max_bytes_per_second=1 << 20, on_call=calls.append
    )
    await store.put("key", file_body(tmp_path / "segment", content_of(3 << 20)))
    assert len(await store.get("key")) == 3 << 20
    assert [(call.operation, call.outcome, call.size_bytes) for call in calls] == [
        ("put", "ok", 3 << 20),
        ("get", "ok", 3 << 20),
    ]
    assert clock.sleeps_s == pytest.approx([1.0, 1.0])
    await store.close()


@pytest.mark.service("s3")
async def test_an_s3_tier_is_opened_with_its_settings(s3_service: S3Service, s3_bucket: str) -> None:
    s3 = S3Settings.model_validate(
        {
            "bucket": s3_bucket,
            "endpoint_url": s3_service.endpoint_url,
            "region": s3_service.region,
            "access_key_id": s3_service.access_key_id,
            "secret_access_key": s3_service.secret_access_key,
            "path_style": True,
        }
    )
    store = open_object_store(RemoteSettings(backend="s3", s3=s3))
    await store.check()
    await store.put("key", b"content")
    assert await store.get("key") == b"content"
    await store.close()


def test_a_backend_that_is_not_configured_is_not_loaded() -> None:
    script = "import sys, tierd.remote; sys.exit('aiobotocore' in sys.modules or 'botocore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
