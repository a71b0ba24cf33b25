"""Log dirs with owner tierd: their settings, and a whole engine over one."""

from pathlib import Path
from uuid import uuid4

import pytest

from tierd.app.compose import compose
from tierd.app.own_logs import log_config
from tierd.config import TierdConfig
from tierd.log import LogConfig, NewRecord, encode_batch
from tierd.model import TopicPartition
from tierd.tiering import PassiveSupervisor, TopicPolicy

NAME = TopicPartition("orders", 0)


class TestLogConfig:
    def test_limits_are_those_of_the_policy(self) -> None:
        policy = TopicPolicy(retention_ms=9, retention_bytes=8, local_retention_ms=7, local_retention_bytes=6)
        config = log_config(policy, is_tiered=True)
        assert (config.retention_ms, config.retention_bytes) == (9, 8)
        assert (config.local_retention_ms, config.local_retention_bytes) == (7, 6)
        assert config.is_copy_enabled

    def test_a_topic_that_is_not_tiered_waits_for_no_copy(self) -> None:
        assert not log_config(TopicPolicy(), is_tiered=False).remote_storage_enable
        assert not log_config(TopicPolicy(cleanup_policy=frozenset({"compact"})), is_tiered=True).remote_storage_enable

    def test_without_copies_the_local_limits_are_the_total_ones(self) -> None:
        config = log_config(TopicPolicy(retention_ms=9, local_retention_ms=3, copy_enabled=False), is_tiered=True)
        assert (config.local_retention_ms, config.is_copy_enabled) == (-2, False)

    @pytest.mark.parametrize("local", [-1, 10])
    def test_a_local_limit_above_the_total_one_is_the_total_one(self, local: int) -> None:
        assert (
            log_config(TopicPolicy(retention_ms=9, local_retention_ms=local), is_tiered=True).local_retention_ms == -2
        )

    def test_a_policy_that_nobody_has_told_yet_keeps_everything(self) -> None:
        config = log_config(TopicPolicy(retention_ms=9, cleanup_policy=frozenset()), is_tiered=True)
        assert (config.retention_ms, config.cleanup_policy) == (-1, frozenset({"delete"}))


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


async def test_logs_of_tierds_own_are_opened_copied_and_follow_their_policies(tmp_path: Path) -> None:
    config = _config(tmp_path, defaults={"segment_bytes": "4MiB", "retention": "7d"})
    (tmp_path / "state").mkdir()
    async with compose(config, tmp_path / "tierd.yaml") as engine:
        assert engine.logs.service is not None
        writer = await engine.logs.service.get_or_create(NAME, topic_id=uuid4())
        batch = encode_batch([NewRecord(b"key", b"value", engine.clock.now_ms())], base_offset=0)
        for _ in range(3):
            await writer.append_as_leader(batch, leader_epoch=0)
        await writer.run(lambda log: log.roll(now_ms=engine.clock.now_ms()))
        await writer.append_as_leader(batch, leader_epoch=0)
        writer.log.update_high_watermark(4)
        (outcome,) = await engine.new_manager(PassiveSupervisor()).copy_once()
        assert (outcome.error, outcome.status.copied_through) == (None, 2)
        assert (writer.log.highest_remote_offset, writer.log.config.is_copy_enabled) == (2, True)
        engine.settings.config = _config(tmp_path, defaults={"copy": False, "segment_bytes": "4MiB"})
        await engine.logs.follow_policies()
        assert (writer.log.config.is_copy_enabled, writer.log.config.retention_ms) == (False, -1)
        assert isinstance(writer.log.config, LogConfig)
