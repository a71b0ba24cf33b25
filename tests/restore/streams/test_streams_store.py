import pytest

from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType


def store(**facts: object) -> StreamsStore:
    return StreamsStore(
        **({"name": "s", "changelog": "c", "subtopology": 1, "type": StreamsStoreType.KEY_VALUE} | facts)  # type: ignore[arg-type]
    )


WINDOW = {"type": StreamsStoreType.WINDOW, "retention_ms": 100, "segment_interval_ms": 60}


def test_key_value_store_lies_below_rocksdb() -> None:
    assert (str(store().directory), str(store().segment_directory(0))) == ("rocksdb/s", ".")


def test_versioned_store_lies_below_rocksdb_without_segment_directories() -> None:
    versioned = store(type=StreamsStoreType.VERSIONED, retention_ms=100, segment_interval_ms=60)

    assert (str(versioned.directory), str(versioned.segment_directory(3))) == ("rocksdb/s", ".")


def test_segments_of_a_window_store_are_named_by_their_start() -> None:
    assert (str(store(**WINDOW).directory), str(store(**WINDOW).segment_directory(3))) == ("s", "s.180")


def test_task_is_subtopology_and_partition() -> None:
    assert store().task(7) == "1_7"


@pytest.mark.parametrize(("time_ms", "segment_id"), [(0, 0), (59, 0), (60, 1), (-59, 0), (-61, -1)])
def test_segment_ids_are_divided_as_java_does(time_ms: int, segment_id: int) -> None:
    assert store(**WINDOW).segment_id(time_ms) == segment_id


@pytest.mark.parametrize("name", ["", ".", "..", ".checkpoint", ".c", "rocksdb", "a/b", "a b", "ä", "x" * 250])
def test_name_that_is_no_store_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a store"):
        store(name=name)


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"changelog": "a b"}, "name of a topic"),
        ({"subtopology": -1}, "negative"),
        ({"retention_ms": 5}, "has no retention"),
        ({"type": StreamsStoreType.SESSION}, "needs retention and segment_interval"),
        (WINDOW | {"segment_interval_ms": None}, "needs retention and segment_interval"),
        (WINDOW | {"segment_interval_ms": 0}, "at least 1ms"),
        (WINDOW | {"retention_ms": -1}, "not be negative"),
        (WINDOW | {"retention_ms": 86_400_000, "segment_interval_ms": 1}, "more than 1000 times"),
    ],
)
def test_impossible_facts_are_refused(facts: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        store(**facts)
