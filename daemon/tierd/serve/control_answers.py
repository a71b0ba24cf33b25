"""The answers of the control socket, field by field in the order in which ``--json`` prints them. Values only.

The fields are a contract that is only ever added to; ``docs/formats.md`` says what each one means. A field without a
default is one that tierd's own commands read.
"""

from pydantic import Field, JsonValue

from tierd.serve.control_protocol import ControlAnswer, ControlListAnswer

JsonObject = dict[str, JsonValue]


class PartitionNames(ControlListAnswer[str]):
    """The partitions that a verb was carried out for."""


class QuarantineAnswer(ControlAnswer):
    """Clients of the read endpoint that a verb released, or holds back: listeners and patterns of principals."""

    listeners: tuple[str, ...]
    principals: tuple[str, ...]


class PartitionSummary(ControlAnswer):
    """One partition in the status."""

    partition: str
    topic_id: str = ""
    directory: str = ""
    role: str
    leader_epoch: int | None
    state: str
    reason: str | None
    last_error: str | None
    remedy: str = ""
    retry_at_ms: int | None = None
    log_start_offset: int | None = None
    local_log_start_offset: int | None = None
    copied_through: int | None
    high_watermark: int | None
    lag_segments: int
    lag_bytes: int
    lag_seconds: float
    delete_lag_segments: int = 0
    delete_lag_bytes: int = 0
    in_grace_segments: int = 0
    retained_segments: int = 0


class LogDirHolds(ControlAnswer):
    """Kind of the holds in one log dir: ``link``, ``descriptor`` or ``none``, and why not by links."""

    path: str
    mode: str
    reason: str = ""


class HoldSummary(ControlAnswer):
    """Held segments, and the segments that wait to be copied without a hold."""

    segments: int = 0
    bytes: int = 0
    descriptors: int = 0
    unheld_segments: int = 0
    unheld_reason: str = ""
    log_dirs: tuple[LogDirHolds, ...] = ()


class RunningRun(ControlAnswer):
    """The run of the pipeline that is under way, with its results so far."""

    run_id: str = ""
    trigger: str = ""
    began_ms: int = 0
    stage: str
    done: int
    total: int
    partitions: int = 0
    groups_replaced: int
    groups_unchanged: int = 0
    groups_failed: int


class LastRun(ControlAnswer):
    """The run of the pipeline that ended last, as the history has it."""

    run_id: str = ""
    trigger: str = ""
    attempt: int = 1
    began_ms: int = 0
    ended_ms: int
    outcome: str


class PipelineSummary(ControlAnswer):
    """The pipeline in the status."""

    enabled: bool
    running: RunningRun | None
    last_run: LastRun | None
    next_begin_ms: int | None


class LogDirSummary(ControlAnswer):
    """One log dir in the status."""

    path: str
    problem: str
    ignored: tuple[tuple[str, str], ...] = ()


class OwnLogsSummary(ControlAnswer):
    """The logs that tierd writes itself, in the status; ``uncleanable`` says why, for each log."""

    cleaner: JsonObject = Field(default_factory=dict)
    uncleanable: dict[str, str] = Field(default_factory=dict)


class CatalogueSummary(ControlAnswer):
    """The catalogue in the bucket, in the status; ``problems`` says what is missing, by part of the work."""

    enabled: bool = False
    positions_ms: int | None = None
    groups: int = 0
    written: JsonObject = Field(default_factory=dict)
    removed: int = 0
    failures: JsonObject = Field(default_factory=dict)
    problems: dict[str, str] = Field(default_factory=dict)


class DrillsSummary(ControlAnswer):
    """The drills, in the status.

    Attributes:
        partition: the one that is restored now; None while none is.
        next_begin_ms: of a drill of some partitions.
        next_broker_begin_ms: of a drill of the whole broker.
        last_success_ms: end of the last proof of any partition.
        partitions: led partitions of which the tier has something.
        unproven: those of them that were never proven.
        proven_until_ms: moment of the oldest proof; 0 while a partition was never proven, None without partitions.
        failing: why the last drill of a partition was no proof, by partition; the first few.
        failing_partitions: number of all of these.
        problem: why the last drill ended early; empty if it did not.
    """

    enabled: bool = False
    running: bool = False
    partition: str | None = None
    next_begin_ms: int | None = None
    next_broker_begin_ms: int | None = None
    last_success_ms: int | None = None
    partitions: int = 0
    unproven: int = 0
    proven_until_ms: int | None = None
    failing: dict[str, str] = Field(default_factory=dict)
    failing_partitions: int = 0
    problem: str = ""


class EndpointListenerSummary(ControlAnswer):
    """One listener of the read endpoint, in the status."""

    connections: int = 0
    accepted: int = 0
    closed_by_fault: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0


