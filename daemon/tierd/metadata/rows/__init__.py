"""Rows of one partition as the store has them: their keys, their values, and the claim in the partition row."""

from tierd.metadata.rows import serde
from tierd.metadata.rows.key_factory import MetadataKeyFactory, partition_named_by
from tierd.metadata.rows.newest_epochs import EPOCHS_KEPT, CopiedEpoch, CopiedEpochs, NewestEpochs, TierEpochs
from tierd.metadata.rows.partition_row import RECORD_IN_DOUBT, Claim, PartitionDelete, PartitionRow, claimed_row, fenced
from tierd.metadata.rows.serde import decode_segment, encode_segment
from tierd.metadata.rows.value_fields import FORMAT, decoded_value, encode_value, int_field, text_field

__all__ = [
    "EPOCHS_KEPT",
    "FORMAT",
    "RECORD_IN_DOUBT",
    "Claim",
    "CopiedEpoch",
    "CopiedEpochs",
    "MetadataKeyFactory",
    "NewestEpochs",
    "PartitionDelete",
    "PartitionRow",
    "TierEpochs",
    "claimed_row",
    "decode_segment",
    "decoded_value",
    "encode_segment",
    "encode_value",
    "fenced",
    "int_field",
    "partition_named_by",
    "serde",
    "text_field",
]
