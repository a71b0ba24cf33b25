"""Loops over raw bytes and their arithmetic: numbers in, numbers out, no I/O."""

from tierd.kernels.arrays import Gathered, GatheredHeaders, Numbers
from tierd.kernels.checksums import combine_crc32c, crc32c, crc32c_of_file, crc32c_of_range
from tierd.kernels.choice import compile_kernels, compile_kernels_for
from tierd.kernels.columns import STEP_RECORDS, Columns, RecordFault
from tierd.kernels.kernel_calls import (
    HASH_SECRET_BYTES,
    decode_batches,
    decode_records,
    gather,
    gather_headers,
    hash_keys,
    latest_in_order,
    latest_per_key,
    new_hash_secret,
    pack_rows,
    rewrite_batches,
    select_records,
)

__all__ = [
    "HASH_SECRET_BYTES",
    "STEP_RECORDS",
    "Columns",
    "Gathered",
    "GatheredHeaders",
    "Numbers",
    "RecordFault",
    "combine_crc32c",
    "compile_kernels",
    "compile_kernels_for",
    "crc32c",
    "crc32c_of_file",
    "crc32c_of_range",
    "decode_batches",
    "decode_records",
    "gather",
    "gather_headers",
    "hash_keys",
    "latest_in_order",
    "latest_per_key",
    "new_hash_secret",
    "pack_rows",
    "rewrite_batches",
    "select_records",
]