class EndpointGroupSummary(ControlAnswer):
    """One consumer group of the read endpoint, in the status.

    Attributes:
        partitions: for which the group has committed an offset.
        lag: records behind the ends of these partitions; None where no end is known.
        is_lag_complete: the ends of all of them are known.
    """

    state: str = ""
    members: int = 0
    partitions: int = 0
    lag: int | None = None
    is_lag_complete: bool = False


class EndpointSessionsSummary(ControlAnswer):
    """Fetch sessions (KIP-227) of the read endpoint, in the status: now, and evictions since the start."""

    sessions: int = 0
    partitions: int = 0
    evictions: int = 0


class EndpointSummary(ControlAnswer):
    """The read endpoint, in the status; without listeners where it is off.

    Attributes:
        not_ready: why clients cannot connect; empty when they can.
        failed_logins, failed_certificates: logins, and changes of certificates, that failed since the start.
        certificate_problem: why the certificates of the configuration cannot be used, so that the former ones are in
            force; empty otherwise.
        held_listeners, held_principals: clients that the quarantine holds back.
        watermark_age_s: age of the high watermarks that are served; None where it is not known.
        watermark_source: ``broker``, or ``checkpoint`` where no connection to Kafka is configured.
        watermark_problem: why the broker does not tell watermarks; empty when it does.
        peers_alive: node ids of the other endpoints that are alive.
        groups: by name.
    """

    not_ready: str = ""
    listeners: dict[str, EndpointListenerSummary] = Field(default_factory=dict)
    connections_refused: int = 0
    memory_bytes: int = 0
    failed_logins: int = 0
    failed_certificates: int = 0
    certificate_problem: str = ""
    fetch_sessions: EndpointSessionsSummary = Field(default_factory=EndpointSessionsSummary)
    topics: int = 0
    held_listeners: tuple[str, ...] = ()
    held_principals: tuple[str, ...] = ()
    watermark_age_s: float | None = None
    watermark_source: str = ""
    watermark_problem: str = ""
    peers_alive: tuple[int, ...] = ()
    groups: dict[str, EndpointGroupSummary] = Field(default_factory=dict)


class ControlSummary(ControlAnswer):
    """The control plane over MQTT, in the status; not enabled without an MQTT broker.

    Attributes:
        problem, remedy: why there is no connection; empty while there is one.
        connects: connections since the start.
        damaged: messages that could not be used.
        overflowed: messages that came faster than they were read.
        denied: messages that the MQTT broker did not take for lack of a right.
        dropped_replies: replies that no request waited for.
        refused_requests: requests of peers that were answered with an error.
        view: sizes of what was heard, and the counts of what was dropped of it.
        queue: messages that wait, and the counts of what was not sent.
    """

    enabled: bool = False
    address: str = ""
    is_connected: bool = False
    problem: str = ""
    remedy: str = ""
    connects: int = 0
    reconnects: int = 0
    damaged: int = 0
    overflowed: int = 0
    denied: int = 0
    dropped_replies: int = 0
    refused_requests: int = 0
    view: JsonObject = Field(default_factory=dict)
    queue: JsonObject = Field(default_factory=dict)


class PeerSummary(ControlAnswer):
    """One daemon, as it announced itself. ``started_at_ms`` is by its own clock."""

    node_id: int
    online: bool
    is_this: bool = False
    version: str = ""
    endpoint: str = ""
    features: tuple[str, ...] = ()
    started_at_ms: int = 0
    process_epoch: int = 0
    led_partitions: int = 0


class PeersAnswer(ControlAnswer):
    """The daemons that announced themselves; ``problem`` says why the list may be out of date."""

    peers: tuple[PeerSummary, ...]
    problem: str = ""


class PeerAnswer(ControlAnswer):
    """The answer of the daemon of another node."""

    node: int
    answer: JsonValue = None


class StandbyOfPartition(ControlAnswer):
    """One standby of a partition that this host sends, in the status.

    Attributes:
        mode: ``push`` or ``pull``.
        log_end_offset: of the standby; -1 when it is not known.
        lag_bytes: an estimate for records from before the daemon began to look.
        lag_ms: time since the standby last lacked nothing; 0 while it lacks nothing.
        why_not_pushed: reason for ``pull``; empty in ``push``.
    """

    node_id: int
    mode: str = ""
    session_id: int = -1
    log_end_offset: int = -1
    in_sync: bool = False
    lag_records: int = 0
    lag_bytes: int = 0
    lag_ms: int = 0
    why_not_pushed: str = ""


class SentPartition(ControlAnswer):
    """One partition that this host sends to standbys, in the status; ``problem`` says why it is not read now."""

    partition: str
    topic_id: str = ""
    leader_epoch: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    high_watermark: int = -1
    problem: str = ""
    standbys: tuple[StandbyOfPartition, ...] = ()


