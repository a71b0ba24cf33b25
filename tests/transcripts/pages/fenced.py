"""Commands in the fenced blocks of README and docs, each with its place and with the output that the page prints."""

import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
SHELLS: Final = frozenset(("bash", "sh", "shell", "console"))
_PROMPT: Final = "$ "
_PROGRAM: Final = re.compile(r"(sudo |\$ )?(tierd|systemctl|docker|curl|make|pip|(kafka|connect)-[a-z-]+\.sh)\b")
_OPENS: Final = re.compile(r"(\\|\||&&|\{)$|<<|^\s*(for|while|until|if|case)\b")
_COMMENT: Final = re.compile(r"\s+# [^\"']*$|\s{2,}# .*$")


@dataclass(frozen=True, slots=True)
class FencedCommand:
    """Command of a page.

    Attributes:
        page: from the root of the repository.
        line: of its first line in the page, from 1.
        heading: the nearest one above it.
        text: without prompt, indentation and trailing comment; lines of a loop or a here-document belong together.
        printed: the lines that the page shows as its output; none where the block has commands alone.
    """

    page: str
    line: int
    heading: str
    text: str
    printed: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Return page and line, as compilers print them."""
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return every page that may have commands, from the root of the repository."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(file.relative_to(ROOT)) for file in files]


@cache
def commands_of(page: str) -> tuple[FencedCommand, ...]:
    """Return the commands of a page in their order."""
    return tuple(_found(page, (ROOT / page).read_text().splitlines()))


def _found(page: str, lines: list[str]) -> Iterator[FencedCommand]:
    heading, at = "", 0
    while at < len(lines):
        fence = re.match(r" *(`{3,})(\w*)\s*$", lines[at])
        if fence is None:
            heading = lines[at].lstrip("# ") if re.match(r"#+ ", lines[at]) else heading
            at += 1
            continue
        block = _until(fence[1], lines[at + 1 :])
        yield from _of_block(page, at + 2, heading, fence[2], textwrap.dedent("\n".join(block)).splitlines())
        at += len(block) + 2


def _of_block(page: str, first: int, heading: str, language: str, lines: list[str]) -> Iterator[FencedCommand]:
    if language not in SHELLS and not (language == "" and lines and _PROGRAM.match(lines[0])):
        return
    if lines[0].startswith("#!"):
        yield FencedCommand(page, first, heading, "\n".join(lines))
        return
    has_prompts = lines[0].startswith(_PROMPT)
    pending: list[str] = []
    begins, number = 0, 0
    while number < len(lines):
        line = lines[number].removeprefix(_PROMPT) if has_prompts and not pending else lines[number]
        if not pending and (not line.strip() or line.startswith("#")):
            number += 1
            continue
        begins = begins if pending else number
        pending.append(line)
        number += 1
        if is_complete("\n".join(pending)):
            output = _until_prompt(lines[number:]) if has_prompts else ()
            yield FencedCommand(page, first + begins, heading, _uncommented(pending), tuple(output))
            number += len(output)
            pending = []
    assert not pending, f"{page}:{first + begins}: the block ends within a command"


def _until(end: str, lines: Iterable[str]) -> list[str]:
    return [*takewhile(lambda line: line.strip() != end, lines)]


def _until_prompt(lines: Iterable[str]) -> list[str]:
    return [*takewhile(lambda line: not line.startswith(_PROMPT), lines)]


def _uncommented(lines: list[str]) -> str:
    last = _COMMENT.sub("", lines[-1])
    return "\n".join([*lines[:-1], last if is_complete("\n".join([*lines[:-1], last])) else lines[-1]])


def is_complete(text: str) -> bool:
    """Return True if a shell would run the text and not wait for another line."""
    if "\n" not in text and not _OPENS.search(text):
        try:
            shlex.split(text, comments=True)
        except ValueError:
            return False
        return True
    return not text.endswith("\\") and syntax_error(text) == ""


def syntax_error(text: str) -> str:
    """Return what bash says of a text that it cannot parse, also of a here-document without its end."""
    return subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False).stderr
