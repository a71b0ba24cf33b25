"""ReadEndpoint: its bounds, and the stop of an endpoint that does not serve yet."""

import asyncio
from pathlib import Path

import pytest

from tests.app.endpoint.test_endpoint_partitions import Setup, setup
from tests.tiering.setups import CLUSTER_ID
from tierd.app.endpoint.build_endpoint import EndpointContext, build_endpoint, endpoint_limits
from tierd.app.endpoint.read_endpoint import ReadEndpoint
from tierd.config import KafkaEndpointSettings
from tierd.metadata import MetadataKeyFactory
from tierd.serve import RequestRecord

__all__ = ["setup"]


class NoRecords:
    """Recorder that keeps nothing."""

    def record(self, request: RequestRecord) -> None:
        """Do nothing."""


@pytest.fixture
async def endpoint(setup: Setup, tmp_path: Path) -> ReadEndpoint:
    context = EndpointContext(
        settings=KafkaEndpointSettings.model_validate({"listeners": ["PLAINTEXT://127.0.0.1:0"]}),
        state_dir=tmp_path,
        rows=setup.rows,
        keys=MetadataKeyFactory(CLUSTER_ID),
        recorder=NoRecords(),
        clock=setup.host.clock,
        is_short=lambda: False,
        descriptors=65536,
    )
    return await build_endpoint(context, setup.partitions, None)


async def test_stop_ends_an_endpoint_that_waits_for_the_metadata(endpoint: ReadEndpoint) -> None:
    never = asyncio.Event()

    async def loaded() -> None:
        await never.wait()

    run = asyncio.create_task(endpoint.run(loaded))
    await asyncio.sleep(0)
    endpoint.stop()
    async with asyncio.timeout(10):
        await run
    assert endpoint.not_ready


@pytest.mark.parametrize(
    ("descriptors", "connections", "per_peer", "kept_files"),
    [(65536, 2000, 1000, 256), (4096, 512, 256, 128), (200, 25, 12, 6), (4, 1, 1, 0)],
)
def test_most_descriptors_are_left_to_holds_and_copies(
    descriptors: int, connections: int, per_peer: int, kept_files: int
) -> None:
    limits = endpoint_limits(KafkaEndpointSettings(), descriptors=descriptors)
    assert (limits.connections, limits.connections_per_peer, limits.kept_files) == (connections, per_peer, kept_files)
