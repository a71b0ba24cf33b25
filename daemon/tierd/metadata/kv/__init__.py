"""The metadata backends behind one narrow promise: memory for tests, SQLite for one host, PostgreSQL and Redis."""

from tierd.metadata.kv.base import Batch, Delete, Expect, KeyValueStore, Put
from tierd.metadata.kv.deadline import CallLatency, DeadlineKeyValueStore
from tierd.metadata.kv.memory import MemoryKeyValueStore
from tierd.metadata.kv.postgres import PostgresKeyValueStore
from tierd.metadata.kv.redis import RedisKeyValueStore
from tierd.metadata.kv.sqlite import SqliteKeyValueStore

__all__ = [
    "Batch",
    "CallLatency",
    "DeadlineKeyValueStore",
    "Delete",
    "Expect",
    "KeyValueStore",
    "MemoryKeyValueStore",
    "PostgresKeyValueStore",
    "Put",
    "RedisKeyValueStore",
    "SqliteKeyValueStore",
]
