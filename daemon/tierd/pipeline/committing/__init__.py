"""Leader's side of a run: it begins outputs, checks what the job wrote, commits it, and abandons what is left."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.pipeline.committing.leader import CompactionLeader
    from tierd.pipeline.committing.leader_client import LeaderClient
    from tierd.pipeline.committing.leader_server import LeaderServer
    from tierd.pipeline.committing.open_outputs import OpenOutputs
    from tierd.pipeline.committing.order_maker import PreparedRun, one_off_secret
    from tierd.pipeline.committing.replacing import LeaderSettings
    from tierd.pipeline.committing.round import GroupState, PartitionRound
    from tierd.pipeline.committing.run_record import RunStatistics, RunTally
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "CompactionLeader",
    "GroupState",
    "LeaderClient",
    "LeaderServer",
    "LeaderSettings",
    "OpenOutputs",
    "PartitionRound",
    "PreparedRun",
    "RunStatistics",
    "RunTally",
    "one_off_secret",
]
