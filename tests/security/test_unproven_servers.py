"""Servers in the place of a store or a metadata store whose certificate proves nothing: they receive no request."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services.certificates import Authority
from tierd.config import MetadataSettings, RemoteSettings
from tierd.errors import TierError
from tierd.metadata import open_metadata
from tierd.remote import open_object_store

SSL_REQUEST_BYTES = 8  # of PostgreSQL, before the TLS handshake
SECRET = "c2VjcmV0LW9mLXRpZXJk"


@dataclass(slots=True)
class Heard:
    """Connections of clients, and what they sent inside of TLS."""

    address: str = ""
    connections: int = 0
    content: bytes = b""


@asynccontextmanager
async def unproven_server(folder: Path, *, is_postgres: bool) -> AsyncIterator[Heard]:
    """Run a TLS server of this host; the authority of its certificate is in no client's list."""
    certificate = Authority(folder, "unknown").issue("server", hosts=("127.0.0.1", "localhost"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert_file, certificate.key_file)
    heard = Heard()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            if is_postgres:
                await reader.readexactly(SSL_REQUEST_BYTES)
                writer.write(b"S")
            await writer.start_tls(context)
            heard.content += await reader.read(1 << 16)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        heard.address = f"localhost:{server.sockets[0].getsockname()[1]}"
        yield heard


@pytest.mark.parametrize("backend", ["s3", "azure", "gcs"])
async def test_object_store_without_a_proven_certificate_gets_no_request(backend: str, tmp_path: Path) -> None:
    async with unproven_server(tmp_path, is_postgres=False) as heard:
        url = f"https://{heard.address}"
        sections: dict[str, dict[str, Any]] = {
            "s3": {"bucket": "tier", "endpoint_url": url, "region": "eu", "access_key_id": "k"},
            "azure": {"container": "tier", "account": "account", "endpoint_url": f"{url}/account"},
            "gcs": {"bucket": "tier", "endpoint_url": url},
        }
        secret = {"s3": {"secret_access_key": SECRET}, "azure": {"account_key": SECRET}, "gcs": {}}[backend]
        tree = {"backend": backend, backend: sections[backend] | secret, "retry": {"attempts": 1}}
        store = open_object_store(RemoteSettings.model_validate(tree))
        try:
            for call in (store.get("key"), store.put("key", b"content"), store.list_objects("")):
                with pytest.raises(TierError):
                    await call
        finally:
            await store.close()

    assert heard.connections > 0
    assert heard.content == b""


@pytest.mark.parametrize(
    ("backend", "key", "address"),
    [
        ("postgres", "dsn", "postgresql://tierd:{secret}@{address}/tierd?sslmode=verify-full&sslrootcert={known}"),
        ("redis", "url", "rediss://tierd:{secret}@{address}/0"),
    ],
)
async def test_metadata_store_without_a_proven_certificate_gets_no_password(
    backend: str, key: str, address: str, tmp_path: Path
) -> None:
    async with unproven_server(tmp_path, is_postgres=backend == "postgres") as heard:
        known = Authority(tmp_path, "known").ca_file
        section = {key: address.format(secret=SECRET, address=heard.address, known=known)}
        settings = MetadataSettings.model_validate({"backend": backend, "timeout": "5s", backend: section})
        with pytest.raises(TierError):
            await open_metadata(settings, sqlite_path=tmp_path / "none", read_only=False)

    assert heard.connections > 0
    assert heard.content == b""
