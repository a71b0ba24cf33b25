"""Man pages: one for each command, with every option that --help lists, in a form that roff takes."""

import re
from pathlib import Path

import pytest
import typer

from tests.scenarios.command import run_tierd
from tests.scenarios.warm_tierd import WarmTierd
from tierd.cli.main import GROUPS, VERBS, build_app
from tierd.cli.man_pages import man_pages

VISIBLE = [verb for verb in VERBS if not verb.hidden]
REQUESTS = (".TH ", ".SH ", ".PP", ".TP", ".B ", ".BR ", ".nf", ".fi")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return man_pages(build_app([], load_all=True), "1.2.3")


def plain(page: str) -> str:
    return page.replace("\\-", "-").replace("\\&", "")


def test_every_verb_and_every_group_has_a_page(pages: dict[str, str]) -> None:
    verbs = {f"tierd-{'-'.join(verb.words)}.1" for verb in VISIBLE}
    groups = {f"tierd-{group.name}.1" for group in GROUPS}

    assert set(pages) == {"tierd.1", *verbs, *groups}


@pytest.mark.parametrize("verb", VISIBLE, ids=lambda verb: " ".join(verb.words))
def test_page_of_a_verb_has_the_options_and_examples_of_its_help(
    pages: dict[str, str], warm: WarmTierd, *, verb: object
) -> None:
    words = getattr(verb, "words", [])
    shown = warm.run(*words, "--help").stdout
    page = plain(pages[f"tierd-{'-'.join(words)}.1"])

    options = set(re.findall(r"^│[ *]+(--[a-z-]+)", shown, re.MULTILINE))
    assert "--help" in options
    assert {option for option in options if option not in page} == set()
    assert ".SH EXAMPLES" in page
    assert f"tierd {' '.join(words)}" in page.split(".SH EXAMPLES")[1]


def test_page_of_the_command_lists_its_verbs_and_exit_codes(pages: dict[str, str]) -> None:
    page = plain(pages["tierd.1"])

    assert all(f".B tierd {verb.name}\n{verb.summary}\n" in page for verb in VISIBLE if not verb.group)
    assert "man-pages" not in page
    assert ".TP\n.B 3\nA store or the daemon cannot be reached.\n" in page
    assert page.startswith('.TH "TIERD" "1" "" "tierd 1.2.3" "tierd"\n.SH NAME\ntierd - tiered storage')


def test_pages_have_only_requests_that_they_mean(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        assert page.isascii(), name
        for line in page.splitlines():
            assert not line.startswith((".", "'")) or line.startswith(REQUESTS), f"{name}: {line}"
            assert re.fullmatch(r"(?:[^\\]|\\[-&e]|\\\[u[0-9A-F]{4,6}\])*", line), f"{name}: {line}"


def test_text_that_roff_would_take_for_its_own_is_printed_as_it_is() -> None:
    def odd(path: str = typer.Option("c", help=".TH of \\n and 'é'")) -> None:
        """'Quoted.

        .SH at the begin.

        Example: tierd odd --path \\x
        """

    app = typer.Typer(add_completion=False)
    app.command("odd", short_help="Odd.")(odd)
    app.callback()(lambda: None)
    page = man_pages(app, "1")["tierd-odd.1"]

    assert "\n\\&'Quoted.\n" in page
    assert "\n\\&.SH at the begin.\n" in page
    assert "\n.nf\ntierd odd \\-\\-path \\ex\n.fi\n" in page
    assert "\n\\&.TH of \\en and '\\[u00E9]' [default: c]\n" in page


def test_command_writes_the_pages_and_says_how_many(tmp_path: Path) -> None:
    ended = run_tierd("man-pages", str(tmp_path / "man1"))

    written = sorted(file.name for file in (tmp_path / "man1").iterdir())
    assert ended.stdout == f"{len(written)} pages in {tmp_path / 'man1'}\n"
    assert {"tierd.1", "tierd-status.1", "tierd-log-append.1"} <= set(written)
