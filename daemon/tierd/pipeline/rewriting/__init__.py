"""The log cleaner's work on segments that come in pieces: which records are the latest, and groups written anew.

Synchronous, no Spark, no I/O but the output file: the same bytes in, the same bytes out, wherever a task runs.
"""

from tierd.pipeline.rewriting.group import RewrittenSegment, rewrite_group
from tierd.pipeline.rewriting.input_log import InputLog
from tierd.pipeline.rewriting.offset_set import OffsetSet
from tierd.pipeline.rewriting.rules import RewriteRules
from tierd.pipeline.rewriting.scan import KeyColumns, find_keys, scan_keys
from tierd.pipeline.rewriting.statistics import RewriteStatistics
from tierd.pipeline.rewriting.transactions import TransactionTrace

__all__ = [
    "InputLog",
    "KeyColumns",
    "OffsetSet",
    "RewriteRules",
    "RewriteStatistics",
    "RewrittenSegment",
    "TransactionTrace",
    "find_keys",
    "rewrite_group",
    "scan_keys",
]
