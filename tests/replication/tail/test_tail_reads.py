"""Threads and descriptors of tail mode."""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.fakes.open_files import open_files
from tests.replication.tail.broker_log import BrokerLog
from tests.replication.tail.tail_listening import TailFollowing
from tierd.errors import LogDirOfflineError, LogError, SegmentChangedError
from tierd.replication.leader.logs.shared_file import SharedFile
from tierd.replication.tail.tail_reads import LogDirThreads


async def test_disk_that_hangs_is_an_error_and_keeps_its_thread() -> None:
    threads = LogDirThreads("data", readers=1, timeout_s=0.05)
    disk = threading.Event()
    with pytest.raises(LogDirOfflineError, match="data"):
        await threads.run(disk.wait)
    with pytest.raises(LogDirOfflineError, match="data"):  # the thread is not free yet
        await threads.run(lambda: True)
    disk.set()
    async with asyncio.timeout(30):
        while True:
            try:
                assert await threads.run(lambda: 7) == 7
            except LogDirOfflineError:
                continue
            break
    threads.close()


def test_descriptor_stays_open_until_the_last_read_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    shared = SharedFile.open(file)
    with shared.reading():
        shared.release()
        assert shared.read(0, 7) == b"content"
        assert open_files(file)
    assert not open_files(file)
    with pytest.raises(LogError), shared.reading():
        pass


@pytest.mark.spec("push-replication F23")
async def test_records_of_a_log_that_was_cut_back_cannot_be_read(tmp_path: Path) -> None:
    broker = BrokerLog(tmp_path / "a")
    tail = TailFollowing(broker)
    for _ in range(4):
        broker.append(1)
    tail.poll()
    records = tail.log.file_records(1, 4)
    assert records is not None
    broker.truncate(0)
    with pytest.raises(SegmentChangedError):
        await records.read(0, 1 << 20)
    records.close()
    records.close()  # does nothing
    with pytest.raises(LogError):
        await records.read(0, 1 << 20)
    tail.close()
    assert not open_files(tmp_path)


async def test_read_of_records_that_are_cut_back_meanwhile_is_an_error(tmp_path: Path) -> None:
    broker = BrokerLog(tmp_path / "a")
    tail = TailFollowing(broker)
    for _ in range(4):
        broker.append(1)
    tail.poll()
    reading = asyncio.create_task(tail.log.read(0, 1 << 20))
    await asyncio.sleep(0)
    broker.truncate(2)
    for _ in range(3):
        broker.append(1)
    tail.poll_to_the_end()
    with pytest.raises(SegmentChangedError):
        await reading
    tail.close()


def test_open_files_follow_the_roll(tmp_path: Path) -> None:
    broker = BrokerLog(tmp_path / "a")
    tail = TailFollowing(broker)
    broker.append(1)
    tail.poll()
    assert open_files(tmp_path) == [str(broker.active)]
    broker.roll()
    broker.append(1)
    tail.poll()
    broker.append(1)
    tail.poll()
    assert open_files(tmp_path) == [str(broker.active)]
    tail.close()
    assert not open_files(tmp_path)
