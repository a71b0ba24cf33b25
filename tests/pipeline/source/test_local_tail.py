"""Local log of the host behind the end of the tier."""

from pathlib import Path

from tests.log.batches import make_partition, plain
from tierd.log import ProducerStateEntry, file_name
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.pipeline.source.local_tail import LocalTails


def test_transaction_that_began_in_the_tier_sets_the_last_stable_offset(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {10: plain(10, 5), 15: plain(15, 5)})
    begun = ProducerStateEntry(7, 0, 0, 14, 0, 0, -1, 3)
    (directory.path / file_name(15, ".snapshot")).write_bytes(encode_producer_snapshot((begun,)))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    tail = LocalTails([tmp_path]).tail(directory)
    assert tail is not None
    assert (tail.start_offset, tail.last_stable_offset) == (10, 3)
