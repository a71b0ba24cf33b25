"""One frozen snapshot of every room, and its JSON. Fields of the JSON are added and not removed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from tierd.serve.control_answers import DrillsSummary, EndpointSummary, PushSummary, UnprotectedSummary
from tierd.serve.outage import Outage
from tierd.tiering import LogDirState, PartitionStatus

StatusFacts = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSnapshot:
    """The daemon at one moment.

    Attributes:
        commit: the commit that the daemon was built from, as ``Build`` has it.
        not_ready: causes for which ``/readyz`` says no, outages included; empty when ready.
        outages: services that the daemon needs and that do not answer.
        hold, metadata, leadership, pipeline, own_logs: statistics of those rooms, under their own names.
        catalogue: work on the catalogue in the bucket; ``problems`` needs a person.
        drills: what is proven to come back from the tier; ``failing`` and ``problem`` need a person.
        endpoint: clients and consumer groups of the read endpoint; empty where it is off.
        control: the control plane over MQTT; empty where it is off.
        push: push replication: what is sent to standbys, and the copies on this host; empty where it is off.
        unprotected: what a loss of this host now would cost.
        tier: how much of the led partitions is in the tier, and how old it is; empty before the first look.
        totals: work since the start; the difference of two answers is a rate.
        descriptors: open descriptors of the process, and their limit; ``near_limit`` needs a person.
    """

    version: str
    pid: int
    cluster_id: str
    node_id: int
    started_ms: int
    now_ms: int
    not_ready: tuple[str, ...]
    partitions: tuple[PartitionStatus, ...]
    log_dirs: tuple[LogDirState, ...]
    hold: StatusFacts
    metadata: StatusFacts
    leadership: StatusFacts = field(default_factory=dict)
    pipeline: StatusFacts = field(default_factory=dict)
    own_logs: StatusFacts = field(default_factory=dict)
    catalogue: StatusFacts = field(default_factory=dict)
    drills: StatusFacts = field(default_factory=dict)
    endpoint: StatusFacts = field(default_factory=dict)
    descriptors: StatusFacts = field(default_factory=dict)
    control: StatusFacts = field(default_factory=dict)
    push: StatusFacts = field(default_factory=dict)
    unprotected: StatusFacts = field(default_factory=dict)
    tier: StatusFacts = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    commit: str = ""
    totals: StatusFacts = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Return True when ``/readyz`` says yes."""
        return not self.not_ready

    def readiness(self) -> str:
        """Return one line: the daemon is ready, or why not."""
        return "ready" if self.is_ready else "not ready: " + "; ".join(self.not_ready)

    def states(self) -> Counter[str]:
        """Return the number of partitions in each state."""
        return Counter(partition.state for partition in self.partitions)

    def worst_lag(self) -> dict[str, JsonValue]:
        """Return the largest lag of any partition, for each unit."""
        return {
            "segments": max((p.lag.segments for p in self.partitions), default=0),
            "bytes": max((p.lag.bytes for p in self.partitions), default=0),
            "seconds": max((lag_seconds(p, self.now_ms) for p in self.partitions), default=0.0),
        }

    def uncleanable(self) -> list[tuple[str, str]]:
        """Return the own logs that the cleaner leaves alone until a person has repaired them, and why."""
        found = self.own_logs.get("uncleanable")
        return [(log, str(why)) for log, why in found.items()] if isinstance(found, dict) else []

    def catalogue_problem(self) -> str:
        """Return why the catalogue in the bucket is not whole; empty when it is."""
        found = self.catalogue.get("problems")
        problems = [str(why) for why in found.values()] if isinstance(found, dict) else []
        return f"the catalogue for restores is not whole: {'; '.join(problems)}" if problems else ""

    def drills_summary(self) -> DrillsSummary:
        """Return the drills, as the control socket answers them."""
        return DrillsSummary.model_validate(dict(self.drills))

    def endpoint_summary(self) -> EndpointSummary:
        """Return the read endpoint, as the control socket answers it."""
        return EndpointSummary.model_validate(dict(self.endpoint))

    def push_summary(self) -> PushSummary:
        """Return push replication, as the control socket answers it."""
        return PushSummary.model_validate(dict(self.push))

    def unprotected_summary(self) -> UnprotectedSummary:
        """Return what a loss of this host now would cost, as the control socket answers it."""
        return UnprotectedSummary.model_validate(dict(self.unprotected))

    def descriptors_problem(self) -> str:
        """Return the problem of open descriptors near their limit; empty when there are enough."""
        if not self.descriptors.get("near_limit"):
            return ""
        return f"{self.descriptors['open']} of {self.descriptors['limit']} descriptors are open: raise LimitNOFILE"

    def status_line(self) -> str:
        """Return the line for ``systemctl status``: causes of not being ready, and the partitions."""
        return self.summary() if self.is_ready else f"{self.readiness()}; {self.summary()}"

    def summary(self) -> str:
        """Return one line about the partitions."""
        counts = ", ".join(f"{count} {state}" for state, count in sorted(self.states().items()))
        lag = sum(p.lag.segments for p in self.partitions)
        return f"{len(self.partitions)} partitions ({counts or 'none'}), {lag} segments to copy"

    def to_json(self) -> dict[str, JsonValue]:
        """Return everything, as ``/status`` and ``tierd status --json`` print it."""
        return {
            "version": self.version,
            "commit": self.commit,
            "pid": self.pid,
            "cluster_id": self.cluster_id,
            "node_id": self.node_id,
            "started_ms": self.started_ms,
            "now_ms": self.now_ms,
            "ready": self.is_ready,
            "not_ready": list(self.not_ready),
            "outages": [outage.to_json() for outage in self.outages],
            "states": dict(self.states()),
            "worst_lag": self.worst_lag(),
            "log_dirs": [
                {"path": str(each.path), "problem": each.problem, "ignored": [list(pair) for pair in each.ignored]}
                for each in self.log_dirs
            ],
            "hold": dict(self.hold),
            "metadata": dict(self.metadata),
            "leadership": dict(self.leadership),
            "pipeline": dict(self.pipeline),
            "own_logs": dict(self.own_logs),
            "catalogue": dict(self.catalogue),
            "drills": dict(self.drills),
            "endpoint": dict(self.endpoint),
            "descriptors": dict(self.descriptors),
            "control": dict(self.control),
            "push": dict(self.push),
            "unprotected": dict(self.unprotected),
            "tier": dict(self.tier),
            "totals": dict(self.totals),
            "partitions": [_partition_json(partition, self.now_ms) for partition in self.partitions],
        }


