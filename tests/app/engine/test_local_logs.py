"""Log dirs with owner tierd: their settings, and a whole engine over one."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.eventually import eventually
from tierd.app.engine.compose import compose
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.local_logs import log_config, service_settings
from tierd.config import LogCleanerSettings, TierdConfig, TopicDefaults
from tierd.config.sections.own_log_settings import OwnLogSettings
from tierd.errors import CorruptRecordError
from tierd.log import LogConfig, NewRecord, ServiceSettings, TimestampType, encode_batch
from tierd.model import TopicPartition
from tierd.tiering import PassiveSupervisor, TopicPolicy

NAME = TopicPartition("orders", 0)


class TestServiceSettings:
    def test_cleaner_uses_the_settings_of_its_section(self) -> None:
        section = LogCleanerSettings.model_validate({"io_max_bytes_per_second": "10MiB", "backoff_ms": "2m"})
        settings = service_settings(section)
        assert (settings.cleaner_bytes_per_s, settings.cleaner_interval_s) == (10 << 20, 120.0)

    def test_cleaner_without_a_section_has_the_defaults_of_a_broker(self) -> None:
        assert service_settings(LogCleanerSettings()) == ServiceSettings()

    @pytest.mark.parametrize("wrong", [{"io_max_bytes_per_second": 0}, {"backoff_ms": 0}])
    def test_cleaner_settings_of_zero_rate_or_pause_are_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LogCleanerSettings.model_validate(wrong)


class TestLogConfig:
    def test_limits_of_an_own_log_are_those_of_the_policy(self) -> None:
        policy = TopicPolicy(retention_ms=9, retention_bytes=8, local_retention_ms=7, local_retention_bytes=6)
        config = log_config(policy, TopicDefaults(), is_tiered=True)
        assert (config.retention_ms, config.retention_bytes) == (9, 8)
        assert (config.local_retention_ms, config.local_retention_bytes) == (7, 6)
        assert config.is_copy_enabled

    def test_log_of_a_topic_that_is_not_tiered_does_not_wait_for_a_copy(self) -> None:
        assert not log_config(TopicPolicy(), TopicDefaults(), is_tiered=False).remote_storage_enable
        assert not log_config(
            TopicPolicy(cleanup_policy=frozenset({"compact"})), TopicDefaults(), is_tiered=True
        ).remote_storage_enable

    def test_local_limits_without_copies_are_the_total_ones(self) -> None:
        config = log_config(
            TopicPolicy(retention_ms=9, local_retention_ms=3, copy_enabled=False), TopicDefaults(), is_tiered=True
        )
        assert (config.local_retention_ms, config.is_copy_enabled) == (-2, False)

    @pytest.mark.parametrize("local", [-1, 10])
    def test_local_limit_above_the_total_one_is_the_total_one(self, local: int) -> None:
        assert (
            log_config(
                TopicPolicy(retention_ms=9, local_retention_ms=local), TopicDefaults(), is_tiered=True
            ).local_retention_ms
            == -2
        )

    def test_log_with_a_policy_that_is_not_known_yet_keeps_all_records(self) -> None:
        config = log_config(TopicPolicy(retention_ms=9, cleanup_policy=frozenset()), TopicDefaults(), is_tiered=True)
        assert (config.retention_ms, config.cleanup_policy) == (-1, frozenset({"delete"}))

    def test_defaults_of_the_file_are_those_of_kafka(self) -> None:
        assert log_config(TopicPolicy(), TopicDefaults(), is_tiered=False) == LogConfig(retention_ms=-1)

    def test_every_setting_of_a_log_can_be_set_for_a_topic(self) -> None:
        said = {
            "segment_ms": 1,
            "segment_jitter_ms": 2,
            "segment_index_bytes": 8,
            "index_interval_bytes": 4,
            "max_message_bytes": 5,
            "flush_messages": 6,
            "flush_ms": 7,
            "file_delete_delay_ms": 8,
            "message_timestamp_type": "LogAppendTime",
            "message_timestamp_before_max_ms": 9,
            "message_timestamp_after_max_ms": 10,
            "compression_type": "zstd",
            "preallocate": True,
            "producer_id_expiration_ms": 11,
            "producer_id_expiration_check_interval_ms": 12,
        }
        assert said.keys() == OwnLogSettings.model_fields.keys()
        settings = TopicDefaults(
            delete_retention_s=13,
            min_cleanable_dirty_ratio=0.25,
            min_compaction_lag_s=14,
            max_compaction_lag_s=15,
            log=OwnLogSettings.model_validate(said),
        )
        policy = TopicPolicy(segment_bytes=2000, cleanup_policy=frozenset({"compact"}))
        assert log_config(policy, settings, is_tiered=True) == LogConfig(
            **{**said, "message_timestamp_type": TimestampType.LOG_APPEND_TIME},  # type: ignore[arg-type]
            segment_bytes=2000,
            retention_ms=-1,
            cleanup_policy=frozenset({"compact"}),
            delete_retention_ms=13_000,
            min_cleanable_dirty_ratio=0.25,
            min_compaction_lag_ms=14_000,
            max_compaction_lag_ms=15_000,
        )


def _config(tmp_path: Path, **topics: object) -> TierdConfig:
    return TierdConfig.model_validate(
        {
            "cluster_id": "dGllcmQtc3ludGhldGljLQ",
            "node_id": 1,
            "state_dir": str(tmp_path / "state"),
            "log_dirs": [{"path": str(tmp_path / "own"), "owner": "tierd"}],
            "remote": {"backend": "filesystem", "filesystem": {"path": str(tmp_path / "store")}},
            "topics": topics,
        }
    )


async def test_own_logs_are_opened_copied_and_follow_their_policies(tmp_path: Path) -> None:
    config = _config(tmp_path, defaults={"segment_bytes": "4MiB", "retention": "7d"})
    (tmp_path / "state").mkdir()
    async with compose(Deployment(config, tmp_path / "tierd.yaml")) as engine:
        assert engine.logs.service is not None
        writer = await engine.logs.service.get_or_create(NAME, topic_id=uuid4())
        batch = encode_batch([NewRecord(b"key", b"value", engine.clock.now_ms())], base_offset=0)
        for _ in range(3):
            await writer.append_as_leader(batch, leader_epoch=0)
        await writer.run(lambda log: log.roll(now_ms=engine.clock.now_ms()))
        await writer.append_as_leader(batch, leader_epoch=0)
        writer.log.update_high_watermark(4)
        (outcome,) = await engine.new_tiering(PassiveSupervisor()).manager.copy_once()
        assert (outcome.error, outcome.status.copied_through) == (None, 2)
        assert (writer.log.highest_remote_offset, writer.log.config.is_copy_enabled) == (2, True)
        engine.settings.config = _config(tmp_path, defaults={"copy": False, "segment_bytes": "4MiB"})
        await engine.logs.follow_policies()
        assert (writer.log.config.is_copy_enabled, writer.log.config.retention_ms) == (False, -1)
        assert isinstance(writer.log.config, LogConfig)


async def test_compacted_own_logs_are_cleaned_by_the_daemon(tmp_path: Path) -> None:
    config = _config(tmp_path, defaults={"cleanup_policy": "compact", "segment_bytes": "1KiB"})
    (tmp_path / "state").mkdir()
    async with compose(Deployment(config, tmp_path / "tierd.yaml")) as engine:
        assert engine.logs.service is not None
        writer = await engine.logs.service.get_or_create(NAME, topic_id=uuid4())
        batch = encode_batch([NewRecord(b"key", bytes(100), engine.clock.now_ms())], base_offset=0)
        for _ in range(40):
            await writer.append_as_leader(batch, leader_epoch=0)
        writer.log.update_high_watermark(40)
    before = sum(path.stat().st_size for path in (tmp_path / "own" / "orders-0").glob("*.log"))
    async with compose(Deployment(config, tmp_path / "tierd.yaml")) as engine:  # the cleaner starts with a check
        service = engine.logs.service
        assert service is not None
        await eventually(lambda: service.cleaner_statistics().rounds == 1, what="the cleaner")
        assert engine.logs.facts()["uncleanable"] == {}
        assert 'tierd_log_cleaner_rounds_total{outcome="cleaned"} 1.0' in engine.metrics.render()[0].decode()
    assert sum(path.stat().st_size for path in (tmp_path / "own" / "orders-0").glob("*.log")) < before / 3


async def test_each_own_log_has_metrics_until_it_is_deleted(tmp_path: Path) -> None:
    config = _config(tmp_path)
    (tmp_path / "state").mkdir()
    async with compose(Deployment(config, tmp_path / "tierd.yaml")) as engine:
        service = engine.logs.service
        assert service is not None

        def samples() -> dict[str, float]:
            lines = engine.metrics.render()[0].decode().splitlines()
            ours = (line.rpartition(" ") for line in lines if "{" in line and "orders" in line)
            return {name: float(value) for name, _, value in ours}

        assert samples() == {}
        writer = await service.get_or_create(NAME, topic_id=uuid4())
        batch = encode_batch([NewRecord(b"key", b"value", engine.clock.now_ms())], base_offset=0)
        await writer.append_as_leader(batch, leader_epoch=0)
        await writer.run(lambda log: log.roll(now_ms=engine.clock.now_ms()))
        await writer.append_as_leader(batch, leader_epoch=0)
        damaged = bytes(batch[:-1]) + bytes([batch[-1] ^ 1])
        with pytest.raises(CorruptRecordError):
            await writer.append_as_leader(damaged, leader_epoch=0)
        gauges = {name: value for name, value in samples().items() if name.startswith(("tierd_log", "tierd_num"))}
        own = '{partition="0",topic="orders"}'
        refused = {"invalid_checksum": 1, "invalid_magic": 0, "invalid_offset": 0, "invalid_sequence": 0, "no_key": 0}
        assert gauges == {
            f"tierd_num_log_segments{own}": 2,
            f"tierd_log_start_offset{own}": 0,
            f"tierd_log_end_offset{own}": 2,
            f"tierd_log_size_bytes{own}": 2 * len(batch),
        } | {
            f'tierd_log_refused_total{{partition="0",reason="{reason}",topic="orders"}}': count
            for reason, count in refused.items()
        }
        await service.delete(NAME)
        assert samples() == {}
