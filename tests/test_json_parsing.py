"""parse_json: values are parsed as they were written, and every other text is a ValueError."""

import contextlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tierd
from tierd.json_parsing import MAX_DEPTH, parse_json, parse_json_object

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def nested(levels: int, inner: str = "") -> str:
    return "[" * levels + inner + "]" * levels


@given(VALUES)
def test_json_of_any_value_is_parsed_to_that_value(value: object) -> None:
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode(errors="replace"), unique_names=True) is not ...


@given(st.binary())
def test_json_parser_refuses_any_bytes_with_value_error_alone(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_json(content)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 900, 3_000, 300_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_nested_too_deeply_is_refused(levels: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    text = '{"a":' + opening * (levels - 1) + "1" + closing * (levels - 1) + "}"
    for parse in (parse_json, parse_json_object):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse(text)


def test_json_nested_up_to_the_limit_is_parsed_beside_many_other_brackets() -> None:
    inner = nested(MAX_DEPTH - 1, '"]]]{{{"')
    assert parse_json(f"[{inner}, {inner}]") == [json.loads(inner)] * 2
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(f"[{inner}, [{inner}]]")
    assert parse_json(json.dumps([{}] * 5000)) == [{}] * 5000


@pytest.mark.parametrize(
    "text",
    ["NaN", "-Infinity", "[1e999]", "9" * 5_000, '"\ud800', "{} {}", "", "\x00", '{"a": 1', b"\xff\xfe[\x00]\x00"],
)
def test_json_outside_of_the_standard_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


HALVES = [r'"\ud800"', r'{"\udfff": 1}', r'["\\\uD83D", 1]', r'"\ude00\ud83d"', r'["\ud83d", "\ude00"]']


@pytest.mark.parametrize("text", HALVES)
def test_json_with_an_unpaired_surrogate_is_refused(text: str) -> None:
    """No encoder accepts such text: a program that writes it on, into a row or to a terminal, would fail."""
    with pytest.raises(ValueError, match="half of a character"):
        parse_json(text)


@pytest.mark.parametrize("value", ["\U0001f600", "a\\ud800", {"\U0001f600" * 3: ["\\uDFFF"]}])
def test_json_with_escaped_surrogate_pairs_is_parsed(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


def test_json_with_more_values_than_expected_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ValueError, match="more than 100 values"):
        parse_json("[" + "0," * 100 + "0]", max_values=100)


def test_json_object_with_a_repeated_name_is_refused_where_names_are_unique() -> None:
    assert parse_json('{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(ValueError, match="twice"):
        parse_json('{"a": 1, "a": 2}', unique_names=True)


@pytest.mark.parametrize("text", ["[]", " {}", "{} ", "{}x", "", "1"])
def test_json_object_parser_refuses_all_but_one_object(text: str) -> None:
    with pytest.raises(ValueError, match="JSON"):
        parse_json_object(text)


def test_json_is_parsed_by_this_module_alone() -> None:
    root = Path(tierd.__file__).parent
    parses = re.compile(r"json\.loads?\(|JSONDecoder|json\.decoder")
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if parses.search(path.read_text())}
    assert found == {"json_parsing.py"}
