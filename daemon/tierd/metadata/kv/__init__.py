"""The metadata backends behind one narrow promise, ``KeyValueStore``: memory for tests, SQLite for a single host."""

from tierd.metadata.kv.base import Batch, Delete, Expect, KeyValueStore, Put
from tierd.metadata.kv.deadline import CallLatency, DeadlineKeyValueStore
from tierd.metadata.kv.memory import MemoryKeyValueStore
from tierd.metadata.kv.sqlite import SqliteKeyValueStore

__all__ = [
    "Batch",
    "CallLatency",
    "DeadlineKeyValueStore",
    "Delete",
    "Expect",
    "KeyValueStore",
    "MemoryKeyValueStore",
    "Put",
    "SqliteKeyValueStore",
]
