"""Layout of tables and lines: columns, what folds, what is cut, and what a terminal shows of it."""

from hypothesis import given
from hypothesis import strategies as st

from tierd.cli.output.layout import PlainTable, fold, painted, plain_table, plain_text, text_width

words = st.text(st.characters(categories=("Lu", "Ll", "Nd", "Lo", "Mn"), max_codepoint=0xFFFF), max_size=40)


def table_of(*rows: tuple[str, str, str]) -> PlainTable:
    table = plain_table(("partition",), ("size",), "why")
    for row in rows:
        table.add_row(*row)
    return table


def test_columns_are_as_wide_as_their_cells_and_numbers_stand_at_the_right() -> None:
    table = table_of(("a-0", "1", "waits"), ("orders-eu-0", "1024", ""))

    assert table.lines(80, styled=False) == [
        "partition    size  why",
        "a-0             1  waits",
        "orders-eu-0  1024",
    ]


def test_last_column_folds_between_words_and_the_others_keep_their_width() -> None:
    table = table_of(("orders-0", "7", "torn batch at position 8192; run tierd inspect"))

    assert table.lines(40, styled=False) == [
        "partition  size  why",
        "orders-0      7  torn batch at position",
        "                 8192; run tierd inspect",
    ]


def test_widest_column_is_cut_where_the_terminal_is_too_narrow() -> None:
    table = table_of(("a-very-long-name-of-a-topic-0", "7", "why not"))

    lines = table.lines(30, styled=False)

    assert lines[1].startswith("a-very-")
    assert "…" in lines[1]
    assert max(map(text_width, lines)) <= 30


def test_cell_with_several_lines_takes_several_lines_of_the_table() -> None:
    table = plain_table(("partition",), (), "why")
    table.add_row("a-0", ("torn batch", "next: run tierd inspect"))

    assert table.lines(80, styled=False)[1:] == ["a-0        torn batch", "           next: run tierd inspect"]


def test_row_with_fewer_cells_than_columns_is_filled_up() -> None:
    table = plain_table(("partition",), ("size",), "why")
    table.add_row("a-0")

    assert table.row_count == 1
    assert table.lines(80, styled=False)[1] == "a-0"


def test_wide_characters_count_twice_and_marks_not_at_all() -> None:
    assert text_width("日本") == 4
    assert text_width("e\u0301") == 1
    table = plain_table(("topic",), (), "why")
    table.add_row("日本-0", "x")
    table.add_row("orders", "y")

    assert table.lines(80, styled=False)[1:] == ["日本-0  x", "orders  y"]


def test_styles_are_codes_on_a_terminal_alone_and_take_no_room() -> None:
    table = plain_table(("state",), (), "why")
    table.add_row(plain_text("idle", "red"), "x")

    assert table.lines(80, styled=False)[1] == "idle   x"
    assert table.lines(80, styled=True)[1] == "\x1b[31midle\x1b[0m   x"
    assert painted("", "red") == ""


def test_line_without_a_width_is_not_folded() -> None:
    text = "a " * 400

    assert plain_text(text).lines(None, styled=False) == [text]


@given(words, st.integers(min_value=2, max_value=60))
def test_folded_lines_fit_and_keep_every_character_but_spaces(text: str, width: int) -> None:
    text = f"{text} {text[::-1]}  {text}"

    lines = fold(text, width)

    assert all(text_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@given(st.lists(st.tuples(words, words, words), min_size=1, max_size=5), st.integers(min_value=34, max_value=200))
def test_table_fits_every_terminal_that_has_room_for_the_least_widths(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    assert all(text_width(line) <= width for line in table_of(*rows).lines(width, styled=False))
