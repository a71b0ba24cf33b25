"""Batches that unpack to more than tierd opens, in the data source: a clear error, and queries around them."""

import pytest

from tests.pipeline.source.small_tier import SmallTier
from tierd.errors import BatchTooLargeError
from tierd.log import Compression, NewRecord, encode_batch

LARGE = 257 << 20


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> SmallTier:
    """Return five records, one whose value unpacks to 257 MiB, and five more."""
    made = SmallTier(tmp_path_factory.mktemp("tier"))
    made.append(5)
    batch = encode_batch([NewRecord(b"large", bytes(LARGE), 5_000)], compression=Compression.ZSTD)
    assert len(batch) < 12 << 10
    made.partition().append_batch(batch, 1)
    made.append(5)
    made.roll()
    made.copy()
    return made


def test_query_fails_at_an_unread_batch_and_calls_it_intact(tier: SmallTier) -> None:
    with pytest.raises(
        BatchTooLargeError, match="the batch of offsets 5 to 5 has more than 268435456 bytes"
    ) as refused:
        tier.queries().rows()
    assert any("the batch is intact" in note for note in refused.value.__notes__)


def test_queries_around_an_unread_batch_return_all_other_records(tier: SmallTier) -> None:
    before = tier.queries().rows(endingOffsets='{"orders": {"0": 5}}')
    behind = tier.queries().rows(startingOffsets='{"orders": {"0": 6}}')
    assert [row["offset"] for row in [*before, *behind]] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_query_that_searches_for_a_time_in_an_unread_batch_fails(tier: SmallTier) -> None:
    with pytest.raises(BatchTooLargeError, match="the batch of offsets 5 to 5"):
        tier.queries().rows(startingTimestamp="4500")


def test_deep_verification_and_cat_of_other_offsets_succeed(tier: SmallTier) -> None:
    found = tier.installation.tierd("verify", "--deep", "orders-0")
    assert found.exit_code == 0, found.output
    assert len(tier.installation.cat("orders-0", "--from", "6")) == 5
    refused = tier.installation.tierd("cat", "orders-0", "--json")
    assert refused.exit_code == 1
    assert "the batch of offsets 5 to 5 has more than 268435456 bytes" in refused.output
    assert "the batch is intact" in refused.output
