import base64
from typing import Any

import pytest

from tests.services.kafka_journalled import Sent
from tests.services.kafka_records import SentRecord
from tests.soak.keyed_journal import KeyedJournal


def sent(number: int, key: bytes, value: bytes | None) -> SentRecord:
    return SentRecord(key=key, value=value, timestamp_ms=1, headers=(("number", b"%d" % number),))


def read(offset: int, record: SentRecord) -> dict[str, Any]:
    def encoded(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    headers = [[name, encoded(value)] for name, value in record.headers]
    return {"offset": offset, "key": encoded(record.key), "value": encoded(record.value), "headers": headers}


FIRST, OTHER, SECOND, TOMBSTONE = (
    sent(0, b"a", b"first"),
    sent(1, b"b", b"other"),
    sent(2, b"a", b"second"),
    sent(3, b"b", None),
)


@pytest.fixture
def journal() -> KeyedJournal:
    journal = KeyedJournal()
    journal.note(Sent(acknowledged={0: FIRST, 1: OTHER, 2: SECOND, 3: TOMBSTONE}))
    return journal


def test_reading_before_during_and_after_cleaning_agrees(journal: KeyedJournal) -> None:
    journal.assert_agrees([read(0, FIRST), read(1, OTHER), read(2, SECOND), read(3, TOMBSTONE)], end=4, what="whole")
    journal.assert_agrees([read(2, SECOND), read(3, TOMBSTONE)], end=4, what="cleaned")
    journal.assert_agrees([read(2, SECOND)], end=4, what="without tombstones")


def test_reading_without_latest_record_of_key_is_refused(journal: KeyedJournal) -> None:
    with pytest.raises(AssertionError, match="the latest record of b'a' is at 2"):
        journal.assert_agrees([read(0, FIRST)], end=4, what="stale")


def test_reading_that_ends_early_is_refused(journal: KeyedJournal) -> None:
    journal.note(Sent(acknowledged={4: sent(4, b"c", b"last")}))
    with pytest.raises(AssertionError, match="the latest record of b'c' is at 4"):
        journal.assert_agrees([read(2, SECOND)], end=5, what="short")


def test_reading_of_key_revived_behind_its_tombstone_is_refused(journal: KeyedJournal) -> None:
    with pytest.raises(AssertionError, match="the latest record of b'b' is at 3"):
        journal.assert_agrees([read(1, OTHER), read(2, SECOND)], end=4, what="revived")


def test_reading_of_record_that_no_producer_committed_is_refused(journal: KeyedJournal) -> None:
    with pytest.raises(AssertionError, match="no producer committed the record at 2"):
        KeyedJournal().assert_agrees([read(2, SECOND)], end=4, what="unknown")
    with pytest.raises(AssertionError, match="the record at 2 differs"):
        journal.assert_agrees([read(2, sent(2, b"a", b"forged"))], end=4, what="other value")


def test_reading_may_have_or_lack_record_whose_outcome_is_unknown(journal: KeyedJournal) -> None:
    doubtful = sent(9, b"a", b"doubtful")
    journal.note(Sent(failed=[doubtful]))
    journal.assert_agrees([read(2, SECOND)], end=4, what="lost")
    journal.assert_agrees([read(4, doubtful)], end=5, what="kept")
