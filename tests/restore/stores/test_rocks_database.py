from pathlib import Path

import pytest

from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.stores.rocks_database import DEFAULT_FAMILY, FamilyWrite, RocksDatabase, RocksTuning

TUNING = RocksTuning(write_buffer_bytes=1 << 20)


def opened(path: Path) -> RocksDatabase:
    return RocksDatabase.open(path, store="counts", tuning=TUNING, families=("facts",))


def test_each_change_goes_to_its_own_column_family_and_stays_after_a_flush(tmp_path: Path) -> None:
    database = opened(tmp_path / "rocks")
    database.write(
        FamilyWrite("facts", [(b"offset", b"7")]),
        FamilyWrite(DEFAULT_FAMILY, [(b"a", b"1"), (b"b", b"2"), (b"a", None)]),
    )
    database.flush(DEFAULT_FAMILY, "facts")
    database.close()

    again = opened(tmp_path / "rocks")
    assert (again.read(b"a"), again.read(b"b"), again.read(b"offset")) == (None, b"2", None)
    assert (again.read(b"offset", family="facts"), again.read(b"b", family="facts")) == (b"7", None)
    again.close()


def test_range_is_deleted_before_the_keys_of_the_same_write_are_set(tmp_path: Path) -> None:
    database = opened(tmp_path / "rocks")
    database.write(FamilyWrite(DEFAULT_FAMILY, [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]))
    database.write(FamilyWrite(DEFAULT_FAMILY, [(b"b", b"4")], [(b"a", b"c")]))

    assert database.first_key_from(b"") == b"b"
    assert (database.read(b"b"), database.read(b"c")) == (b"4", b"3")
    database.close()


def test_second_opener_is_refused_until_the_first_one_closes(tmp_path: Path) -> None:
    database = opened(tmp_path / "rocks")
    with pytest.raises(StoreFailedError, match=r"store counts: RocksDB: .*rocks"):
        opened(tmp_path / "rocks")
    database.close()
    database.close()
    opened(tmp_path / "rocks").close()
