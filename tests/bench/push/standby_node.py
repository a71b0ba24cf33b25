"""Program ``python -m tests.bench.push.standby_node ROOT LEADER_PORT PORT``: a standby, until the end of its input."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.bench.push.nodes import LEADER, STANDBY, Answer, Verb, connector, listening, log_service, serve_verbs
from tierd.clock import Clock
from tierd.replication.follower.standby import Standby
from tierd.replication.follower.standby_identity import StandbyIdentity
from tierd.replication.follower.standby_memory import StandbyMemory
from tierd.replication.follower.standby_settings import StandbySettings
from tierd.replication.follower.standby_topics import StandbyTopics
from tierd.replication.links.peer_link import PeerLink
from tierd.replication.model.messages import AppendRecordsRequest
from tierd.replication.model.push_session import PeerNode
from tierd.tasks import end_tasks


@asynccontextmanager
async def standby_node(root: Path, leader_port: int, port: int, clock: Clock) -> AsyncIterator[Mapping[str, Verb]]:
    """Keep copies of the partitions of node 1."""
    state_dir, log_dir = root / "state", root / "standby"
    state_dir.mkdir(parents=True)
    memory = StandbyMemory.load(state_dir)
    topics = StandbyTopics(memory.topics, flush="never", flush_interval_s=1)
    identity = StandbyIdentity(
        cluster_id=STANDBY.cluster_id, node_id=STANDBY.node_id, process_epoch=STANDBY.process_epoch
    )
    connecting = connector(STANDBY)

    async def open_channel(_: int) -> PeerLink:
        return await connecting.open(PeerNode(LEADER.node_id, "127.0.0.1", leader_port))

    async with log_service(log_dir, topics.config_for, clock=clock) as logs:
        settings = StandbySettings(state_dir=state_dir, log_dirs=[log_dir])
        standby = Standby(identity, logs, open_channel, topics=topics, memory=memory, clock=clock, settings=settings)
        standby.set_leaders([LEADER.node_id])

        async def status() -> Answer:
            found = standby.status()
            return {"replicas": len(found.replicas), "appended_bytes": found.appended_bytes}

        running = asyncio.create_task(standby.run(), name="standby")
        try:
            async with listening(STANDBY, port, {AppendRecordsRequest: standby.append_records}, clock=clock):
                yield {"status": status}
        finally:
            await end_tasks([running])


if __name__ == "__main__":
    serve_verbs(partial(standby_node, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
