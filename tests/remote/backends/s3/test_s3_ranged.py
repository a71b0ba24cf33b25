"""S3RangedReads against a real S3 server; the contract of the whole store is in ``test_s3``."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.remote.backends.s3.s3_stores import s3_store
from tests.services.faulty_path import FaultyPath
from tests.services.s3 import S3Admin, S3Service
from tierd.errors import RemoteAccessError, RemoteResourceNotFoundError, RetriableRemoteStorageError
from tierd.masking import Masking
from tierd.model import ByteRange
from tierd.remote.backends.client_settings import HttpTimeouts
from tierd.remote.backends.s3 import S3Bucket, S3Keys, S3Network, S3ObjectStore
from tierd.remote.backends.s3.s3_ranged import (
    S3RangedReads,
    StoreAddress,
    _Credentials,
    can_read_ranges,
    store_address,
)
from tierd.testing import content_of

CONTENT = content_of(300_000)
MIDDLE = ByteRange(100_000, 199_999)


@pytest.mark.parametrize(
    ("endpoint", "bucket", "path_style", "expected"),
    [
        (
            "https://s3.eu-central-1.amazonaws.com",
            "tier",
            False,
            StoreAddress("https://tier.s3.eu-central-1.amazonaws.com", is_virtual_hosted=True),
        ),
        (
            "https://s3.example.com:9000/",
            "tier",
            False,
            StoreAddress("https://tier.s3.example.com:9000", is_virtual_hosted=True),
        ),
        ("https://s3.example.com", "tier", True, StoreAddress("https://s3.example.com", is_virtual_hosted=False)),
        ("https://s3.example.com", "my.tier", False, StoreAddress("https://s3.example.com", is_virtual_hosted=False)),
        ("http://127.0.0.1:9000", "tier", False, StoreAddress("http://127.0.0.1:9000", is_virtual_hosted=False)),
        ("http://[::1]:9000", "tier", False, StoreAddress("http://[::1]:9000", is_virtual_hosted=False)),
        ("http://localhost:9000", "tier", False, StoreAddress("http://localhost:9000", is_virtual_hosted=False)),
    ],
)
def test_address_of_the_bucket_is_that_of_the_other_library(
    endpoint: str, bucket: str, path_style: bool, expected: StoreAddress
) -> None:
    assert store_address(endpoint, bucket, path_style=path_style) == expected


OWN_TRUST = S3Network(ca_file=Path("/etc/certificates.pem"))
HTTPS_PROXY = S3Network(ca_file=Path("/etc/certificates.pem"), proxy_url="HTTPS://proxy.example.com")


@pytest.mark.parametrize(
    ("endpoint_url", "network", "has_customer_key", "expected"),
    [
        (None, S3Network(), False, True),
        (None, S3Network(), True, False),
        (None, OWN_TRUST, False, False),
        ("https://s3.example.com", OWN_TRUST, False, False),
        ("http://127.0.0.1:9000", OWN_TRUST, False, True),
        ("http://127.0.0.1:9000", OWN_TRUST, True, False),
        ("http://127.0.0.1:9000", HTTPS_PROXY, False, False),
    ],
)
def test_settings_that_obstore_lacks_leave_reads_to_the_other_library(
    monkeypatch: pytest.MonkeyPatch,
    endpoint_url: str | None,
    network: S3Network,
    has_customer_key: bool,
    expected: bool,
) -> None:
    for name in ("AWS_CA_BUNDLE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert can_read_ranges(endpoint_url=endpoint_url, network=network, has_customer_key=has_customer_key) is expected


def test_certificates_of_the_environment_matter_under_tls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CA_BUNDLE", "/etc/certificates.pem")
    asked = partial(can_read_ranges, network=S3Network(), has_customer_key=False)
    assert not asked(endpoint_url=None)
    assert not asked(endpoint_url="https://s3.example.com")
    assert asked(endpoint_url="http://127.0.0.1:9000")
    monkeypatch.setenv("http_proxy", "https://proxy.example.com")
    assert not asked(endpoint_url="http://127.0.0.1:9000")


class TestCredentials:
    async def test_configured_keys_do_not_expire(self) -> None:
        found = await _Credentials(S3Keys(access_key_id="key", secret_access_key="secret", session_token="token"))()
        assert (found["access_key_id"], found["secret_access_key"]) == ("key", "secret")
        assert found.get("token") == "token"
        assert found["expires_at"] is None

    async def test_keys_of_the_environment_are_asked_for_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
        found = await _Credentials(S3Keys())()
        assert (found["access_key_id"], found["secret_access_key"], found.get("token")) == ("key", "secret", "token")
        assert found["expires_at"] is not None

    async def test_keys_of_a_profile_are_found(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        file = tmp_path / "credentials"
        file.write_text("[tier]\naws_access_key_id = one\naws_secret_access_key = two\n")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
        monkeypatch.setenv("AWS_PROFILE", "tier")
        found = await _Credentials(S3Keys())()
        assert (found["access_key_id"], found["secret_access_key"]) == ("one", "two")


@pytest.mark.service("s3")
class TestAgainstAServer:
    @pytest.fixture
    def reads(self, s3_service: S3Service, s3_bucket: str, s3_admin: S3Admin) -> Callable[..., S3RangedReads]:
        s3_admin.overwrite(s3_bucket, "tier/segment.log", CONTENT)

        def make(*, bucket: str = s3_bucket, keys: S3Keys | None = None, read_timeout_s: float = 10.0) -> S3RangedReads:
            return S3RangedReads(
                S3Bucket(name=bucket, path_style=True),
                keys=keys
                or S3Keys(access_key_id=s3_service.access_key_id, secret_access_key=s3_service.secret_access_key),
                network=S3Network(timeouts=HttpTimeouts(connect_s=2.0, read_s=read_timeout_s)),
                masking=Masking(),
            )

        return make

    @staticmethod
    async def _get(
        reads: S3RangedReads, service: S3Service, *, key: str = "tier/segment.log", byte_range: ByteRange = MIDDLE
    ) -> bytes | None:
        return await reads.get(key, byte_range, endpoint_url=service.endpoint_url, region=service.region)

    async def test_ranges_are_read_and_clipped_at_the_end(
        self, reads: Callable[..., S3RangedReads], s3_service: S3Service
    ) -> None:
        reader = reads()
        assert await self._get(reader, s3_service) == CONTENT[100_000:200_000]
        assert await self._get(reader, s3_service, byte_range=ByteRange(299_999, 400_000)) == CONTENT[299_999:]

    async def test_refused_read_is_left_to_the_other_library(
        self, reads: Callable[..., S3RangedReads], s3_service: S3Service
    ) -> None:
        wrong = S3Keys(access_key_id=s3_service.access_key_id, secret_access_key="wrong")
        for reader, key, byte_range in (
            (reads(), "tier/nothing", MIDDLE),
            (reads(), "tier/segment.log", ByteRange(300_000, 300_001)),
            (reads(), "sp ace/ü%41", MIDDLE),
            (reads(), "a/../b", MIDDLE),
            (reads(bucket="no-such-bucket"), "tier/segment.log", MIDDLE),
            (reads(keys=wrong), "tier/segment.log", MIDDLE),
        ):
            assert await self._get(reader, s3_service, key=key, byte_range=byte_range) is None

    async def test_read_from_a_frozen_server_ends_and_the_thawed_server_is_used_again(
        self, reads: Callable[..., S3RangedReads], s3_service: S3Service
    ) -> None:
        reader = reads(read_timeout_s=1.0)
        assert await self._get(reader, s3_service) == CONTENT[100_000:200_000]
        s3_service.services.freeze("s3")
        try:
            with pytest.raises(RetriableRemoteStorageError, match="does not answer"):
                await self._get(reader, s3_service)
        finally:
            s3_service.services.thaw("s3")
        assert await self._get(reader, s3_service) == CONTENT[100_000:200_000]

    async def test_a_cancelled_read_ends_at_once_and_leaves_the_next_one_alone(
        self, reads: Callable[..., S3RangedReads], s3_service: S3Service
    ) -> None:
        reader = reads()
        s3_service.services.freeze("s3")
        try:
            reading = asyncio.create_task(self._get(reader, s3_service))
            await asyncio.wait({reading}, timeout=0.1)
            reading.cancel()
            await asyncio.wait({reading}, timeout=5)
            assert reading.cancelled()
        finally:
            s3_service.services.thaw("s3")
        assert await self._get(reader, s3_service) == CONTENT[100_000:200_000]


@pytest.mark.service("s3")
class TestInTheStore:
    @pytest.fixture
    async def open_store(self, s3_service: S3Service, s3_bucket: str) -> AsyncIterator[Callable[..., S3ObjectStore]]:
        opened: list[S3ObjectStore] = []

        def make(*, bucket: str = s3_bucket, secret: str | None = None, endpoint_url: str = "") -> S3ObjectStore:
            opened.append(
                s3_store(
                    bucket=bucket,
                    endpoint_url=endpoint_url or s3_service.endpoint_url,
                    region=s3_service.region,
                    access_key_id=s3_service.access_key_id,
                    secret_access_key=secret or s3_service.secret_access_key,
                    path_style=True,
                    read_timeout_s=5,
                )
            )
            return opened[-1]

        yield make
        for store in opened:
            await store.close()

    async def test_a_refused_range_has_the_error_that_says_why(
        self, open_store: Callable[..., S3ObjectStore], s3_bucket: str, s3_admin: S3Admin
    ) -> None:
        s3_admin.overwrite(s3_bucket, "key", CONTENT)
        with pytest.raises(RemoteResourceNotFoundError):
            await open_store().get("nothing", MIDDLE)
        with pytest.raises(RemoteAccessError, match="has no bucket"):
            await open_store(bucket="no-such-bucket").get("key", MIDDLE)
        with pytest.raises(RemoteAccessError, match="SignatureDoesNotMatch"):
            await open_store(secret="wrong").get("key", MIDDLE)
        assert await open_store().get("key", ByteRange(300_000, 300_001)) == b""
        assert await open_store().get("key", MIDDLE) == CONTENT[100_000:200_000]

    @pytest.mark.service("toxiproxy")
    @pytest.mark.parametrize("toxic", [("limit_data", {"bytes": 50_000}), ("reset_peer", {})])
    async def test_a_download_that_is_cut_is_retriable_and_nothing_short_is_given(
        self,
        open_store: Callable[..., S3ObjectStore],
        s3_bucket: str,
        s3_admin: S3Admin,
        faulty_s3: FaultyPath,
        toxic: tuple[str, dict[str, int]],
    ) -> None:
        kind, attributes = toxic
        s3_admin.overwrite(s3_bucket, "key", CONTENT)
        store = open_store(endpoint_url=faulty_s3.endpoint_url)
        faulty_s3.add(kind, "downstream", **attributes)
        with pytest.raises(RetriableRemoteStorageError):
            await store.get("key", MIDDLE)
        faulty_s3.remove(kind, "downstream")
        assert await store.get("key", MIDDLE) == CONTENT[100_000:200_000]
