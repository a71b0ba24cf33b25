"""The leader's side of a run: it begins outputs, checks what the job wrote, commits it, and puts away what is left."""

from tierd.pipeline.committing.leader_client import LeaderClient
from tierd.pipeline.committing.messages import Begun, RefusedGroup, Verdict

__all__ = ["Begun", "LeaderClient", "RefusedGroup", "Verdict"]
