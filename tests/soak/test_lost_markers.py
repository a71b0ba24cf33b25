import time
from pathlib import Path

import pytest

from tests.scenarios.journal import Journal, assert_agrees, encoded_value
from tests.services.kafka_journalled import AbortedTransaction, Sent
from tests.services.kafka_records import SentRecord
from tests.soak.keyed_journal import KeyedJournal
from tests.soak.lost_markers import LostMarker, lost_markers
from tests.soak.test_keyed_journal import read, sent

LINE = (
    "{at} INFO kafka.coordinator.transaction.TransactionMarkerChannelManager - [Transaction Marker Channel Manager 1]: "
    "Couldn't find leader endpoint for partitions Set(compacted-0, a-b-12) while trying to send transaction markers "
    "for soak-keyed, these partitions are likely deleted already and hence can be skipped\n"
)
ABORTED: SentRecord = sent(7, b"a", b"aborted")
TRANSACTION = AbortedTransaction([ABORTED], began_ms=1_000, ended_ms=3_000)


def test_partitions_and_moment_are_read_from_the_logs_of_all_processes(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("2026-11-28 07:32:30,001 INFO something else\n")
    (tmp_path / "server.log.0").write_text(LINE.format(at="2026-11-28 07:32:31,811"))
    second_s = time.mktime((2026, 11, 28, 7, 32, 31, 0, 0, -1))
    at_ms = int(second_s) * 1000 + 811
    assert lost_markers(tmp_path) == [LostMarker(("compacted", 0), at_ms), LostMarker(("a-b", 12), at_ms)]


def test_aborted_record_of_compacted_topic_is_right_only_where_the_marker_was_lost() -> None:
    journal = KeyedJournal()
    journal.note(Sent(aborted=[TRANSACTION]))
    journal.doubt_abort_at(3_001)
    with pytest.raises(AssertionError, match="no producer committed the record at 0"):
        journal.assert_agrees([read(0, ABORTED)], end=1, what="with the marker")
    journal.doubt_abort_at(2_000)
    journal.assert_agrees([read(0, ABORTED)], end=1, what="without the marker")


def test_aborted_record_is_right_only_where_the_marker_was_lost() -> None:
    journal = Journal()
    journal.abort("t", 0, [TRANSACTION])
    journal.doubt_abort_at("t", 0, 999)
    assert journal.of("t", 0).in_doubt == set()
    journal.doubt_abort_at("t", 0, 1_000)
    assert journal.of("t", 0).in_doubt == {encoded_value(ABORTED)}
    assert_agrees([read(0, ABORTED)], journal.of("t", 0), start=0, end=1, what="without the marker")
