"""The metadata backends behind one narrow interface: memory for tests, SQLite for one host, PostgreSQL and Redis."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.metadata.kv.deadline import CallLatency, DeadlineKeyValueStore, OnOutcome
    from tierd.metadata.kv.in_memory import MemoryKeyValueStore
    from tierd.metadata.kv.key_value_store import Batch, Delete, DeletePrefix, Expect, ExpectPresent, KeyValueStore, Put
    from tierd.metadata.kv.postgres import PostgresKeyValueStore
    from tierd.metadata.kv.redis import RedisKeyValueStore
    from tierd.metadata.kv.sqlite import SqliteKeyValueStore
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "Batch",
    "CallLatency",
    "DeadlineKeyValueStore",
    "Delete",
    "DeletePrefix",
    "Expect",
    "ExpectPresent",
    "KeyValueStore",
    "MemoryKeyValueStore",
    "OnOutcome",
    "PostgresKeyValueStore",
    "Put",
    "RedisKeyValueStore",
    "SqliteKeyValueStore",
]