def lag_seconds(partition: PartitionStatus, now_ms: int) -> float:
    """Return the age of the oldest rolled byte that is not in the tier; 0 when none waits."""
    oldest_ms = partition.lag.oldest_ms
    return 0.0 if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000


def _partition_json(partition: PartitionStatus, now_ms: int) -> dict[str, JsonValue]:
    return {
        "partition": str(partition.partition),
        "topic_id": partition.topic_id,
        "directory": partition.directory,
        "role": partition.role,
        "leader_epoch": partition.leader_epoch,
        "state": partition.state,
        "reason": partition.reason,
        "last_error": partition.last_error,
        "remedy": partition.remedy,
        "retry_at_ms": partition.retry_at_ms,
        "log_start_offset": partition.log_start_offset,
        "local_log_start_offset": partition.local_log_start_offset,
        "copied_through": -1 if partition.copied_through is None else partition.copied_through,
        "high_watermark": partition.high_watermark,
        "lag_segments": partition.lag.segments,
        "lag_bytes": partition.lag.bytes,
        "lag_seconds": lag_seconds(partition, now_ms),
        "delete_lag_segments": partition.expiration.lag_segments,
        "delete_lag_bytes": partition.expiration.lag_bytes,
        "in_grace_segments": partition.expiration.in_grace,
        "retained_segments": partition.expiration.retained,
    }
