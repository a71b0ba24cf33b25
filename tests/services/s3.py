"""What tests need around a real S3 server: its address, buckets, and a proxy that spoils the connection to it."""

import json
import urllib.request
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast
from uuid import uuid4

import botocore.config
import botocore.session

from tests.services.services import Services


@dataclass(frozen=True, slots=True)
class S3Service:
    """A running S3 server. ``services`` can kill, freeze and restart it under the name ``s3``."""

    endpoint_url: str
    region: str
    access_key_id: str
    secret_access_key: str
    services: Services


class _AnyOperation(Protocol):
    """botocore makes its methods at run time, so the type checker knows only this one, by our word."""

    def _make_api_call(self, operation: str, parameters: dict[str, object]) -> dict[str, Any]: ...

    def close(self) -> None: ...


class S3Admin:
    """A plain, blocking S3 client: makes buckets, and looks behind the back of the code under test."""

    def __init__(self, service: S3Service) -> None:
        client = botocore.session.get_session().create_client(
            "s3",
            region_name=service.region,
            endpoint_url=service.endpoint_url,
            aws_access_key_id=service.access_key_id,
            aws_secret_access_key=service.secret_access_key,
            config=botocore.config.Config(s3={"addressing_style": "path"}),
        )
        self._client = cast("_AnyOperation", client)

    def create_bucket(self) -> str:
        """Make an empty bucket with a fresh name."""
        bucket = f"tierd-{uuid4().hex}"
        self._call("CreateBucket", Bucket=bucket)
        return bucket

    def keys(self, bucket: str) -> list[str]:
        """Every visible key, ascending."""
        return [str(item["Key"]) for item in self._call("ListObjectsV2", Bucket=bucket).get("Contents", [])]

    def read(self, bucket: str, key: str) -> bytes:
        """The bytes of one object."""
        body: bytes = self._call("GetObject", Bucket=bucket, Key=key)["Body"].read()
        return body

    def overwrite(self, bucket: str, key: str, content: bytes) -> None:
        """Put ``content`` whatever is there."""
        self._call("PutObject", Bucket=bucket, Key=key, Body=content)

    def begin_upload(self, bucket: str, key: str) -> str:
        """Begin a multipart upload and leave it; return its id."""
        upload_id: str = self._call("CreateMultipartUpload", Bucket=bucket, Key=key)["UploadId"]
        return upload_id

    def unfinished_uploads(self, bucket: str) -> list[str]:
        """Keys of the multipart uploads that were begun and never ended."""
        return [str(item["Key"]) for item in self._call("ListMultipartUploads", Bucket=bucket).get("Uploads", [])]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _call(self, operation: str, **parameters: object) -> dict[str, Any]:
        return self._client._make_api_call(operation, parameters)


class FaultyPath:
    """One proxied path to a server; ``endpoint_url`` is what a client must be given, for it signs the host."""

    def __init__(self, control_url: str, upstream_url: str) -> None:
        self._control_url = control_url
        self.name = f"path-{uuid4().hex[:12]}"
        made = self._call(
            "POST",
            "/proxies",
            {
                "name": self.name,
                "listen": "127.0.0.1:0",
                "upstream": upstream_url.removeprefix("http://"),
                "enabled": True,
            },
        )
        self._listen = str(made["listen"])
        self.endpoint_url = f"http://{self._listen}"

    def add(
        self,
        kind: str,
        stream: Literal["upstream", "downstream"] = "downstream",
        **attributes: int,
    ) -> None:
        """Add a toxic, for example ``add("limit_data", "downstream", bytes=30)``."""
        toxic = {"name": f"{kind}-{stream}", "type": kind, "stream": stream, "attributes": attributes}
        self._call("POST", f"/proxies/{self.name}/toxics", toxic)

    def remove(self, kind: str, stream: Literal["upstream", "downstream"] = "downstream") -> None:
        """Take a toxic away again."""
        self._call("DELETE", f"/proxies/{self.name}/toxics/{kind}-{stream}")

    def disable(self) -> None:
        """Refuse connections and cut those that are open."""
        self._set_enabled(enabled=False)

    def enable(self) -> None:
        """Accept connections again, on the same port."""
        self._set_enabled(enabled=True)

    def delete(self) -> None:
        """Remove the path."""
        self._call("DELETE", f"/proxies/{self.name}")

    def _set_enabled(self, *, enabled: bool) -> None:
        self._call("POST", f"/proxies/{self.name}", {"listen": self._listen, "enabled": enabled})

    def _call(self, method: str, path: str, body: object | None = None) -> dict[str, object]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._control_url + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=5) as reply:
            answer: dict[str, object] = json.loads(reply.read() or b"{}")
        return answer
