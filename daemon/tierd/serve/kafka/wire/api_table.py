"""API_TABLE: the requests that the endpoint answers, each in every version that kio has.

Clients choose their ways by what is advertised. librdkafka reads message format 2 and zstd only where Produce 3 and 7
are (its feature map), subscribes to groups only where JoinGroup 0, OffsetCommit 1 to 2 and OffsetFetch 1 are, and sends
logins in frames where SaslAuthenticate is. The Java clients use the newest version that both sides have, and fall back
where a request is missing: ConsumerGroupHeartbeat (KIP-848), share groups and client telemetry are left out on purpose.
Writes are there so that they can be refused with an error that clients show.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kio.schema.index import api_key_map, schema_name_map

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

_READS: Final = (
    1,  # Fetch
    2,  # ListOffsets
    3,  # Metadata
    23,  # OffsetForLeaderEpoch
    32,  # DescribeConfigs
    46,  # ListPartitionReassignments: tools ask before they describe topics
    60,  # DescribeCluster
    75,  # DescribeTopicPartitions
)
_GROUPS: Final = (
    8,  # OffsetCommit
    9,  # OffsetFetch
    10,  # FindCoordinator
    11,  # JoinGroup
    12,  # Heartbeat
    13,  # LeaveGroup
    14,  # SyncGroup
    15,  # DescribeGroups
    16,  # ListGroups
    42,  # DeleteGroups
    47,  # OffsetDelete
)
_LOGIN: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
_WRITES: Final = (
    0,  # Produce
    19,  # CreateTopics
    20,  # DeleteTopics
    21,  # DeleteRecords
    22,  # InitProducerId
    24,  # AddPartitionsToTxn
    25,  # AddOffsetsToTxn
    26,  # EndTxn
    28,  # TxnOffsetCommit
    29,  # DescribeAcls: refused as by a cluster without ACLs, which MirrorMaker takes for an answer
    30,  # CreateAcls
    31,  # DeleteAcls
    33,  # AlterConfigs
    37,  # CreatePartitions
    43,  # ElectLeaders
    44,  # IncrementalAlterConfigs
    45,  # AlterPartitionReassignments
)


@dataclass(frozen=True, slots=True)
class SupportedApi:
    """One kind of request; both versions are inclusive."""

    api_key: int
    name: str  # Kafka's
    min_version: int
    max_version: int


def _supported(api_key: int) -> SupportedApi:
    name = api_key_map[api_key]
    versions = schema_name_map[name]
    return SupportedApi(api_key, "".join(map(str.capitalize, name.split("_"))), min(versions), max(versions))


API_TABLE: Final[Mapping[int, SupportedApi]] = MappingProxyType(
    {api_key: _supported(api_key) for api_key in sorted(_READS + _GROUPS + _LOGIN + _WRITES)}
)
"""By api key, ascending. Every one of them is advertised and has a handler."""
