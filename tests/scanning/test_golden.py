"""Log dirs of real brokers, read by ``tierd.reader`` as a real consumer has read them."""

from pathlib import Path

import pytest

import tierd
from tests.pipeline.source.queries import Queries
from tests.scanning.rows import by_partition
from tests.scenarios.golden_tiers import GOLDEN_LOG_DIRS, copied_golden, golden_records
from tests.scenarios.log_dirs import delete_copied_segments
from tests.scenarios.oracle import assert_same_records
from tierd.scanning.arrow_reader import ArrowReader

CASES = [source for source in GOLDEN_LOG_DIRS if "/crash/" not in source]


def assert_equal_to_oracles(tier: ArrowReader, oracle: Path, *, what: str) -> int:
    """Compare every topic, in both isolations; return the number of records."""
    count = 0
    for topic in (each for each in tier.topics() if not each.name.startswith("__")):
        for isolation, file in (("read_uncommitted", "records"), ("read_committed", "committed")):
            found = by_partition(tier.scan(topic.name, isolation=isolation, batch_bytes=64 << 10).to_table())
            for number in topic.partitions:
                folder = oracle / f"{topic.name}-{number}"
                if not folder.exists():
                    continue
                expected = golden_records(folder, file)
                assert_same_records(found[folder.name], expected, what=f"{what} {folder.name} {isolation}")
                count += len(expected)
    return count


@pytest.mark.parametrize("source", CASES)
def test_reader_equals_a_consumer_of_the_broker(source: str, golden: Path, tmp_path: Path) -> None:
    oracle = golden / GOLDEN_LOG_DIRS[source]
    log_dir, installation = copied_golden(golden / source, tmp_path)
    with tierd.reader(installation.config_file) as tier:
        count = assert_equal_to_oracles(tier, oracle, what="local and remote")
        assert count >= 100
        for name, end in Queries(installation.config_file).remote_ends().items():
            delete_copied_segments(log_dir / name, copied_through=end - 1)
        assert assert_equal_to_oracles(tier, oracle, what="remote") == count