class PushPeerSummary(ControlAnswer):
    """The sessions towards one standby, in the status."""

    node_id: int
    connected: bool = False
    sessions: int = 0
    stopping_sessions: int = 0
    unacked_bytes: int = 0
    oldest_unacked_ms: int = 0


class TailSummary(ControlAnswer):
    """Tail mode, in the status: what it follows, what it cost since the start, and what keeps it from its work."""

    partitions: int = 0
    watched: int = 0
    missing: int = 0
    bytes: int = 0
    restarts: int = 0
    cpu_ms: int = 0
    oldest_job_ms: int = 0
    watch_problem: str = ""
    log_dir_problems: dict[str, str] = Field(default_factory=dict)
    problems: dict[str, str] = Field(default_factory=dict)


class PushLeaderSummary(ControlAnswer):
    """The partitions that this host sends, in the status."""

    memory_bytes: int = 0
    memory_max_bytes: int = 0
    peers: tuple[PushPeerSummary, ...] = ()
    tail: TailSummary = TailSummary()
    partitions: tuple[SentPartition, ...] = ()


class FollowedLeader(ControlAnswer):
    """A daemon whose partitions this host keeps, in the status; ``problem`` says why it does not answer."""

    node_id: int
    problem: str = ""


class KeptPartition(ControlAnswer):
    """One copy on this host, in the status.

    Attributes:
        leader: node that is followed; None before the first announcement after a restart without a file.
        stage: next step in mode ``pull``.
        lag_records: offsets that the copy lacks; None while the end of the leader's log is not known.
        rebuilding: the copy is made anew, and has not everything yet.
    """

    partition: str
    topic_id: str = ""
    leader: int | None = None
    leader_epoch: int = -1
    mode: str = ""
    session_id: int = -1
    stage: str = ""
    log_start_offset: int = -1
    log_end_offset: int = -1
    high_watermark: int = -1
    lag_records: int | None = None
    online: bool = False
    rebuilding: bool = False
    last_error: str = ""


class PushStandbySummary(ControlAnswer):
    """The copies on this host, in the status; not ``ready`` while their logs are loaded."""

    ready: bool = False
    leaders: tuple[FollowedLeader, ...] = ()
    conflicts: dict[str, str] = Field(default_factory=dict)
    memory_bytes: int = 0
    disk_full: bool = False
    appended_bytes: int = 0
    fetched_bytes: int = 0
    append_errors: dict[str, int] = Field(default_factory=dict)
    truncated_records: int = 0
    partitions: tuple[KeptPartition, ...] = ()


class PushSummary(ControlAnswer):
    """Push replication, in the status; without ``leader`` where it is off."""

    enabled: bool = False
    node_id: int = 0
    process_epoch: int = 0
    connections: int = 0
    connections_refused: int = 0
    certificate_problem: str = ""
    leader: PushLeaderSummary | None = None
    standby: PushStandbySummary | None = None


class UnprotectedSummary(ControlAnswer):
    """Cost of a loss of this host now: records of led partitions that neither the tier nor a standby has.

    Attributes:
        bytes: of all partitions together.
        seconds: age of the oldest such record.
        partition: the one that has it; empty without one.
    """

    bytes: int = 0
    seconds: float = 0.0
    partition: str = ""


class TierSummary(ControlAnswer):
    """Contents of the tier: finished segments of the partitions that this broker leads.

    Attributes:
        partitions: led partitions whose metadata is loaded.
        segments: finished ones.
        size_bytes: of their logs as in Kafka, before compression.
        oldest_ms, newest_ms: smallest and largest of their largest record timestamps; None without one.
    """

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None


class DescriptorsSummary(ControlAnswer):
    """The open descriptors of the daemon, in the status."""

    open: int
    limit: int
    near_limit: bool


class TotalsSummary(ControlAnswer):
    """Work since the start of the daemon, in the status; a number falls when a topic goes."""

    copied_segments: int = 0
    copied_bytes: int = 0
    copy_errors: int = 0
    fetches: int = 0
    fetched_bytes: int = 0
    fetch_errors: int = 0
    deletions: int = 0
    delete_errors: int = 0
    store_requests: int = 0
    store_bytes: int = 0


