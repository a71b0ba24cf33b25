"""What a run does, decided from metadata alone: which segments, in which groups, by which rules. Values only."""

from tierd.pipeline.planning.order_codec import (
    decode_order,
    decode_output,
    decode_work,
    encode_order,
    encode_output,
    encode_work,
)
from tierd.pipeline.planning.work_order import SECRET_BYTES, Group, Output, PartitionWork, WorkKind, WorkOrder

__all__ = [
    "SECRET_BYTES",
    "Group",
    "Output",
    "PartitionWork",
    "WorkKind",
    "WorkOrder",
    "decode_order",
    "decode_output",
    "decode_work",
    "encode_order",
    "encode_output",
    "encode_work",
]
