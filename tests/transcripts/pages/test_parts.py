"""Parts of the transcripts of pages: commands in fenced blocks, placeholders, printed samples, the shell."""

import os
from pathlib import Path

import pytest

from tests.transcripts.pages import fenced
from tests.transcripts.pages.fenced import commands_of, is_complete
from tests.transcripts.pages.placeholders import masked, without_progress
from tests.transcripts.pages.playing import covers
from tests.transcripts.pages.samples import difference
from tests.transcripts.pages.shell import BashSession

PAGE = """# Title

```bash
tierd status     # a comment
tierd verify "a  # b"

# only a comment
for n in 1 2; do
  echo $n   # inside
done | tee all    # behind
cat > file <<EOF
text # of the file
EOF
```

## Other

1. A list:

   ```console
   $ tierd topics
   orders
   ...
   $ tierd resume
   ```

```
systemctl restart tierd
```

```
not a command
```

```yaml
tierd: status
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "page.md").write_text(PAGE)
    monkeypatch.setattr(fenced, "ROOT", tmp_path)
    commands_of.cache_clear()
    return "page.md"


def test_commands_of_a_page_have_their_places_and_what_the_page_prints(page: str) -> None:
    found = [(each.line, each.heading, each.text, each.printed) for each in commands_of(page)]
    assert found == [
        (4, "Title", "tierd status", ()),
        (5, "Title", 'tierd verify "a  # b"', ()),
        (8, "Title", "for n in 1 2; do\n  echo $n   # inside\ndone | tee all", ()),
        (11, "Title", "cat > file <<EOF\ntext # of the file\nEOF", ()),
        (21, "Other", "tierd topics", ("orders", "...")),
        (24, "Other", "tierd resume", ()),
        (28, "Other", "systemctl restart tierd", ()),
    ]


@pytest.mark.parametrize("text", ["a |", "a \\", "if a; then", "a '", "cat <<EOF\nb", "f() {"])
def test_text_that_a_shell_would_continue_is_not_complete(text: str) -> None:
    assert not is_complete(text)


def test_command_is_covered_by_a_test_that_takes_all_of_its_lines(page: str) -> None:
    status, _, loop, *_ = commands_of(page)
    assert covers("tierd   status\nother", status)
    assert not covers("tierd status --watch", status)
    assert covers("x\nfor n in 1 2; do\necho $n\ndone | tee all\ny", loop)
    assert not covers("for n in 1 2; do\ndone | tee all", loop)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("at 2026-11-28 18:53:45 UTC, 2026-11-28T18:53:45.123Z", "at <time>, <time>"),
        ("00000000000000000140-6c0JD-eDQabAvr2lXIC-yQ.log", "00000000000000000140-<id>.log"),
        ("orders-CGqmmsHySCayzuqUp6x1YA/0", "orders-<id>/0"),
        ("DELETE_SEGMENT_STARTED  a      b", "DELETE_SEGMENT_STARTED  a  b"),
        ("ready after 1.5 s, process 4711", "ready after <duration>, process <pid>"),
        ("offsets 15 to 19, 30.0 KiB", "offsets 15 to 19, 30.0 KiB"),
        ("39.1 GB free, 329 MB/s", "<size> free, <size>/s"),
    ],
)
def test_texts_that_vary_become_placeholders_and_others_stay(line: str, expected: str) -> None:
    assert masked(line) == expected
    assert masked(expected) == expected


def test_lines_of_progress_are_left_out() -> None:
    assert without_progress(["drill: orders-0", "4 segments, now in orders-0", "drill of orders-0"]) == [
        "drill of orders-0"
    ]


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        (["a", "b", "c"], ""),
        (["...", "c"], ""),
        (["a", "..."], ""),
        (["a", "…", "c"], ""),
        (["a…", "b", "…"], ""),
        (["a", "b"], "the page does not show\nc"),
        (["a", "b", "c", "d"], "the page shows\nd\nwhere the command prints\nthe end of the output"),
        (["b", "..."], "the page shows\nb\nwhere the command prints\na"),
        (["...", "d"], "the page shows\nd\nwhere the command prints\na\nb\nc"),
        ([".", "b", "c"], "the page shows\n.\nwhere the command prints\na"),
    ],
)
def test_output_that_a_page_prints_is_compared_with_that_of_the_command(shown: list[str], problem: str) -> None:
    assert difference(shown, ["a", "b", "c"]) == problem


def test_commands_of_a_session_share_variables_and_folder_and_end_alone(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with BashSession(tmp_path, folder=tmp_path, environment=os.environ) as session:
        assert session.run("value=1; cd inner") == (0, "")
        assert session.run("echo $value; basename $PWD; cat") == (0, "1\ninner\n")
        assert session.run("echo wrong >&2; false") == (1, "wrong\n")
        assert session.run("for n in 1 2; do\n echo $n\ndone") == (0, "1\n2\n")
        with pytest.raises(AssertionError, match="has ended the shell: last"):
            session.run("echo last; exit 3")
