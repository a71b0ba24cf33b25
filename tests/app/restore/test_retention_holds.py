"""Holds of the retention over a scripted broker: what is kept, changed and lifted, and what a refusal leaves."""

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.fakes.clock import FakeClock
from tests.fakes.kafka_broker import CLUSTER_ID, ScriptedBroker
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation
from tierd.app.engine.deployment import Deployment
from tierd.app.restore.held_retentions import HeldRetentions
from tierd.app.restore.retention_holds import RetentionHolds, lift_retention
from tierd.config import load_config
from tierd.errors import KafkaError, RefusedError, StateDirError

ORDERS = UUID(int=7)
WEEK = {"retention.ms": "604800000"}
HELD = {"retention.ms": "-1", "retention.bytes": "-1"}
NOWHERE = "127.0.0.1:1"


def installed(tmp_path: Path, *servers: str) -> Deployment:
    log_dir = LogDirWriter(tmp_path / "kafka")
    kafka = {"leadership": {"kafka": {"bootstrap_servers": list(servers)}}} if servers else {}
    tierd = Installation(tmp_path / "tierd", [log_dir.path], settings=kafka)
    return Deployment(load_config(tierd.config_file, {}), tierd.config_file)


def broker_with(own: Mapping[str, str]) -> ScriptedBroker:
    return ScriptedBroker(topics={ORDERS: {0: (1, 4)}}, configs={"orders": dict(own)})


async def planned(deployment: Deployment, *, known: Mapping[str, str] | None = None) -> RetentionHolds:
    return await RetentionHolds.plan(
        deployment,
        {"orders": ORDERS},
        {} if known is None else {"orders": known},
        cluster_id=CLUSTER_ID,
        clock=FakeClock(now_ms=77),
    )


def records(deployment: Deployment) -> HeldRetentions:
    return HeldRetentions(deployment.state_dir)


async def test_plan_of_a_hold_asks_and_changes_nothing(tmp_path: Path) -> None:
    broker = broker_with(WEEK)
    async with broker.listening() as address:
        (hold,) = (await planned(installed(tmp_path, address))).topics
    assert (hold.problem, hold.before) == ("", {"retention.ms": "604800000", "retention.bytes": None})
    assert broker.configs["orders"] == WEEK
    assert f"--bootstrap-server {address} " in hold.hold_command


async def test_held_retention_is_kept_and_lifted(tmp_path: Path) -> None:
    broker = broker_with(WEEK | {"segment.bytes": "9"})
    async with broker.listening() as address:
        deployment = installed(tmp_path, address)
        await (await planned(deployment)).hold()
        assert broker.configs["orders"] == {**HELD, "segment.bytes": "9"}
        (kept,) = records(deployment).read()
        assert (kept.topic, kept.topic_id, kept.held_ms) == ("orders", ORDERS, 77)

        (told,) = await lift_retention(deployment, (), is_plan=True)
        assert (told.changes, told.problem) == ({"retention.ms": "604800000", "retention.bytes": None}, None)
        assert broker.configs["orders"] == {**HELD, "segment.bytes": "9"}

        (lifted,) = await lift_retention(deployment, ("orders",), is_plan=False)
        assert (lifted.changes, lifted.note, lifted.problem) == (told.changes, "", None)
        assert broker.configs["orders"] == {**WEEK, "segment.bytes": "9"}
        assert records(deployment).read() == []
        assert await lift_retention(deployment, (), is_plan=False) == []


async def test_repeated_hold_keeps_the_settings_before_the_first_one(tmp_path: Path) -> None:
    broker = broker_with(WEEK)
    async with broker.listening() as address:
        deployment = installed(tmp_path, address)
        await (await planned(deployment)).hold()
        await (await planned(deployment)).hold()
        del broker.configs["orders"]["retention.bytes"]  # as after a crash between two changes
        await (await planned(deployment)).hold()
        await lift_retention(deployment, (), is_plan=False)
    assert broker.configs["orders"] == WEEK


