"""The servers of the running daemon: health, metrics, status and a page over HTTP; control over a unix socket.

The servers decide nothing: the daemon hands them functions that return snapshots, or that carry out a command.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tierd.serve.connection_gate import ConnectionGate, ConnectionLimits
from tierd.serve.control_answers import (
    CatalogueSummary,
    CompactionPlan,
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
    OwnLogsSummary,
    PartitionNames,
    PartitionSummary,
    PipelineSummary,
    PlannedWork,
    QuarantineAnswer,
    RunBegun,
    SkippedPartition,
    StatusAnswer,
    SteppedErasures,
    UndeletedSegment,
    UndeletedSegments,
)
from tierd.serve.control_protocol import ControlVerb, VerbHandler
from tierd.serve.control_requests import (
    ATTEST_ERASURE,
    CANCEL_ERASURE,
    COMPACT,
    DELETE_PARTITION,
    EXPIRE,
    FILE_ERASURE,
    HOLD_ENDPOINT,
    PAUSE,
    RELEASE_ENDPOINT,
    RESUME,
    STATUS,
    STEP_ERASURES,
    SYNC,
    UNDELETE,
    AttestErasureRequest,
    CancelErasureRequest,
    CompactRequest,
    DeletePartitionRequest,
    ExpireRequest,
    FileErasureRequest,
    PartitionsRequest,
    QuarantineRequest,
    StatusRequest,
    StepErasuresRequest,
    UndeleteRequest,
)
from tierd.serve.control_socket import SOCKET_NAME, ControlServer, ask, ask_or_run
from tierd.serve.drill_report import drill_line, drill_problems
from tierd.serve.http_server import HttpServer
from tierd.serve.kafka.served.served_cluster import EndpointNode, ServedCluster, ServedPartition, ServedTopic
from tierd.serve.kafka.served.served_log import FileSlice, LogBounds, LogRead
from tierd.serve.outage import Outage, Service
from tierd.serve.status_snapshot import StatusSnapshot
from tierd.serve.urgency import by_urgency

if TYPE_CHECKING:
    from tierd.serve.kafka.access.endpoint_access import EndpointAccess
    from tierd.serve.kafka.access.listener_certificates import certificate_end, server_context
    from tierd.serve.kafka.access.quarantine import open_quarantine
    from tierd.serve.kafka.access.quarantine_verbs import quarantine_handlers

__all__ = [
    "ATTEST_ERASURE",
    "CANCEL_ERASURE",
    "COMPACT",
    "DELETE_PARTITION",
    "EXPIRE",
    "FILE_ERASURE",
    "HOLD_ENDPOINT",
    "PAUSE",
    "RELEASE_ENDPOINT",
    "RESUME",
    "SOCKET_NAME",
    "STATUS",
    "STEP_ERASURES",
    "SYNC",
    "UNDELETE",
    "AttestErasureRequest",
    "CancelErasureRequest",
    "CatalogueSummary",
    "CompactRequest",
    "CompactionPlan",
    "ConnectionGate",
    "ConnectionLimits",
    "ControlServer",
    "ControlVerb",
    "DeletePartitionRequest",
    "DeletedPartition",
    "DescriptorsSummary",
    "EndpointAccess",
    "EndpointNode",
    "ErasureCaches",
    "ErasureLeftSegment",
    "ErasureReport",
    "ErasureSearch",
    "ErasureStep",
    "ErasureSummary",
    "ErasureVersions",
    "ExpireRequest",
    "ExpiredPartition",
    "ExpiredPartitions",
    "ExpiredSegment",
    "FileErasureRequest",
    "FileSlice",
    "HttpServer",
    "LogBounds",
    "LogRead",
    "Outage",
    "OwnLogsSummary",
    "PartitionNames",
    "PartitionSummary",
    "PartitionsRequest",
    "PipelineSummary",
    "PlannedWork",
    "QuarantineAnswer",
    "QuarantineRequest",
    "RunBegun",
    "ServedCluster",
    "ServedPartition",
    "ServedTopic",
    "Service",
    "SkippedPartition",
    "StatusAnswer",
    "StatusRequest",
    "StatusSnapshot",
    "StepErasuresRequest",
    "SteppedErasures",
    "UndeleteRequest",
    "UndeletedSegment",
    "UndeletedSegments",
    "VerbHandler",
    "ask",
    "ask_or_run",
    "by_urgency",
    "certificate_end",
    "drill_line",
    "drill_problems",
    "open_quarantine",
    "quarantine_handlers",
    "server_context",
]

# The read endpoint needs the modules of Kafka's protocol, which take 0.3 s and 27 MB to import.
_ON_DEMAND = {
    "EndpointAccess": "tierd.serve.kafka.access.endpoint_access",
    "certificate_end": "tierd.serve.kafka.access.listener_certificates",
    "open_quarantine": "tierd.serve.kafka.access.quarantine",
    "quarantine_handlers": "tierd.serve.kafka.access.quarantine_verbs",
    "server_context": "tierd.serve.kafka.access.listener_certificates",
}


def __getattr__(name: str) -> object:
    """Import a name of ``_ON_DEMAND`` when it is first asked for (PEP 562)."""
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)
