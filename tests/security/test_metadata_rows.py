"""Rows of the metadata store: a reader of them gets no record and no key of the key ring."""

import base64
import tempfile
from pathlib import Path

from tests.fakes.transforms import RING_KEYS, transform_named
from tests.tiering.rebuilding.grown_tier import GrownTier, Step

RECORD = b"canary of a record"
HISTORY: list[Step] = [
    *[("segment", 0, 0), ("copy", 0, 0), ("segment", 1, 2), ("copy", 0, 0), ("compact", 0, 0)],
    *[("delete records", 0, 2), ("segment", 0, 1), ("merge", 0, 0), ("copy", 0, 0), ("expire", 0, 0)],
]


async def test_rows_of_an_encrypted_tier_have_no_record_and_no_key_of_the_ring() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tier = GrownTier(Path(folder), transform_named("aes"), value=lambda key, offset: RECORD)
        await tier.play(HISTORY)
        rows = await tier.tier.rows.scan("")

    assert len(rows) > 3
    secrets = [RECORD, base64.b64encode(RECORD)]
    for key in RING_KEYS.values():
        secrets += [key, key.hex().encode(), base64.b64encode(key), base64.urlsafe_b64encode(key)]
    found = [(name, secret) for name, value in rows for secret in secrets if secret in name.encode() + value]
    assert found == []
