"""``tierd rewrap-keys``, and a tier that is compressed and encrypted, at the real command line."""

import base64
import json

from tests.cli.conftest import LAST_OFFSET
from tests.fakes.transforms import RING_KEYS
from tests.scenarios.installation import Installation


def encryption(active: str, *ids: str) -> dict[str, object]:
    keys = [{"id": key_id, "key": base64.b64encode(RING_KEYS[key_id]).decode()} for key_id in ids]
    return {"encryption": {"enabled": True, "active_key": active, "keys": keys}, "compression": {"type": "zstd"}}


def manifests(tierd: Installation) -> list[dict[str, dict[str, object]]]:
    return [json.loads(path.read_text()) for path in sorted(tierd.store_dir.rglob("*.manifest"))]


def test_old_key_is_not_needed_after_a_rotation(tierd: Installation) -> None:
    tierd.configure({"remote": encryption("old", "old")})
    assert tierd.tierd("copy", "--once").exit_code == 0
    assert len(tierd.cat("orders-0")) == LAST_OFFSET + 1

    tierd.configure({"remote": encryption("new", "old", "new")})
    dry = tierd.tierd("rewrap-keys", "--dry-run", "--json")
    assert dry.exit_code == 0, dry.output
    assert (dry.json()["rewrapped"], dry.json()["dry_run"]) == (3, True)
    assert {each["encryption"]["key_id"] for each in manifests(tierd)} == {"old"}

    done = tierd.tierd("rewrap-keys", "orders-0")
    assert done.exit_code == 0, done.output
    assert "3 manifests: 3 rewrapped" in done.output
    assert {each["encryption"]["key_id"] for each in manifests(tierd)} == {"new"}

    tierd.configure({"remote": encryption("new", "new")})
    assert len(tierd.cat("orders-0")) == LAST_OFFSET + 1
    assert tierd.tierd("verify", "--deep").exit_code == 0
    again = tierd.tierd("rewrap-keys", "--json").json()
    assert (again["rewrapped"], again["current"], again["problems"]) == (0, 3, [])


def test_a_key_that_is_missing_is_named_by_every_command(tierd: Installation) -> None:
    tierd.configure({"remote": encryption("old", "old")})
    assert tierd.tierd("copy", "--once").exit_code == 0
    tierd.configure({"remote": encryption("new", "new")})
    rewrap = tierd.tierd("rewrap-keys", "--json")
    assert rewrap.exit_code == 1
    assert rewrap.json()["missing_key"] == 3
    assert "'old'" in rewrap.json()["problems"][0]["problem"]
    told = tierd.tierd("rewrap-keys")
    assert told.exit_code == 1
    assert "add the key with id old to remote.encryption.keys" in told.output
    verify = tierd.tierd("verify")
    assert (verify.exit_code, verify.output.count("missing-key")) == (1, 3)


def test_missing_active_key_is_named_with_its_place_in_the_file(copied: Installation) -> None:
    result = copied.tierd("rewrap-keys")
    assert result.exit_code == 2
    assert "remote.encryption.active_key" in result.output
