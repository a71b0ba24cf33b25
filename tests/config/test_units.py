from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierd.config import format_duration, parse_bytes, parse_duration_s
from tierd.config.units import format_bytes


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30s", 30), ("15m", 900), ("1h30m", 5400), ("500ms", 0.5), ("1.5h", 5400), ("7d", 604800), ("2w", 1209600)],
)
def test_duration_is_one_or_more_numbers_with_units(written: str, seconds: float) -> None:
    assert parse_duration_s(written) == seconds


@pytest.mark.parametrize("written", [0, "0", -1, "-1"])
def test_zero_and_minus_one_need_no_unit(written: str | int) -> None:
    assert parse_duration_s(written) == int(written)


@pytest.mark.parametrize("written", [30, "30", "", "s", "3 fortnights", "-5s", "1h-5m", "nan", "inf", "1e3s"])
def test_malformed_duration_is_refused_with_an_example(written: str | int) -> None:
    with pytest.raises(ValueError, match=r"write a number and a unit, such as 500ms, 30s"):
        parse_duration_s(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [("4MiB", 4 << 20), ("4 mib", 4 << 20), ("1GB", 10**9), ("1GiB", 2**30), ("1.5KiB", 1536), ("10", 10), (10, 10)],
)
def test_a_size_is_a_number_and_a_decimal_or_binary_unit(written: str | int, size: int) -> None:
    assert parse_bytes(written) == size


@pytest.mark.parametrize("written", ["unlimited", "Unlimited", -1, "-1"])
def test_unlimited_size_is_written_as_unlimited_or_in_the_form_of_kafka(written: str | int) -> None:
    assert parse_bytes(written) is None


@pytest.mark.parametrize("written", ["", "MiB", "4 MiBs", "-4MiB", "4m5", "many"])
def test_malformed_size_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(ValueError, match="such as 512KiB, 4MiB"):
        parse_bytes(written)


def test_fraction_of_a_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="no whole number of bytes"):
        parse_bytes("0.5B")


@settings(deadline=None)  # a busy machine is no failure
@given(st.integers(0, 2**53))
def test_formatted_size_is_parsed_to_itself(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == size


@settings(deadline=None)  # a busy machine is no failure
@given(st.integers(0, 10**12).map(lambda ms: float(Decimal(ms) / 1000)))
def test_formatted_duration_is_parsed_to_itself(seconds: float) -> None:
    assert parse_duration_s(format_duration(seconds)) == seconds


def test_formatting_chooses_the_largest_exact_units() -> None:
    assert [format_duration(s) for s in (0, -1, 0.5, 30, 90, 900, 86400)] == [
        "0",
        "-1",
        "500ms",
        "30s",
        "1m30s",
        "15m",
        "1d",
    ]
    assert [format_bytes(s) for s in (None, 0, 1000, 4 << 20, 2**30)] == ["unlimited", "0B", "1000B", "4MiB", "1GiB"]