async def test_setting_that_was_changed_since_the_hold_stays(tmp_path: Path) -> None:
    broker = broker_with(WEEK)
    async with broker.listening() as address:
        deployment = installed(tmp_path, address)
        await (await planned(deployment)).hold()
        broker.configs["orders"]["retention.ms"] = "5"
        (lifted,) = await lift_retention(deployment, (), is_plan=False)
    assert lifted.note == "retention.ms was changed since the hold, and stays"
    assert broker.configs["orders"] == {"retention.ms": "5"}


async def test_refused_change_holds_nothing_and_names_the_command(tmp_path: Path) -> None:
    broker = broker_with(WEEK)
    broker.refuses_changes = ErrorCode.topic_authorization_failed
    async with broker.listening() as address:
        holds = await planned(installed(tmp_path, address))
        with pytest.raises(RefusedError, match="topic_authorization_failed") as refused:
            await holds.hold()
    assert "kafka-configs.sh" in refused.value.remedy
    assert broker.configs["orders"] == WEEK


async def test_refused_lift_is_told_and_the_record_stays(tmp_path: Path) -> None:
    broker = broker_with(WEEK)
    async with broker.listening() as address:
        deployment = installed(tmp_path, address)
        await (await planned(deployment)).hold()
        broker.refuses_changes = ErrorCode.topic_authorization_failed
        (held,) = await lift_retention(deployment, (), is_plan=False)
        assert "topic_authorization_failed" in str(held.problem)
        broker.refuses_changes = ErrorCode.none
        broker.topics.clear()
        (gone,) = await lift_retention(deployment, (), is_plan=False)
        assert "the cluster has no topic orders of id " in str(gone.problem)
        assert len(records(deployment).read()) == 1


@pytest.mark.parametrize("servers", [(), (NOWHERE,)], ids=["none configured", "none answers"])
async def test_retention_that_no_broker_lets_tierd_hold_is_left_to_a_person(
    tmp_path: Path, servers: tuple[str, ...]
) -> None:
    deployment = installed(tmp_path, *servers)
    holds = await planned(deployment, known=WEEK)
    (hold,) = holds.topics
    assert hold.problem
    assert hold.lift_command.endswith("--add-config retention.ms=604800000 --delete-config retention.bytes")
    await holds.hold()
    assert records(deployment).read() == []


async def test_brokers_of_another_cluster_are_not_in_the_commands(tmp_path: Path) -> None:
    broker = broker_with(WEEK)
    broker.cluster_id = "b3RoZXItY2x1c3Rlci1pZA"
    async with broker.listening() as address:
        (hold,) = (await planned(installed(tmp_path, address))).topics
    assert "belongs to cluster" in hold.problem
    assert " HOST:9092 " in hold.hold_command


async def test_topic_of_another_id_is_not_held(tmp_path: Path) -> None:
    broker = ScriptedBroker(topics={UUID(int=8): {0: (1, 4)}}, configs={"orders": dict(WEEK)})
    async with broker.listening() as address:
        holds = await planned(installed(tmp_path, address))
        assert holds.topics[0].problem.startswith("the cluster has no topic of id ")
        await holds.hold()
    assert broker.configs["orders"] == WEEK


async def test_brokers_that_are_gone_since_the_plan_end_the_restore(tmp_path: Path) -> None:
    broker = broker_with(WEEK)
    async with broker.listening() as address:
        holds = await planned(installed(tmp_path, address))
    with pytest.raises(KafkaError):
        await holds.hold()


async def test_lift_of_a_topic_that_is_not_held_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="does not hold the retention of audit"):
        await lift_retention(installed(tmp_path), ("audit",), is_plan=False)


async def test_lift_without_a_connection_names_the_command(tmp_path: Path) -> None:
    broker = broker_with(WEEK)
    async with broker.listening() as address:
        await (await planned(installed(tmp_path / "first", address))).hold()
    deployment = installed(tmp_path / "first")
    (held,) = await lift_retention(deployment, (), is_plan=False)
    assert held.problem is not None
    assert "--add-config retention.ms=604800000 --delete-config retention.bytes" in held.problem.remedy


async def test_damaged_record_is_named(tmp_path: Path) -> None:
    deployment = installed(tmp_path)
    folder = deployment.state_dir / "held-retention"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text("{")
    with pytest.raises(StateDirError, match=r"x\.json is damaged"):
        await lift_retention(deployment, (), is_plan=False)
