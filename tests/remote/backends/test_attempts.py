"""Number of attempts of each backend at a request that always fails: ``remote.retry.attempts``."""

import base64
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web

from tests.contracts.store_attempts import StoreAttempts
from tests.fakes.clock import FakeClock
from tests.fakes.failing_http import FailingHttp, failing_http
from tierd.config import RemoteSettings
from tierd.errors import RemoteStorageError
from tierd.model import ByteRange
from tierd.remote import open_object_store

_ACCOUNT_KEY = base64.b64encode(bytes(64)).decode()


class TestS3Attempts(StoreAttempts):
    """S3, through aiobotocore and, for ranges, obstore."""

    def settings(self, endpoint_url: str) -> dict[str, Any]:
        """Return settings with static keys, so that the library asks no other server."""
        s3 = {
            "bucket": "tier",
            "endpoint_url": endpoint_url,
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
            "path_style": True,
            "part_size": "16MiB",
            "read_timeout": "250ms",
        }
        return {"backend": "s3", "s3": s3}

    def takes_parts(self, server: FailingHttp, request: web.Request) -> web.Response | None:
        """Begin uploads, and take every part but the first."""
        del server
        if request.method == "POST" and "uploads" in request.query:
            body = "<InitiateMultipartUploadResult><UploadId>id-1</UploadId></InitiateMultipartUploadResult>"
            return web.Response(text=body, content_type="application/xml")
        if request.query.get("partNumber", "1") != "1":
            return web.Response(headers={"ETag": '"tag"'})
        return None

    def is_failed_part(self, request: str) -> bool:
        """Tell whether it is a request for part 1."""
        return "partNumber=1&" in f"{request}&"


@pytest.mark.parametrize("byte_range", [None, ByteRange(0, 9)])
async def test_credentials_that_s3_does_not_get_are_asked_for_once_an_attempt(
    byte_range: ByteRange | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("token")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    async with failing_http("reset") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint_url)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/tierd")
        s3 = {"bucket": "tier", "endpoint_url": "http://127.0.0.1:9", "region": "us-east-1", "path_style": True}
        remote = RemoteSettings.model_validate({"backend": "s3", "s3": s3, "retry": {"attempts": 1}})
        store = open_object_store(remote, clock=FakeClock())
        with pytest.raises(RemoteStorageError):
            await store.get("key", byte_range)
        await store.close()
        assert server.requests.total() == 1


class TestGcsAttempts(StoreAttempts):
    """Google Cloud Storage, through gcloud-aio-storage and, for parts, plain HTTP."""

    def settings(self, endpoint_url: str) -> dict[str, Any]:
        """Return settings of an emulator, which needs no token."""
        return {"backend": "gcs", "gcs": {"bucket": "tier", "endpoint_url": endpoint_url, "read_timeout": "250ms"}}

    def takes_parts(self, server: FailingHttp, request: web.Request) -> web.Response | None:
        """Begin uploads; parts go one after the other, so that the first keeps the others from coming."""
        if request.method == "POST" and request.query.get("uploadType") == "resumable":
            return web.Response(headers={"Location": f"{server.endpoint_url}/upload/session"})
        return None

    def is_failed_part(self, request: str) -> bool:
        """Tell whether it is a request of the upload."""
        return request == "PUT /upload/session"


class TestAzureAttempts(StoreAttempts):
    """Azure Blob Storage, through obstore and, for blocks, plain HTTP."""

    def settings(self, endpoint_url: str) -> dict[str, Any]:
        """Return settings with a key, so that the library asks no other server."""
        azure = {
            "container": "tier",
            "account": "account",
            "account_key": _ACCOUNT_KEY,
            "endpoint_url": f"{endpoint_url}/account",
            "read_timeout": "250ms",
        }
        return {"backend": "azure", "azure": azure}

    def takes_parts(self, server: FailingHttp, request: web.Request) -> web.Response | None:
        """Take every block but the first."""
        del server
        block_id = request.query.get("blockid")
        if block_id is not None and not _is_first(block_id):
            return web.Response(status=201)
        return None

    def is_failed_part(self, request: str) -> bool:
        """Tell whether it is a request for block 1."""
        _, found, rest = request.partition("blockid=")
        return bool(found) and _is_first(unquote(rest.partition("&")[0]))


def _is_first(block_id: str) -> bool:
    return base64.b64decode(block_id).endswith(b"-000001")
