import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.log.records.sequence import MAX_SEQUENCE, decrement_sequence, increment_sequence

sequences = st.integers(0, MAX_SEQUENCE)


@pytest.mark.spec("log-format REC-05")
def test_sequence_numbers_wrap_around_the_largest_int() -> None:
    assert increment_sequence(5, 5) == 10
    assert increment_sequence(MAX_SEQUENCE, 1) == 0
    assert increment_sequence(MAX_SEQUENCE - 5, 10) == 4
    assert decrement_sequence(5, 5) == 0
    assert decrement_sequence(0, 1) == MAX_SEQUENCE


@given(sequences, sequences)
def test_decrement_undoes_increment(sequence: int, count: int) -> None:
    later = increment_sequence(sequence, count)
    assert 0 <= later <= MAX_SEQUENCE
    assert decrement_sequence(later, count) == sequence
