"""The end at which every transaction is decided, for logs of any transactions (DESIGN 13, trap 2)."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from tests.log.logs import end_marker, records
from tierd.log import Producer, check_segment
from tierd.restore.log_dir.kept_batches import CheckedLog, keep_batches
from tierd.restore.log_dir.transaction_facts import TransactionFacts

ENTRIES = st.lists(st.sampled_from(["-", "A", "A+", "A!", "B", "B+", "B!", "C", "C+", "C!"]), min_size=1, max_size=25)


def batch(entry: str, offset: int) -> bytes:
    producer = ord(entry[0])
    if entry == "-":
        return records(1, base_offset=offset)
    if entry[1:]:
        return end_marker(producer, commit=entry[1] == "+", base_offset=offset)
    return records(1, base_offset=offset, producer=Producer(producer, 0, offset), transactional=True)


def is_decided(entries: list[str], end_offset: int) -> bool:
    """Return True if no transaction is open behind the first ``end_offset`` entries."""
    is_open: dict[str, bool] = {}
    for entry in entries[:end_offset]:
        is_open[entry[0]] = entry != "-" and not entry[1:]
    return not any(is_open.values())


@given(ENTRIES)
def test_stable_end_is_the_highest_one_without_an_open_transaction(entries: list[str]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "segment.log"
        path.write_bytes(b"".join(batch(entry, offset) for offset, entry in enumerate(entries)))
        checked = check_segment(path, base_offset=0, next_base_offset=None)
        log = CheckedLog(path=path, base_offset=0, start_offset=0, end_offset=1 << 40, checked=checked)
        kept = keep_batches(log, next_offset=0, end_offset=1 << 40).batches
        assert kept is not None
        facts = TransactionFacts()
        facts.follow(kept)
        expected = max(end for end in range(len(entries) + 1) if is_decided(entries, end))
        assert facts.stable_end(len(entries)) == expected
