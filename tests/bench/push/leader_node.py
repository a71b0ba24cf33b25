"""Program ``python -m tests.bench.push.leader_node ROOT STANDBY_PORT PORT``: a leader, until the end of its input."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.push.leader_verbs import LeaderVerbs
from tests.bench.push.nodes import LEADER, STANDBY, Verb, connector, listening, log_service, serve_verbs
from tierd.clock import Clock
from tierd.log import LogConfig
from tierd.replication.leader.assignments import LeaderAssignments
from tierd.replication.leader.leader_server import PushLeaderServer
from tierd.replication.leader.led_replicators import LedReplicators
from tierd.replication.leader.logs.open_segments import OpenSegments
from tierd.replication.leader.pushing.push_actions import PushLeader
from tierd.replication.leader.pushing.push_manager import PushManager
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.replicas.replicator_settings import ReplicatorSettings
from tierd.replication.model.push_session import PeerNode
from tierd.tasks import end_tasks

_CONFIG: Final = LogConfig(max_message_bytes=2 << 20, retention_ms=-1, file_delete_delay_ms=1000)


@asynccontextmanager
async def leader_node(root: Path, standby_port: int, port: int, clock: Clock) -> AsyncIterator[Mapping[str, Verb]]:
    """Lead partitions, whose copies node 2 keeps."""
    segments, assignments = OpenSegments(), LeaderAssignments(clock)
    me = PushLeader(LEADER.cluster_id, LEADER.node_id, LEADER.process_epoch)
    push = PushManager(PushSettings(), me, connector(LEADER).open, on_leadership_doubted=lambda *_: None)
    led = LedReplicators(push, assignments, ReplicatorSettings(), process_epoch=1, clock=clock)
    server = PushLeaderServer(led, assignments, clock=clock)
    async with log_service(root / "leader", lambda _: _CONFIG, clock=clock) as logs:
        verbs = LeaderVerbs(led, logs, segments, PeerNode(STANDBY.node_id, "127.0.0.1", standby_port))
        running = asyncio.create_task(led.run(), name="led replicators")
        try:
            async with listening(LEADER, port, server.handlers, clock=clock), push:
                names = ("handed", "owned", "latency", "begin_idle", "rest")
                yield {name: getattr(verbs, name) for name in names}
                led.close()
        finally:
            await end_tasks([running])
            segments.close()


if __name__ == "__main__":
    serve_verbs(partial(leader_node, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
