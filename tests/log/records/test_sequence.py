import pytest

from tierd.log.records.batch_header import MAX_SEQUENCE, increment_sequence


@pytest.mark.spec("log-format REC-05")
def test_sequence_numbers_wrap_around_the_largest_int() -> None:
    assert increment_sequence(5, 5) == 10
    assert increment_sequence(MAX_SEQUENCE, 1) == 0
    assert increment_sequence(MAX_SEQUENCE - 5, 10) == 4
