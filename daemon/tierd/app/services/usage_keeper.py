"""Requests to the store, written down hour by hour, and read again for ``tierd cost``."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from tierd.app.services.broker_cost import usage_ledger
from tierd.clock import Clock
from tierd.config import RemoteSettings
from tierd.cost import HOUR_MS, IN_A_PUT, OTHER_TOPIC, Usage
from tierd.remote import ObjectKeyFactory, ObjectStoreCall

log = structlog.get_logger()

_DAY_MS = 24 * HOUR_MS


class UsageKeeper:
    """Counter of attempts at calls of the store, which writes the ledger once an hour and at the end."""

    def __init__(
        self,
        state_dir: Path,
        settings: RemoteSettings,
        keys: ObjectKeyFactory,
        *,
        clock: Clock,
        record: Callable[[str, str, int, int], None],
    ) -> None:
        """Count nothing yet; ``record`` is called for every billed call: topic, request class, requests and bytes."""
        self._usage = Usage(part_size_bytes=settings.s3.part_size_bytes if settings.s3 else None)
        self._ledger = usage_ledger(state_dir)
        self._keys = keys
        self._clock = clock
        self._record = record

    def attempted(self, call: ObjectStoreCall) -> None:
        """Count one attempt, failed ones too: stores bill most of them."""
        if call.operation in IN_A_PUT and call.outcome == "ok":
            return  # the put that they belong to counts them
        key = self._keys.parse(call.key) or self._keys.parse_log_start(call.key)
        topic = key.topic if key else OTHER_TOPIC
        for billed, size_bytes in self._usage.add_call(self._clock.now_ms(), topic, call.operation, call.size_bytes):
            self._record(topic, billed.kind.value, billed.requests, size_bytes)

    async def run(self, stored: Callable[[], Mapping[str, int]]) -> None:
        """Write at every full hour until cancelled, and once more then; ``stored`` says what each topic holds."""
        try:
            while True:
                await self._clock.sleep((HOUR_MS - self._clock.now_ms() % HOUR_MS) / 1000)
                await self._write(stored())
        finally:
            await asyncio.shield(self._write(stored()))

    async def _write(self, stored: Mapping[str, int]) -> None:
        lines = self._usage.take(self._clock.now_ms() - 1, stored)
        try:
            await asyncio.to_thread(self._ledger.append, lines)
        except OSError as error:
            log.warning("usage_not_written", problem=str(error), remedy="tierd cost will lack this hour")
