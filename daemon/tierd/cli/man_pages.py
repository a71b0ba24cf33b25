"""Man pages of the command line, from the declarations that ``--help`` prints (man(7)). Pure."""

import re
from collections.abc import Iterator
from typing import Any, Final

import typer
import typer.main

_SECTION: Final = 1
_SUMMARY: Final = "tiered storage beside a stock Apache Kafka broker"
_EXIT_CODES: Final = (
    ("0", "The command is done."),
    ("1", "The answer is no: something is missing, damaged or out of range."),
    ("2", "The command line or the configuration is wrong."),
    ("3", "A store or the daemon cannot be reached."),
    ("4", "The request was refused."),
)
_FILES: Final = (
    ("/etc/tierd/tierd.yaml", "The configuration, unless --config or TIERD_CONFIG names another file."),
    ("control.sock", "The control socket of the daemon, in state_dir of the configuration."),
)


def man_pages(app: typer.Typer, version: str) -> dict[str, str]:
    """Return the pages by the names of their files: ``tierd.1``, and one for each verb, such as ``tierd-log-append.1``.

    Args:
        app: the application, with the parameters of every verb.
        version: of the package; the pages name no date, so that two builds of one version are equal.
    """
    pages = dict(_pages(typer.main.get_command(app), ("tierd",), version))
    return {f"{name}.{_SECTION}": text for name, text in sorted(pages.items())}


def _pages(command: Any, words: tuple[str, ...], version: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - typer's
    """Yield (name, page) of a command and of the commands below it, hidden ones left out."""
    below = {name: each for name, each in getattr(command, "commands", {}).items() if not each.hidden}
    context = typer.Context(command, info_name=words[-1])
    lines = [
        f'.TH "{"-".join(words).upper()}" "{_SECTION}" "" "tierd {_escaped(version)}" "tierd"',
        ".SH NAME",
        f"{_escaped('-'.join(words))} \\- {_escaped(_summary(command, words))}",
        ".SH SYNOPSIS",
        f".B {_escaped(' '.join(words))}",
        _escaped(" ".join(command.collect_usage_pieces(context))),
        *_described(command.help or ""),
        *_listed("OPTIONS", filter(None, (each.get_help_record(context) for each in command.get_params(context)))),
        *_listed("COMMANDS", ((f"{' '.join(words)} {name}", each.short_help) for name, each in below.items())),
        *_listed("EXIT STATUS", _EXIT_CODES),
        *_listed("FILES", _FILES),
        ".SH SEE ALSO",
        ", ".join(f".BR {name} ({_SECTION})" for name in _related(words, below)).replace(", .BR", " ,\n.BR"),
    ]
    yield "-".join(words), "\n".join(lines) + "\n"
    for name, each in below.items():
        yield from _pages(each, (*words, name), version)


def _summary(command: Any, words: tuple[str, ...]) -> str:  # noqa: ANN401 - as above
    if len(words) == 1:
        return _SUMMARY
    text = str(command.short_help).rstrip(".")
    return text[:1].lower() + text[1:]


def _related(words: tuple[str, ...], below: dict[str, Any]) -> list[str]:
    return ["-".join((*words, name)) for name in below] if below else ["-".join(words[:-1])]


def _described(text: str) -> Iterator[str]:
    """Yield the sections DESCRIPTION and EXAMPLES; indented lines are commands."""
    paragraphs = [each for each in re.split(r"\n[ \t]*\n", text) if each.strip()]
    at = next((n for n, each in enumerate(paragraphs) if re.match("Examples?:", each)), len(paragraphs))
    yield ".SH DESCRIPTION"
    for paragraph in paragraphs[:at]:
        yield from (".PP", _escaped(" ".join(paragraph.split())))
    if at < len(paragraphs):
        yield ".SH EXAMPLES"
    for paragraph in paragraphs[at:]:
        for line in re.sub(r"\AExamples?:\s*", "", paragraph).splitlines():
            yield from (".PP", ".nf", _escaped(line.strip()), ".fi")


def _listed(title: str, records: Iterator[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Iterator[str]:
    rows = list(records)
    if rows:
        yield f".SH {title}"
    for name, text in rows:
        yield from (".TP", f".B {_escaped(name)}", _escaped(" ".join(text.split())))


def _escaped(text: str) -> str:
    """Return a line of text, in ASCII, that roff prints as it is: no escape, no request, hyphens that can be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in escaped)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
