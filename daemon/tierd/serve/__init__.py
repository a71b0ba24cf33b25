"""The servers of the running daemon: health, metrics, status and a page over HTTP; control over a unix socket.

The servers decide nothing: the daemon hands them functions that return snapshots, or that carry out a command.
"""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.serve.awaited_answer import ask, ask_or_run
    from tierd.serve.control_answers import (
        CatalogueSummary,
        CompactionPlan,
        ControlSummary,
        DeletedPartition,
        DescriptorsSummary,
        ErasureCaches,
        ErasureLeftSegment,
        ErasureReport,
        ErasureSearch,
        ErasureStep,
        ErasureSummary,
        ErasureVersions,
        ExpiredPartition,
        ExpiredPartitions,
        ExpiredSegment,
        HoldSummary,
        JsonObject,
        OwnLogsSummary,
        PartitionNames,
        PartitionSummary,
        PeerAnswer,
        PeersAnswer,
        PeerSummary,
        PipelineSummary,
        PlannedWork,
        PushLeaderSummary,
        PushStandbySummary,
        QuarantineAnswer,
        RunBegun,
        SegmentAnswer,
        SkippedPartition,
        StatusAnswer,
        SteppedErasures,
        TierSummary,
        TotalsSummary,
        UndeletedSegment,
        UndeletedSegments,
    )
    from tierd.serve.control_client import SOCKET_NAME, ask_blocking
    from tierd.serve.control_protocol import ControlRequest, ControlRequestLine, ControlVerb, VerbHandler
    from tierd.serve.control_requests import (
        ASK_PEER,
        ATTEST_ERASURE,
        CANCEL_ERASURE,
        COMPACT,
        DELETE_PARTITION,
        EXPIRE,
        FILE_ERASURE,
        HOLD_ENDPOINT,
        PARTITIONS,
        PAUSE,
        PEERS,
        RELEASE_ENDPOINT,
        RESUME,
        STATUS,
        STEP_ERASURES,
        SYNC,
        UNDELETE,
        AskPeerRequest,
        AttestErasureRequest,
        CancelErasureRequest,
        CompactRequest,
        DeletePartitionRequest,
        ExpireRequest,
        FileErasureRequest,
        PartitionNamesRequest,
        PartitionsRequest,
        PeersRequest,
        QuarantineRequest,
        StatusRequest,
        StepErasuresRequest,
        UndeleteRequest,
    )
    from tierd.serve.control_socket import ControlServer
    from tierd.serve.http_server import HttpServer
    from tierd.serve.kafka.access.authorizer import Authorizer
    from tierd.serve.kafka.access.endpoint_access import EndpointAccess
    from tierd.serve.kafka.access.listener_certificates import certificate_end, server_context
    from tierd.serve.kafka.access.quarantine import open_quarantine, quarantine_handlers
    from tierd.serve.kafka.answers.answer_handlers import answer_handlers
    from tierd.serve.kafka.endpoint import KafkaEndpoint
    from tierd.serve.kafka.endpoint_limits import EndpointLimits
    from tierd.serve.kafka.endpoint_listener import ListenerPlan
    from tierd.serve.kafka.endpoint_statistics import EndpointRecorder, RequestRecord
    from tierd.serve.kafka.fetching.fetch_handlers import fetch_handlers, fetch_sessions
    from tierd.serve.kafka.fetching.fetch_session_cache import FetchSessionCache
    from tierd.serve.kafka.groups import ConsumerGroups, CoordinationLimits, GroupStatistics, Placement
    from tierd.serve.kafka.request_context import RequestContext
    from tierd.serve.kafka.served.served_cluster import EndpointNode, ServedCluster, ServedPartition, ServedTopic
    from tierd.serve.kafka.served.served_log import FileSlice, LogBounds, LogRead
    from tierd.serve.outage import Outage, Service
    from tierd.serve.page.log_layout import CopyOnNode, LocalPiece, PartitionLayout
    from tierd.serve.page.page_sources import HostInventory, PageSources, PastWork, TierSources
    from tierd.serve.page.rate_series import RateSample, RateSeries
    from tierd.serve.page.runs_page import MOST_DELETIONS, MOST_DRILLS, MOST_RUNS
    from tierd.serve.status_lines import (
        by_urgency,
        cause_and_remedy,
        drill_line,
        drill_problems,
        endpoint_line,
        endpoint_problems,
        group_lines,
        push_lines,
        push_problems,
        unprotected_line,
    )
    from tierd.serve.status_snapshot import StatusSnapshot
else:
    __getattr__ = exports_on_demand(__name__)
