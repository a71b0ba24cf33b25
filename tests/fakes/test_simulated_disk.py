"""SimulatedDisk keeps every promise of ``Disk``, and loses only what a power cut may lose."""

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.disk import DiskContract, write_file
from tests.fakes.simulated_disk import Fault, PowerLostError, SimulatedDisk
from tierd.log.files.disk import read_file, replace_file

ROOT = Path("/disk")
A, B = ROOT / "a", ROOT / "b"
CRASHES = 200


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    disk.sync_directory(Path("/"))
    return disk


def outcomes(
    prepare: Callable[[SimulatedDisk], None], *, look: Callable[[SimulatedDisk], object] | None = None
) -> set[object]:
    """Return the contents of ``A``, or the results of ``look``, after many power cuts."""
    found = set()
    for seed in range(CRASHES):
        disk = new_disk()
        prepare(disk)
        disk.crash(random.Random(seed))
        found.add(look(disk) if look else read_file(disk, A) if disk.status(A) else None)
    return found


def names(disk: SimulatedDisk) -> object:
    return tuple(disk.list_names(ROOT))


def sync_file(disk: SimulatedDisk, path: Path) -> None:
    file = disk.open(path)
    file.sync()
    file.close()


class TestSimulatedDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> SimulatedDisk:
        return new_disk()

    @pytest.fixture
    def root(self) -> Path:
        return ROOT

    def test_file_synced_with_its_directory_survives_every_crash(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            write_file(disk, A, b"safe")
            sync_file(disk, A)
            disk.sync_directory(ROOT)

        assert outcomes(prepare) == {b"safe"}

    def test_synced_file_without_a_synced_directory_may_be_lost(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            write_file(disk, A, b"data")
            sync_file(disk, A)

        assert outcomes(prepare) == {b"data", None}

    def test_unsynced_bytes_are_kept_lost_or_zeros(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            disk.open(A, create=True).close()
            disk.sync_directory(ROOT)
            write_file(disk, A, b"data")

        found = outcomes(prepare)
        assert {b"data", b"", bytes(4)} <= found
        assert all(isinstance(data, bytes) and len(data) in {0, 4} for data in found)

    def test_pages_are_kept_or_lost_one_by_one(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            write_file(disk, A, b"o" * 2048)
            sync_file(disk, A)
            disk.sync_directory(ROOT)
            file = disk.open(A)
            file.write(0, [b"n" * 2048])
            file.close()

        found = {data for data in outcomes(prepare) if isinstance(data, bytes)}
        assert b"n" * 512 + b"o" * 512 + b"n" * 512 + b"o" * 512 in found
        assert all(len(set(data[start : start + 512])) == 1 for data in found for start in range(0, 2048, 512))

    def test_either_of_two_unsynced_overwrites_may_be_kept(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            write_file(disk, A, b"0")
            sync_file(disk, A)
            disk.sync_directory(ROOT)
            file = disk.open(A)
            file.write(0, [b"1"])
            file.write(0, [b"2"])
            file.close()

        assert outcomes(prepare) == {b"0", b"1", b"2"}

    def test_unsynced_truncation_may_be_lost(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            write_file(disk, A, b"longer")
            sync_file(disk, A)
            disk.sync_directory(ROOT)
            file = disk.open(A)
            file.truncate(2)
            file.close()

        assert outcomes(prepare) == {b"longer", b"lo"}

    def test_bytes_cut_by_a_kept_truncation_do_not_return(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            write_file(disk, A, b"o" * 1024)
            sync_file(disk, A)
            disk.sync_directory(ROOT)
            file = disk.open(A)
            file.truncate(512)
            file.truncate(1024)
            file.close()

        assert outcomes(prepare) == {b"o" * 1024, b"o" * 512, b"o" * 512 + bytes(512)}

    def test_replaced_file_has_the_old_or_the_new_content(self) -> None:
        found = set()
        for steps in range(1, 6):
            for seed in range(20):
                disk = new_disk()
                replace_file(disk, A, b"old")
                disk.power_fails_at = disk.moment + steps
                with pytest.raises(PowerLostError):
                    replace_file(disk, A, b"new")
                disk.crash(random.Random(seed))
                found.add(read_file(disk, A))
        assert found == {b"old", b"new"}

    def test_names_change_in_order_and_a_rename_is_one_change(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            write_file(disk, A, b"x")
            disk.sync_directory(ROOT)
            disk.rename(A, B)
            disk.open(ROOT / "c", create=True).close()
            disk.unlink(B)

        assert outcomes(prepare, look=names) == {("a",), ("b",), ("b", "c"), ("c",)}

    def test_two_directories_keep_their_changes_independently(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            for name in ("d", "e"):
                disk.make_directory(ROOT / name)
            disk.sync_directory(ROOT)
            for name in ("d", "e"):
                disk.open(ROOT / name / "x", create=True).close()

        def look(disk: SimulatedDisk) -> object:
            return len(disk.list_names(ROOT / "d")), len(disk.list_names(ROOT / "e"))

        assert outcomes(prepare, look=look) == {(0, 0), (0, 1), (1, 0), (1, 1)}

    def test_files_of_a_directory_whose_name_was_lost_are_lost(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            disk.make_directory(ROOT / "d")
            replace_file(disk, ROOT / "d" / "a", b"x")

        assert outcomes(prepare, look=names) == {(), ("d",)}

    def test_open_file_is_unusable_after_a_power_cut(self) -> None:
        disk = new_disk()
        file = disk.open(A, create=True)
        disk.crash(random.Random(1))
        with pytest.raises(PowerLostError):
            file.write(0, [b"x"])
        with pytest.raises(PowerLostError):
            file.read(0, 1)
        file.close()

    def test_calls_fail_between_a_power_cut_and_the_restart(self) -> None:
        disk = new_disk()
        disk.power_fails_at = disk.moment + 1
        with pytest.raises(PowerLostError):
            disk.open(A, create=True)
        with pytest.raises(PowerLostError):
            disk.list_names(ROOT)
        disk.crash(random.Random(1))
        assert disk.list_names(ROOT) in ([], ["a"])

    def test_bytes_of_a_sync_interrupted_by_a_power_cut_may_be_lost(self) -> None:
        def prepare(disk: SimulatedDisk) -> None:
            disk.open(A, create=True).close()
            disk.sync_directory(ROOT)
            file = disk.open(A)
            file.write(0, [b"x"])
            disk.power_fails_at = disk.moment + 1
            with pytest.raises(PowerLostError):
                file.sync()

        assert {b"", b"x"} <= outcomes(prepare)

    @given(data=st.binary(max_size=3000), seed=st.integers(min_value=0, max_value=1 << 30))
    @settings(deadline=None, max_examples=50)
    def test_the_same_seed_leaves_the_same_bytes(self, data: bytes, seed: int) -> None:
        found = []
        for _ in range(2):
            disk = new_disk()
            write_file(disk, A, data)
            disk.crash(random.Random(seed))
            found.append(disk.snapshot(ROOT))
        assert found[0] == found[1]

    def test_fault_fails_only_the_calls_that_it_names(self) -> None:
        disk = new_disk()
        disk.faults.append(Fault("write", name_parts=("/a",), error_number=errno.ENOSPC, skip=1, times=1))
        write_file(disk, B, b"fine")
        file = disk.open(A, create=True)
        file.write(0, [b"fine"])
        with pytest.raises(OSError, match="No space left"):
            file.write(4, [b"half"])
        assert file.read(0, 100) == b"fineha"
        file.write(4, [b"full"])
        assert file.read(0, 100) == b"finefull"
        file.close()
        assert disk.open_files == 0
