import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.restore.streams.version_row import Version, VersionRow


def test_row_is_laid_out_as_kafka_streams_does() -> None:
    row = VersionRow(30, [Version(20, b"new"), Version(15, None), Version(10, b"old")])

    assert (
        row.encode()
        == bytes.fromhex(
            "000000000000001e 000000000000000a"
            "0000000000000014 00000003 000000000000000f ffffffff 000000000000000a 00000003"
        )
        + b"oldnew"
    )


_VERSIONS = st.lists(
    st.tuples(st.integers(-5, 50), st.one_of(st.none(), st.binary(max_size=4))), min_size=1, unique_by=lambda v: v[0]
)


@given(_VERSIONS, st.integers(51, 60))
def test_row_is_read_as_it_was_written(versions: list[tuple[int, bytes | None]], next_ms: int) -> None:
    row = VersionRow(next_ms, [Version(*version) for version in sorted(versions, reverse=True, key=lambda v: v[0])])

    assert VersionRow.decode(row.encode()) == row


@given(st.binary(max_size=60))
def test_bytes_that_are_no_row_are_refused_or_written_as_they_were(data: bytes) -> None:
    try:
        row = VersionRow.decode(data)
    except ValueError:
        return
    assert len(row.encode()) == len(data)


@pytest.mark.parametrize("cut", [1, 15, 27, 30])
def test_row_that_ends_early_is_refused(cut: int) -> None:
    data = VersionRow(30, [Version(20, b"value")]).encode()

    with pytest.raises(ValueError, match="bytes"):
        VersionRow.decode(data[:cut])


def test_bytes_behind_a_row_are_refused() -> None:
    with pytest.raises(ValueError, match="belong to no value"):
        VersionRow.decode(VersionRow(30, [Version(20, b"value")]).encode() + b"x")


def test_newest_version_after_a_gap_follows_a_tombstone() -> None:
    row = VersionRow.of(b"a", valid_from_ms=10, valid_to_ms=20)
    row.add_newest(Version(25, b"b"), valid_to_ms=30)

    assert row == VersionRow(30, [Version(25, b"b"), Version(20, None), Version(10, b"a")])


def test_bare_row_gives_way_to_a_version_from_its_time_on() -> None:
    row = VersionRow.of(None, valid_from_ms=20, valid_to_ms=20)
    row.add_newest(Version(20, b"b"), valid_to_ms=30)

    assert row == VersionRow(30, [Version(20, b"b")])


def test_bare_row_stays_as_a_tombstone_before_a_later_version() -> None:
    row = VersionRow.of(None, valid_from_ms=20, valid_to_ms=20)
    row.add_newest(Version(25, b"b"), valid_to_ms=30)

    assert row == VersionRow(30, [Version(25, b"b"), Version(20, None)])


def test_older_version_ends_where_a_bare_row_is() -> None:
    row = VersionRow.of(None, valid_from_ms=20, valid_to_ms=20)
    row.add_oldest(Version(5, b"a"))

    assert row == VersionRow(20, [Version(5, b"a")])


def test_versions_that_reach_into_the_newest_are_cut() -> None:
    row = VersionRow(30, [Version(20, b"b"), Version(10, b"a")])
    row.add_newest(Version(15, b"c"), valid_to_ms=40)

    assert row == VersionRow(40, [Version(15, b"c"), Version(10, b"a")])


def test_row_of_which_nothing_is_left_after_a_cut_takes_the_newest() -> None:
    row = VersionRow(30, [Version(20, b"b")])
    row.add_newest(Version(20, b"c"), valid_to_ms=40)

    assert row == VersionRow(40, [Version(20, b"c")])
