"""Every verb of the control socket, and its request. Values only.

A request names partitions where the verb works on partitions; none means all, unless the field is ``partition``.
"""

import base64
import binascii
from typing import Annotated, Final
from uuid import UUID

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, StrictBool, TypeAdapter

from tierd.model import TopicPartition, uuid_from_text, uuid_to_text
from tierd.serve.control_answers import (
    CompactionPlan,
    DeletedPartition,
    ErasureReport,
    ExpiredPartitions,
    PartitionNames,
    PeerAnswer,
    PeersAnswer,
    QuarantineAnswer,
    RunBegun,
    StatusAnswer,
    SteppedErasures,
    UndeletedSegments,
)
from tierd.serve.control_protocol import ControlRequest, ControlVerb


def _parse_partition(value: object) -> TopicPartition:
    if isinstance(value, TopicPartition):
        return value
    if not isinstance(value, str):
        raise ValueError("not a text")  # noqa: TRY004 - pydantic reports a ValueError
    return TopicPartition.parse(value)


def _parse_id(value: object) -> object:
    return uuid_from_text(value) if isinstance(value, str) else value


def _parse_optional_id(value: object) -> object:
    return None if value == "" else _parse_id(value)


def _encode_optional_id(value: UUID | None) -> str | None:
    return None if value is None else uuid_to_text(value)


def _decode_key(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _encode_key(key: bytes) -> str:
    return base64.b64encode(key).decode()


_Partition = Annotated[TopicPartition, PlainValidator(_parse_partition), PlainSerializer(str)]
_Id = Annotated[UUID, BeforeValidator(_parse_id), PlainSerializer(uuid_to_text)]
_OptionalId = Annotated[UUID | None, BeforeValidator(_parse_optional_id), PlainSerializer(_encode_optional_id)]
_Key = Annotated[bytes, BeforeValidator(_decode_key), PlainSerializer(_encode_key)]


class StatusRequest(ControlRequest):
    """A request for the status of the daemon."""


class PartitionNamesRequest(ControlRequest):
    """A request for the names of partitions that begin with ``prefix``, for the completion of a shell."""

    prefix: str = ""


class PartitionsRequest(ControlRequest):
    """A request to pause, resume or look at partitions."""

    partitions: tuple[_Partition, ...] = ()


class ExpireRequest(ControlRequest):
    """A request to expire what retention does not keep; with ``dry_run`` only the plan is returned."""

    partitions: tuple[_Partition, ...] = ()
    dry_run: StrictBool = False


class UndeleteRequest(ControlRequest):
    """A request to take segments of a partition back while they are in their grace.

    Attributes:
        segments: ids; none means every segment that is in its grace.
        force: also take back what retention would delete again, or what leaves a hole.
        dry_run: only the plan is returned.
    """

    partition: _Partition
    segments: tuple[_Id, ...] = ()
    force: StrictBool = False
    dry_run: StrictBool = False


class DeletePartitionRequest(ControlRequest):
    """A request to delete the whole tier of a partition.

    Attributes:
        topic_id: which incarnation of the topic; None where the metadata knows one alone.
        at_once: without the grace.
        force: although the partition is led here and copied.
    """

    partition: _Partition
    topic_id: _OptionalId = None
    at_once: StrictBool = False
    force: StrictBool = False


class CompactRequest(ControlRequest):
    """A request to begin a run of the pipeline; with ``dry_run`` only the plan is returned."""

    partitions: tuple[_Partition, ...] = ()
    dry_run: StrictBool = False


class FileErasureRequest(ControlRequest):
    """A request to erase every record with one of some keys from the tier of a partition.

    Attributes:
        keys: base64 in the line; left out of ``repr``, since keys may be personal data.
        by: the person that files the request, for the report.
        reason: why, for the report.
        at_once: what is replaced leaves without the grace.
        removes_unread: batches that unpack to more than tierd opens go whole.
    """

    partition: _Partition
    keys: Annotated[tuple[_Key, ...], Field(repr=False)]
    by: str = ""
    reason: str = ""
    at_once: StrictBool = False
    removes_unread: StrictBool = False


class CancelErasureRequest(ControlRequest):
    """A request to withdraw an erasure that is not done."""

    request_id: _Id


class AttestErasureRequest(ControlRequest):
    """A person's statement that no older versions of objects are left.

    Attributes:
        by: the person that makes the statement.
        statement: how the person found out.
    """

    request_id: _Id
    by: str = ""
    statement: str = ""


class StepErasuresRequest(ControlRequest):
    """A request to take open erasures as far as they may go now."""

    partitions: tuple[_Partition, ...] = ()


class QuarantineRequest(ControlRequest):
    """A request to let the clients of the read endpoint go that are held back, or to hold them back again.

    Attributes:
        by: the person that asks, for the log and the file of the quarantine.
    """

    by: str = ""


class PeersRequest(ControlRequest):
    """A request for the daemons that announced themselves over MQTT."""


class AskPeerRequest(ControlRequest):
    """A request that the daemon passes on to the daemon of another node, over MQTT.

    Attributes:
        verb: such as ``status``; the other daemon says which ones it answers.
    """

    node: int
    verb: str
    partitions: tuple[_Partition, ...] = ()


STATUS: Final = ControlVerb("status", StatusRequest, TypeAdapter(StatusAnswer))
PARTITIONS: Final = ControlVerb("partitions", PartitionNamesRequest, TypeAdapter(PartitionNames))
PAUSE: Final = ControlVerb("pause", PartitionsRequest, TypeAdapter(PartitionNames))
PEERS: Final = ControlVerb("peers", PeersRequest, TypeAdapter(PeersAnswer))
ASK_PEER: Final = ControlVerb("ask-peer", AskPeerRequest, TypeAdapter(PeerAnswer))
RESUME: Final = ControlVerb("resume", PartitionsRequest, TypeAdapter(PartitionNames))
SYNC: Final = ControlVerb("sync", PartitionsRequest, TypeAdapter(PartitionNames))
EXPIRE: Final = ControlVerb("expire", ExpireRequest, TypeAdapter(ExpiredPartitions))
UNDELETE: Final = ControlVerb("undelete", UndeleteRequest, TypeAdapter(UndeletedSegments))
DELETE_PARTITION: Final = ControlVerb("delete-partition", DeletePartitionRequest, TypeAdapter(DeletedPartition))
COMPACT: Final[ControlVerb[CompactRequest, CompactionPlan | RunBegun]] = ControlVerb(
    "compact", CompactRequest, TypeAdapter(CompactionPlan | RunBegun)
)
FILE_ERASURE: Final = ControlVerb("erase", FileErasureRequest, TypeAdapter(ErasureReport))
CANCEL_ERASURE: Final = ControlVerb("cancel-erasure", CancelErasureRequest, TypeAdapter(ErasureReport))
ATTEST_ERASURE: Final = ControlVerb("attest-erasure", AttestErasureRequest, TypeAdapter(ErasureReport))
STEP_ERASURES: Final = ControlVerb("step-erasures", StepErasuresRequest, TypeAdapter(SteppedErasures))
RELEASE_ENDPOINT: Final = ControlVerb("release-endpoint", QuarantineRequest, TypeAdapter(QuarantineAnswer))
HOLD_ENDPOINT: Final = ControlVerb("hold-endpoint", QuarantineRequest, TypeAdapter(QuarantineAnswer))
