"""``tierd inspect``: decode and check the files of a log dir."""

from pathlib import Path
from typing import Annotated

import typer

from tierd.cli.output.printing import print_error, print_json, print_line
from tierd.cli.session import log_to_stderr
from tierd.errors import TierError
from tierd.log import Damage, Decoded, FileFound, InspectionFinding, Note, inspect_path

_REACHED_NOTHING = 3


def inspect(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Segments, indexes, snapshots, checkpoints, directories.")
    ],
    records: Annotated[bool, typer.Option("--records", help="Also decode the records of every sound batch.")] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Decode every record, rebuild indexes and producer state, and compare."),
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Print only damage and the summary.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on each line.")] = False,
) -> None:
    """Decode and check files that a broker wrote; exits with 1 if a file is damaged.

    Examples:
        tierd inspect /var/lib/kafka/data/orders-0/00000000000000001234.log --records

        tierd inspect --check --deep /var/lib/kafka/data
    """
    log_to_stderr()
    counts = {"files": 0, "batches": 0, "damage": 0}
    for path in paths:
        try:
            for finding in inspect_path(path, records=records, deep=deep):
                _count(counts, finding)
                if not check or isinstance(finding, Damage):
                    _print(finding, as_json=json)
        except TierError as error:
            print_error(str(error))
            if error.remedy:
                print_error(error.remedy)
            raise typer.Exit(_REACHED_NOTHING) from error
    if json:
        print_json({"type": "summary", **counts})
    else:
        print_line(f"{counts['files']} files, {counts['batches']} batches, {counts['damage']} damaged places")
    if counts["damage"]:
        raise typer.Exit(1)


def _count(counts: dict[str, int], finding: InspectionFinding) -> None:
    match finding:
        case FileFound():
            counts["files"] += finding.kind not in ("log dir", "partition")
        case Decoded(kind="batch"):
            counts["batches"] += 1
        case Damage():
            counts["damage"] += 1
        case _:
            pass


def _print(finding: InspectionFinding, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(finding))
        return
    for line in _as_text(finding):
        print_line(line)


def _as_text(finding: InspectionFinding) -> list[str]:
    match finding:
        case FileFound(path, kind, size_bytes):
            return ["", f"{path}: {kind}" + (f", {size_bytes} bytes" if kind not in ("log dir", "partition") else "")]
        case Decoded(kind, fields):
            indent = "| " if kind == "record" else ""
            return [indent + " ".join(f"{name}: {_plain(value)}" for name, value in fields.items())]
        case Damage(path, position, problem, remedy):
            place = "" if str(path) in problem else f"{path}: "
            at = "" if position is None or "position" in problem else f" at position {position}"
            return [f"DAMAGE {place}{problem}{at}", *([f"       {remedy}"] if remedy else [])]
        case Note(path, text):
            return [f"NOTE {path}: {text}"]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _as_json(finding: InspectionFinding) -> dict[str, object]:
    match finding:
        case FileFound(path, kind, size_bytes):
            content: dict[str, object] = {"type": "file", "path": str(path), "kind": kind, "size_bytes": size_bytes}
        case Decoded(kind, fields):
            content = {"type": kind, **fields}
        case Damage(path, position, problem, remedy):
            content = {
                "type": "damage",
                "path": str(path),
                "position": position,
                "problem": problem,
                "remedy": remedy,
            }
        case Note(path, text):
            content = {"type": "note", "path": str(path), "text": text}
    return content
