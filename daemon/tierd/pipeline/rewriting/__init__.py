"""Work of the log cleaner on segments that come in pieces: the search for the latest records, and new groups.

The code is synchronous, uses no Spark, and does no I/O but the output file: the same input gives the same bytes on any
host.
"""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.pipeline.rewriting.batch_rewriter import BatchRewriter
    from tierd.pipeline.rewriting.group import RewrittenSegment, rewrite_group
    from tierd.pipeline.rewriting.input_log import InputLog
    from tierd.pipeline.rewriting.key_hashing import KeyHashing
    from tierd.pipeline.rewriting.new_batch import NewBatch
    from tierd.pipeline.rewriting.offset_set import OffsetSet
    from tierd.pipeline.rewriting.plain_batches import NewBatches
    from tierd.pipeline.rewriting.record_rows import RecordRows
    from tierd.pipeline.rewriting.rewrite_statistics import RewriteStatistics
    from tierd.pipeline.rewriting.rules import RewriteRules
    from tierd.pipeline.rewriting.scan import KeyColumns, find_keys, keys_of, scan_keys
    from tierd.pipeline.rewriting.transaction_pass import TransactionTrace
    from tierd.pipeline.rewriting.unread import UnreadBatches
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "BatchRewriter",
    "InputLog",
    "KeyColumns",
    "KeyHashing",
    "NewBatch",
    "NewBatches",
    "OffsetSet",
    "RecordRows",
    "RewriteRules",
    "RewriteStatistics",
    "RewrittenSegment",
    "TransactionTrace",
    "UnreadBatches",
    "find_keys",
    "keys_of",
    "rewrite_group",
    "scan_keys",
]
