import pytest

from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.log_offset import LogOffset


def test_offset_with_a_lower_segment_is_on_an_older_segment() -> None:
    assert LogOffset(5, 0, 100).is_on_older_segment_than(LogOffset(19, 10, 0))
    assert not LogOffset(19, 10, 0).is_on_older_segment_than(LogOffset(19, 10, 0))
    assert not LogOffset(5).is_on_older_segment_than(LogOffset(19, 10, 0))
    assert LogOffset(5).is_offset_only


@pytest.mark.parametrize(
    ("origin", "assigns", "checks", "fences"),
    [
        (AppendOrigin.CLIENT, True, True, True),
        (AppendOrigin.COORDINATOR, True, False, True),
        (AppendOrigin.REPLICATION, False, False, False),
        (AppendOrigin.RAFT_LEADER, False, False, True),
    ],
)
def test_origin_of_an_append_decides_its_checks(
    origin: AppendOrigin, assigns: bool, checks: bool, fences: bool
) -> None:
    assert (origin.assigns_offsets, origin.checks_sequences, origin.fences) == (assigns, checks, fences)
