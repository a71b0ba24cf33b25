from collections.abc import AsyncIterator

import pytest
from tierd.remote.backends.s3 import S3ObjectStore

from tests.contracts.object_store import ObjectStoreContract
from tests.services.s3 import S3Service

PART_SIZE = 5 << 20


@pytest.mark.service("s3")
class TestS3ObjectStore(ObjectStoreContract):
    @pytest.fixture
    async def store(self, s3_service: S3Service, s3_bucket: str) -> AsyncIterator[S3ObjectStore]:
        store = S3ObjectStore(
            bucket=s3_bucket,
            endpoint_url=s3_service.endpoint_url,
            region=s3_service.region,
            access_key_id=s3_service.access_key_id,
            secret_access_key=s3_service.secret_access_key,
            path_style=True,
            part_size=PART_SIZE,
        )
        yield store
        await store.close()
