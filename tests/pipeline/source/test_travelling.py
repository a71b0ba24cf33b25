"""Settings that are sent to tasks: the object store in use and its keys, not the metadata store."""

import base64
import json
import pickle
from pathlib import Path

import pytest

from tests.fakes.transforms import RING_KEYS
from tests.pipeline.source.queries import Queries, read_all
from tests.pipeline.source.small_tier import SmallTier
from tierd.config import load_config
from tierd.pipeline.access import TierAccess

HUSH = "postgresql://tierd:of-the-metadata@db/tierd"
REMOTE = {
    "backend": "s3",
    "s3": {"bucket": "tier", "region": "eu-central-1", "access_key_id": "id", "secret_access_key": "of-the-bucket"},
    "azure": {"account": "other", "container": "other", "account_key": "of-another-store"},
}
CONFIG = {
    "cluster_id": "MkU3OEVBNTcwNTJENDM2Qg",
    "node_id": 1,
    "log_dirs": [{"path": "/var/lib/kafka/data"}],
    "metadata": {"backend": "postgres", "postgres": {"dsn": HUSH}},
    "remote": REMOTE,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "tierd.yaml"
    file.write_text(json.dumps(CONFIG))
    return file


def test_access_for_tasks_has_the_store_in_use_and_no_other_secret(config: Path) -> None:
    access = TierAccess.from_config(load_config(config, {}), config)
    assert b"of-the-metadata" in pickle.dumps(access)
    sent = pickle.dumps(access.for_tasks())
    assert b"of-the-bucket" in sent
    assert b"of-the-metadata" not in sent
    assert b"of-another-store" not in sent


@pytest.mark.parametrize("kind", ["reader", "stream"])
def test_pickled_reader_lacks_the_password_of_the_metadata_store(config: Path, kind: str) -> None:
    reader = getattr(Queries(config, subscribe="orders"), kind)()
    sent = pickle.dumps(reader)
    assert b"of-the-bucket" in sent
    assert b"of-the-metadata" not in sent


def test_pickled_reader_can_plan(tmp_path: Path) -> None:
    """Spark pushes filters in one process and plans in another one."""
    tier = SmallTier(tmp_path)
    tier.append(20)
    tier.roll()
    tier.copy()
    reader = pickle.loads(pickle.dumps(tier.queries().reader()))
    batches = read_all(reader, reader.partitions())
    assert sum(batch.num_rows for batch in batches) == 20


def test_access_for_tasks_has_the_whole_key_ring(config: Path) -> None:
    """Inputs of a task may be under any key of the ring: their manifests name the key."""
    keys = [{"id": name, "key": base64.b64encode(key).decode()} for name, key in RING_KEYS.items()]
    remote = {**REMOTE, "encryption": {"enabled": True, "active_key": "old", "keys": keys}}
    config.write_text(json.dumps({**CONFIG, "remote": remote}))
    access = TierAccess.from_config(load_config(config, {}), config)
    assert access.for_tasks().remote.encryption == access.remote.encryption
