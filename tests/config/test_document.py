import pytest

from tierd.config.document import FilePlace, expand, read_document


def test_every_key_and_value_has_its_line_and_column() -> None:
    document = read_document("a: 1\nb:\n  - c: x\n", {})

    assert document.tree == {"a": 1, "b": [{"c": "x"}]}
    assert document.keys["b", 0, "c"] == FilePlace(3, 5)
    assert document.values["b", 0, "c"] == FilePlace(3, 8)


def test_scalars_have_the_types_of_yaml_1_2() -> None:
    text = "a: 010\nb: 0x10\nc: yes\nd: true\ne: 1.5\nf: '1'\ng: 1_000\nh: 0o17\ni: -3\n"

    assert read_document(text, {}).tree == {
        "a": 10, "b": 16, "c": "yes", "d": True, "e": 1.5, "f": "1", "g": 1000, "h": 15, "i": -3,
    }  # fmt: skip


def test_key_with_an_empty_value_counts_as_absent() -> None:
    assert read_document("a:\nb: null\nc: ~\nd: ''\n", {}).tree == {"d": ""}


def test_empty_file_is_an_empty_document() -> None:
    assert read_document("# nothing\n", {}).tree == {}


@pytest.mark.parametrize("text", ["- a\n", "word\n", "3\n"])
def test_a_file_that_is_no_mapping_is_a_fault(text: str) -> None:
    ((place, message),) = read_document(text, {}).faults

    assert place == FilePlace(1, 1)
    assert "keys and values" in message


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1\nb: 2\n", 2), ("a: 1\n\tb: 2\n", 2), ("a: 'x\n", 2), ("a: 1\n--- \nb: 1\n", 2), ("a: *b\n", 1)],
)
def test_a_syntax_error_has_its_place(text: str, line: int) -> None:
    ((place, message),) = read_document(text, {}).faults

    assert place is not None
    assert place.line == line
    assert message.startswith("this is not YAML: ")


def test_halves_of_a_character_as_json_writers_escape_it_are_joined() -> None:
    document = read_document(r'{"a": "x\ud83d\ude00", "\ud83d\ude00": "\u00fc"}', {})

    assert document.tree == {"a": "x😀", "😀": "ü"}
    assert not document.faults


def test_half_a_character_is_a_fault_at_its_place() -> None:
    document = read_document(r'{"a": "\ud83d", "b": {"\ude00": 1}, "\ude00\ud83d": 2}', {})

    message = r"an escape such as \ud83d is half a character: write the character itself"
    assert sorted(document.faults) == [
        (FilePlace(1, 7), f"a: {message}"),
        (FilePlace(1, 23), f"a key of b: {message}"),
        (FilePlace(1, 37), f"a key: {message}"),
    ]
    assert document.tree == {"b": {}}


def test_a_key_set_twice_is_a_fault_at_the_second_and_names_the_first() -> None:
    document = read_document("a: 1\nb: {c: 1, c: 2, c: 3}\na: 2\n", {})

    assert document.faults == [
        (FilePlace(2, 11), "b.c is set twice, first in line 2: remove one"),
        (FilePlace(2, 17), "b.c is set twice, first in line 2: remove one"),
        (FilePlace(3, 1), "a is set twice, first in line 1: remove one"),
    ]
    assert document.tree == {"a": 1, "b": {"c": 1}}


def test_a_file_that_contains_itself_is_a_fault() -> None:
    document = read_document("a: &x\n  b: *x\n", {})

    assert any("repeats itself" in message for _, message in document.faults)


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]

    document = read_document("\n".join(lines), {})

    assert len(document.values) < 20_000
    assert sum("repeats itself" in message for _, message in document.faults) == 1


def test_a_value_with_an_unknown_tag_is_text() -> None:
    assert read_document("a: !odd 3\n", {}).tree == {"a": "3"}


def test_text_with_an_integer_tag_is_a_fault() -> None:
    ((place, message),) = read_document("a: !!int many\n", {}).faults

    assert place == FilePlace(1, 4)
    assert "put it in quotes" in message


@pytest.mark.parametrize(
    ("written", "expanded"),
    [
        ("${A}", "1"),
        ("x-${A}-${B}", "1".join(["x-", "-"]) + "two"),
        ("${NONE:-fallback}", "fallback"),
        ("${EMPTY:-fallback}", "fallback"),
        ("${NONE:-}", ""),
        ("$$", "$"),
        ("$${A}", "${A}"),
        ("orders-.*$", "orders-.*$"),
        ("$A", "$A"),
    ],
)
def test_environment_variables_are_expanded_in_values(written: str, expanded: str) -> None:
    assert expand(written, {"A": "1", "B": "two", "EMPTY": ""}) == expanded


def test_all_missing_variables_of_a_value_are_named() -> None:
    with pytest.raises(ValueError, match=r"\$\{X\}, \$\{Y\} is not set.*\$\{X:-default\}"):
        expand("${X}/${Y}", {})


@pytest.mark.parametrize("written", ["${", "${A", "${1}", "${A-B}"])
def test_a_brace_that_begins_no_reference_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"write \$\$"):
        expand(written, {"A": "1"})


def test_value_that_expands_to_nothing_counts_as_absent() -> None:
    assert read_document("a: ${X:-}\nb: '${X:-}'\n", {}).tree == {"b": ""}


def test_environment_variables_in_keys_are_not_expanded() -> None:
    assert read_document("${A}: 1\n", {"A": "b"}).tree == {"${A}": 1}


@pytest.mark.parametrize("value", ["*hunter2", "!hunter2!x y", "&hunter2 a\nb: &hunter2 c"])
def test_password_that_yaml_takes_for_an_alias_or_tag_is_not_repeated(
    value: str, recwarn: pytest.WarningsRecorder
) -> None:
    document = read_document(f"password: {value}\n", {}, secret_at=lambda _: True)

    assert "hunter2" not in f"{document.faults} {[str(each.message) for each in recwarn]}"
