import os
from pathlib import Path

from tests.log.batches import make_partition
from tierd.app.restore.standby_directories import StandbyDirectories


def test_log_that_the_standby_deletes_meanwhile_does_not_count(tmp_path: Path) -> None:
    directory = make_partition(tmp_path / "copies", {0: b"", 10: b""})
    os.utime(directory.path / "00000000000000000000.log", ns=(0, 5_000_000_000))
    found = StandbyDirectories.read([tmp_path / "copies"])
    (partition,) = found.by_partition
    gone = directory.path / "00000000000000000010.log"
    gone.unlink()
    gone.symlink_to("nothing")  # is listed, and cannot be examined
    assert found.written_ms(partition) == 5_000
    assert list(found.newest().values()) == [partition]
