"""Log dirs of real brokers, read without their copied local segments and compared with a real consumer."""

from pathlib import Path

import pytest

from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.log_dirs import copy_writable, delete_copied_segments, facts_below, partition_dirs
from tests.scenarios.oracle import assert_same_records, read_oracle

LOG_DIRS = {
    "kafka-3.9.2/clean/logdir": "kafka-3.9.2/clean/oracle",
    "kafka-3.9.2/epochs/node1/logdir": "kafka-3.9.2/epochs/oracle",
    "kafka-3.9.2/epochs/node2/logdir": "kafka-3.9.2/epochs/oracle",
    "kafka-3.9.2/compact-before/logdir": "kafka-3.9.2/compact-before/oracle",
    "kafka-4.3.1/clean/logdir": "kafka-4.3.1/clean/oracle",
    "kafka-4.3.1/compact-before/logdir": "kafka-4.3.1/compact-before/oracle",
}


@pytest.mark.parametrize("source", LOG_DIRS)
def test_log_dir_of_a_broker_reads_the_same_after_its_copied_segments_are_deleted(
    source: str, golden: Path, tmp_path: Path, make_installation: MakeInstallation
) -> None:
    log_dir, oracle = tmp_path / "logdir", golden / LOG_DIRS[source]
    copy_writable(golden / source, log_dir)
    before = facts_below(log_dir)
    tierd = make_installation([log_dir])

    copied = tierd.ask("copy", "--once")

    assert copied.exit_code == 0, copied.output
    assert facts_below(log_dir) == before
    deleted = {
        directory.name: delete_copied_segments(directory, copied_through=tierd.frontier(directory.name))
        for directory in partition_dirs(log_dir)
    }
    assert sum(deleted.values()) >= 10, deleted
    for partition, deleted_count in deleted.items():
        everything = read_oracle(oracle / partition / "records.jsonl.gz")
        assert_same_records(tierd.cat(partition), everything, what=f"{partition} ({deleted_count} deleted)")
        committed_file = oracle / partition / "committed.jsonl.gz"
        committed = read_oracle(committed_file) if committed_file.exists() else everything
        assert_same_records(tierd.cat(partition, "--committed"), committed, what=f"{partition} --committed")
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output
