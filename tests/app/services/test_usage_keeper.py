import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tierd.app.services.broker_cost import broker_cost
from tierd.app.services.usage_keeper import UsageKeeper
from tierd.clock import SystemClock
from tierd.config import LogDirSettings, RemoteSettings, TierdConfig
from tierd.config.sections.remote_settings import FilesystemSettings
from tierd.cost import HOUR_MS, UsageLedger
from tierd.cost.usage_ledger import UsageLine
from tierd.errors import StateDirError
from tierd.model import uuid_to_text
from tierd.remote import ObjectKeyFactory, ObjectStoreCall

KEYS = ObjectKeyFactory("prod", "cluster")
KEY = f"{KEYS.root}orders-{uuid_to_text(UUID(int=7))}/0/{0:020d}-{uuid_to_text(UUID(int=9))}.log"


@pytest.fixture
def config(tmp_path: Path) -> TierdConfig:
    return TierdConfig(
        state_dir=tmp_path,
        log_dirs=(LogDirSettings(path=Path("/kafka")),),
        remote=RemoteSettings(backend="filesystem", filesystem=FilesystemSettings(path=Path("/mnt/tier"))),
    )


def call(key: str, operation: str = "put", size_bytes: int = 10) -> ObjectStoreCall:
    return ObjectStoreCall(operation, key, "ok", 0.1, size_bytes)


def ledger_lines(config: TierdConfig) -> list[UsageLine]:
    return list(UsageLedger(config.state_dir / "usage").read(from_ms=0, to_ms=2_000_000_000_000))


async def test_usage_is_written_at_the_full_hour_and_at_the_end(config: TierdConfig) -> None:
    clock, billed = ManualClock(), []
    keeper = UsageKeeper(config.state_dir, config.remote, KEYS, clock=clock, record=lambda *item: billed.append(item))
    keeper.attempted(call(KEY))
    keeper.attempted(call("prod/cluster/", "list", 0))

    running = asyncio.create_task(keeper.run(lambda: {"orders": 10}))
    await eventually(lambda: clock.sleeping == 1, what="the wait for the full hour")
    clock.advance(HOUR_MS / 1000)
    hour_ms = clock.now_ms() // HOUR_MS * HOUR_MS
    await eventually(lambda: clock.sleeping == 1 and len(ledger_lines(config)) == 3, what="the first hour's lines")
    first = ledger_lines(config)
    keeper.attempted(call(KEY, "get", 5))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert billed == [("orders", "put", 1, 10), ("", "list", 1, 0), ("orders", "get", 1, 5)]
    assert [(line.topic, line.operation, line.requests) for line in first] == [
        ("", "list", 1),
        ("orders", "put", 1),
        ("orders", "stored", 0),
    ]
    assert [(line.operation, line.hour_ms) for line in ledger_lines(config)[3:]] == [
        ("get", hour_ms),
        ("stored", hour_ms),
    ]


def test_failed_part_of_an_upload_is_billed_beside_its_put(config: TierdConfig) -> None:
    billed: list[tuple[str, str, int, int]] = []
    keeper = UsageKeeper(
        config.state_dir, config.remote, KEYS, clock=ManualClock(), record=lambda *item: billed.append(item)
    )
    keeper.attempted(ObjectStoreCall("upload_part", KEY, "retriable", 0.1, 0))
    keeper.attempted(ObjectStoreCall("upload_part", KEY, "ok", 0.1, 0))
    keeper.attempted(ObjectStoreCall("complete_upload", KEY, "ok", 0.1, 0))
    keeper.attempted(call(KEY))
    assert billed == [("orders", "put", 1, 0), ("orders", "put", 1, 10)]


async def test_usage_that_cannot_be_written_does_not_end_its_keeper(config: TierdConfig) -> None:
    clock = ManualClock()
    keeper = UsageKeeper(config.state_dir, config.remote, KEYS, clock=clock, record=lambda *_: None)
    (config.state_dir / "usage").write_text("in the way")
    keeper.attempted(call(KEY))

    running = asyncio.create_task(keeper.run(dict))
    for _ in range(3):
        await eventually(lambda: clock.sleeping == 1, what="the wait for the full hour")
        clock.advance(HOUR_MS / 1000)

    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_usage_of_a_broker_is_priced_from_the_price_file(config: TierdConfig, tmp_path: Path) -> None:
    now_ms = SystemClock().now_ms()
    UsageLedger(config.state_dir / "usage").append([UsageLine(now_ms - now_ms % HOUR_MS, "orders", "put", 1000, 0)])
    prices = tmp_path / "prices.yaml"
    prices.write_text("per_1000_requests: {put: 2.5}\n")

    assert broker_cost(config.state_dir, config.remote, days=1, price_file=prices).past.requests == 2.5
    assert (
        broker_cost(config.state_dir, config.remote, days=1, price_file=None).past.requests == 0
    )  # a directory of one's own costs nothing


def test_ledger_that_cannot_be_listed_is_an_error(config: TierdConfig) -> None:
    (config.state_dir / "usage").touch()  # as good as a directory of another user
    with pytest.raises(StateDirError, match="usage") as caught:
        broker_cost(config.state_dir, config.remote, days=30, price_file=None)
    assert "user" in caught.value.remedy


def test_ledger_that_cannot_be_read_is_an_error(config: TierdConfig) -> None:
    this_month = datetime.now(UTC).strftime("%Y-%m")
    (config.state_dir / "usage" / f"{this_month}.jsonl").mkdir(parents=True)
    with pytest.raises(StateDirError, match=this_month):
        broker_cost(config.state_dir, config.remote, days=1, price_file=None)


def test_cost_of_a_broker_without_recorded_usage_is_empty(config: TierdConfig) -> None:
    assert broker_cost(config.state_dir, config.remote, days=30, price_file=None).topics == ()
