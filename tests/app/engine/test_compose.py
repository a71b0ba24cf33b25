"""compose: each opened part is closed once, and after the parts that use it."""

from pathlib import Path

import pytest

from tierd.app.engine.compose import compose
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.local_logs import LocalLogs
from tierd.config import TierdConfig
from tierd.errors import BackendUnavailableError
from tierd.metadata import RemoteLogMetadataManager
from tierd.metadata.kv.sqlite import SqliteKeyValueStore
from tierd.model import TopicIdPartition, uuid_from_text
from tierd.remote.backends.files import FilesystemObjectStore
from tierd.tiering import PassiveSupervisor

PARTITION = TopicIdPartition(uuid_from_text("AAAAAAAAAAAAAAAAAAAABw"), "orders", 0)


def _config(tmp_path: Path) -> TierdConfig:
    for name in ("state", "kafka"):
        (tmp_path / name).mkdir()
    return TierdConfig.model_validate(
        {
            "cluster_id": "dGllcmQtc3ludGhldGljLQ",
            "node_id": 1,
            "state_dir": str(tmp_path / "state"),
            "log_dirs": [{"path": str(tmp_path / "kafka")}],
            "remote": {"backend": "filesystem", "filesystem": {"path": str(tmp_path / "store")}},
        }
    )


@pytest.mark.spec("remote-tiering 193")
async def test_metadata_and_stores_are_closed_once_and_the_metadata_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    for kind in (RemoteLogMetadataManager, SqliteKeyValueStore, FilesystemObjectStore):
        _note_close(monkeypatch, kind, closed)
    async with compose(Deployment(_config(tmp_path), tmp_path / "tierd.yaml")) as engine:
        engine.new_tiering(PassiveSupervisor())
        assert closed == []
    assert closed.index("RemoteLogMetadataManager") < closed.index("FilesystemObjectStore")
    assert sorted(closed) == ["FilesystemObjectStore", "RemoteLogMetadataManager", "SqliteKeyValueStore"]
    await engine.metadata.close()  # a second time is harmless
    with pytest.raises(BackendUnavailableError, match="closed"):
        await engine.metadata.become_leader(PARTITION, 1)
    assert b"tierd_remote_copy_lag_bytes{" not in engine.metrics.render()[0], "no partition is left in the metrics"


def _note_close(monkeypatch: pytest.MonkeyPatch, kind: type, closed: list[str]) -> None:
    close = kind.close  # type: ignore[attr-defined] # each kind has a close method

    async def noted(self: object, **limits: float) -> None:
        closed.append(kind.__name__)
        await close(self, **limits)

    monkeypatch.setattr(kind, "close", noted)


async def test_compose_opens_no_log_dir_of_a_broker(tmp_path: Path) -> None:
    async with compose(Deployment(_config(tmp_path), tmp_path / "tierd.yaml")) as engine:
        assert isinstance(engine.logs, LocalLogs)
        assert engine.logs.service is None
    assert list((tmp_path / "kafka").iterdir()) == [], "not even a lock"


async def test_outage_of_the_metadata_store_is_suspected_after_a_failed_call_of_any_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: object, prefix: str) -> list[tuple[str, bytes]]:
        raise BackendUnavailableError("down for a test")

    async with compose(Deployment(_config(tmp_path), tmp_path / "tierd.yaml")) as engine:
        assert not engine.services.metadata_store.suspected.is_set()
        monkeypatch.setattr(SqliteKeyValueStore, "scan", fail)
        with pytest.raises(BackendUnavailableError, match="down for a test"):
            await engine.rows.scan("")  # as the keeper of erasures does, when nothing is copied
        assert engine.services.metadata_store.suspected.is_set()
