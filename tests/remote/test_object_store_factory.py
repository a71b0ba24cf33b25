import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.remote.backends.s3.scripted_s3 import Answer, scripted_s3
from tests.services.azure import AzureService
from tests.services.gcs import GcsService
from tests.services.s3 import S3Service
from tierd.config import RemoteSettings, S3Settings
from tierd.config.sections.remote_settings import FilesystemSettings
from tierd.errors import RemoteStorageError, install_extra
from tierd.remote import ObjectStoreCall, open_object_store
from tierd.testing import content_of, file_body


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
    script = (
        "import sys; from tierd.remote import *; sys.exit('aiobotocore' in sys.modules or 'botocore' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.service("gcs")
async def test_a_gcs_tier_is_opened_with_its_settings(gcs_service: GcsService, gcs_bucket: str) -> None:
    gcs = {"bucket": gcs_bucket, "endpoint_url": gcs_service.endpoint_url}
    store = open_object_store(RemoteSettings.model_validate({"backend": "gcs", "gcs": gcs}))
    await store.put("key", b"content")
    assert await store.get("key") == b"content"
    await store.close()


@pytest.mark.service("azure")
async def test_an_azure_tier_is_opened_with_its_settings(azure_service: AzureService, azure_container: str) -> None:
    azure = {
        "container": azure_container,
        "account": azure_service.account,
        "account_key": azure_service.account_key,
        "endpoint_url": azure_service.endpoint_url,
    }
    store = open_object_store(RemoteSettings.model_validate({"backend": "azure", "azure": azure}))
    await store.put("key", b"content")
    assert await store.get("key") == b"content"
    await store.close()


@pytest.mark.parametrize(("backend", "package"), [("gcs", "gcloud.aio.auth"), ("azure", "obstore")])
def test_a_missing_package_is_named_with_its_extra(backend: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    section = {"gcs": {"bucket": "b"}, "azure": {"container": "c", "account": "a"}}[backend]
    settings = RemoteSettings.model_validate({"backend": backend, backend: section})
    for name in [each for each in sys.modules if each.startswith(f"tierd.remote.backends.{backend}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RemoteStorageError, match=package) as refused:
        open_object_store(settings)
    assert refused.value.remedy == install_extra(backend)


async def test_an_s3_tier_encrypts_and_tags_as_it_is_told() -> None:
    async with scripted_s3() as script:
        script.answer("put", Answer(200, "", {"ETag": '"tag"'}))
        s3 = {
            "bucket": "b",
            "endpoint_url": script.endpoint_url,
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
            "session_token": "token",
            "path_style": True,
            "sse": {"type": "kms", "kms_key_id": "k"},
            "tags": {"team": "data"},
        }
        store = open_object_store(RemoteSettings.model_validate({"backend": "s3", "s3": s3}))
        await store.put("key", b"content")
        await store.close()
        headers = script.headers["put"][0]
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "k"
        assert headers["x-amz-tagging"] == "team=data"
        assert headers["x-amz-security-token"] == "token"