class StatusAnswer(ControlAnswer):
    """The daemon at one moment."""

    version: str
    commit: str = ""
    pid: int
    cluster_id: str = ""
    node_id: int = 0
    started_ms: int = 0
    now_ms: int = 0
    ready: bool = False
    not_ready: tuple[str, ...]
    outages: tuple[JsonObject, ...] = ()
    states: dict[str, int] = Field(default_factory=dict)
    worst_lag: JsonObject = Field(default_factory=dict)
    log_dirs: tuple[LogDirSummary, ...] = ()
    hold: HoldSummary = HoldSummary()
    metadata: JsonObject = Field(default_factory=dict)
    leadership: JsonObject = Field(default_factory=dict)
    pipeline: PipelineSummary | None = None
    own_logs: OwnLogsSummary = OwnLogsSummary()
    catalogue: CatalogueSummary = CatalogueSummary()
    drills: DrillsSummary = DrillsSummary()
    endpoint: EndpointSummary = EndpointSummary()
    descriptors: DescriptorsSummary | None = None
    control: ControlSummary = ControlSummary()
    push: PushSummary = PushSummary()
    unprotected: UnprotectedSummary = UnprotectedSummary()
    tier: TierSummary = TierSummary()
    totals: TotalsSummary | None = None
    partitions: tuple[PartitionSummary, ...]


class SegmentAnswer(ControlAnswer):
    """One remote segment that is to go, or that comes back."""

    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    state: str
    delete_after_ms: int | None


class ExpiredSegment(SegmentAnswer):
    """A segment that expiration takes from the tier; ``reason`` is a fixed word, ``detail`` a text for people."""

    reason: str
    detail: str


class ExpiredPartition(ControlAnswer):
    """A pass of expiration over one partition, or its plan; ``error`` says why the pass failed."""

    partition: str
    new_log_start_offset: int | None
    next_due_ms: int | None
    deletions: tuple[ExpiredSegment, ...]
    error: str | None
    remedy: str | None


class ExpiredPartitions(ControlListAnswer[ExpiredPartition]):
    """A pass of expiration, or its plan, partition by partition."""


class UndeletedSegment(SegmentAnswer):
    """A segment that comes back.

    Attributes:
        reason: why it went.
        log_start_offset: where the log begins with it; None where that stays.
        problem: the reason against it, or empty.
    """

    reason: str
    log_start_offset: int | None
    problem: str


class UndeletedSegments(ControlAnswer):
    """The segments of a partition that are back, or would be, the newest first."""

    partition: str
    dry_run: bool
    segments: tuple[UndeletedSegment, ...]


class DeletedPartition(ControlAnswer):
    """A partition whose deletion was accepted."""

    partition: str
    topic_id: str
    at_once: bool


class PlannedWork(ControlAnswer):
    """The work of a run in one partition. ``end_offset`` is inclusive."""

    partition: str
    kind: str
    groups: int
    segments: int
    bytes: int
    first_dirty_offset: int
    end_offset: int


class SkippedPartition(ControlAnswer):
    """A partition that a run would leave alone, and why."""

    partition: str
    reason: str


class CompactionPlan(ControlAnswer):
    """The plan of a run."""

    planned: tuple[PlannedWork, ...]
    skipped: tuple[SkippedPartition, ...]


class RunBegun(ControlAnswer):
    """A run that has begun; ``run_id`` is None where it ended at once. The status has its progress."""

    run_id: str | None


class ErasureSummary(ControlAnswer):
    """One request to erase keys, in a list of requests."""

    request_id: str
    partition: str
    topic_id: str
    phase: str
    problem: str
    requested_at_ms: int
    requested_by: str
    reason: str
    keys: int
    records_erased: int


class ErasureStep(ControlAnswer):
    """A phase that a request came to, and when."""

    at_ms: int
    phase: str


class ErasureSearch(ControlAnswer):
    """The work of one run for a request."""

    run_id: str
    ended_at_ms: int
    searched: int
    rewritten: int
    records_erased: int
    problems: tuple[str, ...]


class ErasureLeftSegment(ControlAnswer):
    """A segment that held a key, or may have held one; ``gone_at_ms`` is None while its objects are there."""

    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    gone_at_ms: int | None


class ErasureVersions(ControlAnswer):
    """The proof that no older version of an object is left; ``attested_by`` is empty where the store was asked."""

    at_ms: int
    looked_at: int
    deleted: int
    deleted_bytes: int
    attested_by: str
    statement: str


class ErasureCaches(ControlAnswer):
    """The proof that the caches of one host hold nothing of the segments that left."""

    at_ms: int
    host: str
    segments: int


class ErasureReport(ErasureSummary):
    """Everything that was done for a request. Both end offsets are exclusive."""

    key_sha256: tuple[str, ...]
    tier_end_offset: int
    end_offset: int
    at_once: bool
    removes_unread: bool
    history: tuple[ErasureStep, ...]
    runs: tuple[ErasureSearch, ...]
    segments_left: tuple[ErasureLeftSegment, ...]
    versions: ErasureVersions | None
    caches: ErasureCaches | None
    not_covered: tuple[str, ...]


class SteppedErasures(ControlListAnswer[ErasureReport]):
    """The reports of several requests."""
