"""Control planes of daemons against a real Mosquitto, for tests."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from uuid import UUID, uuid4

from tests.fakes.eventually import eventually
from tierd.backoff import Backoff
from tierd.clock import SystemClock
from tierd.config import MqttSettings
from tierd.control.mqtt.control_state import ControlIdentity, LeaderFacts
from tierd.control.mqtt.mqtt_control import MqttControl
from tierd.control.mqtt.peer_requests import PeerHandler

FAST = Backoff(base_s=0.02, cap_s=0.1)
_epochs = itertools.count(1_000)


def new_cluster() -> str:
    """Return a cluster id that no other test uses on the same broker."""
    return f"cluster-{uuid4().hex[:12]}"


def led(topic_id: UUID, leader: int, epoch: int, *, partition: int = 0, partition_epoch: int = 0) -> LeaderFacts:
    return LeaderFacts(
        topic_id=topic_id,
        partition=partition,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        replicas=(leader,),
        isr=(leader,),
    )


def new_control(cluster: str, node_id: int, address: str, **settings: object) -> MqttControl:
    """Return the control plane of a new process of that node, not running yet."""
    identity = ControlIdentity(
        cluster_id=cluster,
        node_id=node_id,
        process_epoch=next(_epochs),
        instance=uuid4().hex,
        started_at_ms=1,
        version="0",
        features=("push",),
    )
    chosen = {"address": address, "connect_timeout_s": 3.0, "will_delay_s": 0.0, "keepalive_s": 1.0} | settings
    return MqttControl(
        MqttSettings.model_validate(chosen), identity, clock=SystemClock(), random=lambda: 0.5, backoff=FAST
    )


@contextlib.asynccontextmanager
async def running(
    control: MqttControl, handlers: Mapping[str, PeerHandler] | None = None, *, is_awaited: bool = True
) -> AsyncIterator[asyncio.Task[None]]:
    """Run ``control`` while the context lasts; with ``is_awaited`` the context begins with a connection."""
    task = asyncio.create_task(control.run(handlers or {}))
    try:
        if is_awaited:
            await eventually(lambda: control.is_connected or task.done(), what="a connection")
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


def tls_of(certificates: Path, node: str) -> dict[str, str]:
    """Return the settings of TLS of a node."""
    return {
        "ca_file": str(certificates / "ca.pem"),
        "certificate_file": str(certificates / f"{node}.pem"),
        "key_file": str(certificates / f"{node}-key.pem"),
    }
