from pathlib import Path

import pytest

from tierd.errors import CorruptIndexError
from tierd.log.files.disk import OsDisk
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.indexes.transaction_index_file import TransactionIndexFile

ENTRIES = (
    AbortedTransaction(0, 0, 10, 11),
    AbortedTransaction(1, 5, 15, 13),
    AbortedTransaction(2, 18, 35, 25),
    AbortedTransaction(3, 32, 50, 40),
)


def index_at(path: Path, *, base_offset: int = 0) -> TransactionIndexFile:
    return TransactionIndexFile(OsDisk(), path, base_offset=base_offset)


@pytest.fixture
def index(tmp_path: Path) -> TransactionIndexFile:
    return index_at(tmp_path / "00000000000000000000.txnindex")


@pytest.fixture
def filled(index: TransactionIndexFile) -> TransactionIndexFile:
    for entry in ENTRIES:
        index.append(entry)
    return index


@pytest.mark.spec("log-format IDX-19")
def test_reopened_index_keeps_its_entries_and_takes_more(filled: TransactionIndexFile) -> None:
    filled.close()
    reopened = index_at(filled.path)
    reopened.append(AbortedTransaction(4, 60, 70, 71))
    assert reopened.all() == (*ENTRIES, AbortedTransaction(4, 60, 70, 71))


@pytest.mark.spec("log-format IDX-20")
def test_a_transaction_that_ended_before_the_segment_is_corrupt(filled: TransactionIndexFile) -> None:
    filled.sanity_check()
    with pytest.raises(CorruptIndexError):
        index_at(filled.path, base_offset=100).sanity_check()


@pytest.mark.spec("log-format IDX-21")
@pytest.mark.parametrize("last_offset", [15, 10])
def test_append_of_a_marker_not_above_the_last_one_is_refused(index: TransactionIndexFile, last_offset: int) -> None:
    index.append(AbortedTransaction(1, 5, 15, 13))
    with pytest.raises(ValueError, match=f"marker {last_offset} does not follow 15"):
        index.append(AbortedTransaction(0, 0, last_offset, 11))
    assert len(index.all()) == 1


@pytest.mark.spec("log-format IDX-22")
@pytest.mark.parametrize(
    ("from_offset", "upper_offset", "found", "is_complete"),
    [
        (0, 100, ENTRIES, False),
        (0, 32, ENTRIES[:3], True),
        (0, 35, ENTRIES, True),
        (10, 35, ENTRIES, True),
        (11, 35, ENTRIES[1:], True),
        (20, 41, ENTRIES[2:], False),
    ],
)
def test_collect_returns_the_aborted_transactions_of_a_read(
    filled: TransactionIndexFile,
    from_offset: int,
    upper_offset: int,
    found: tuple[AbortedTransaction, ...],
    is_complete: bool,
) -> None:
    assert filled.load().collect(from_offset, upper_offset) == (found, is_complete)


@pytest.mark.spec("log-format IDX-23")
def test_truncation_removes_the_markers_from_an_offset_on(filled: TransactionIndexFile) -> None:
    filled.truncate_to(51)
    assert filled.all() == ENTRIES
    filled.truncate_to(50)
    assert filled.all() == ENTRIES[:3]
    filled.append(AbortedTransaction(3, 32, 50, 40))
    filled.reset()
    assert filled.all() == ()
    assert filled.exists
    filled.append(ENTRIES[0])
    assert filled.all() == ENTRIES[:1]


@pytest.mark.spec("log-format IDX-24")
def test_renamed_index_takes_more_entries(index: TransactionIndexFile, tmp_path: Path) -> None:
    index.append(ENTRIES[0])
    index.rename(tmp_path / "00000000000000000000.txnindex.deleted")
    index.append(ENTRIES[1])
    assert index.all() == ENTRIES[:2]
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000000.txnindex.deleted"]


@pytest.mark.spec("log-format IDX-25")
def test_index_without_entries_has_no_file(index: TransactionIndexFile) -> None:
    index.flush()
    index.truncate_to(0)
    index.reset()
    index.sanity_check()
    assert index.all() == ()
    assert not index.exists
    index.append(ENTRIES[0])
    index.flush()
    assert index.path.read_bytes() == bytes.fromhex(
        "0000" + "0" * 16 + "0" * 16 + "000000000000000a" + "000000000000000b"
    )


def test_a_torn_entry_is_overwritten(filled: TransactionIndexFile) -> None:
    filled.close()
    with filled.path.open("ab") as file:
        file.write(bytes(20))
    reopened = index_at(filled.path)
    assert reopened.all() == ENTRIES
    reopened.append(AbortedTransaction(4, 60, 70, 71))
    assert reopened.all()[4:] == (AbortedTransaction(4, 60, 70, 71),)


def test_an_unknown_version_is_corrupt(filled: TransactionIndexFile) -> None:
    data = bytearray(filled.path.read_bytes())
    data[34] = 1
    filled.path.write_bytes(data)
    with pytest.raises(CorruptIndexError, match="version 256"):
        filled.all()
