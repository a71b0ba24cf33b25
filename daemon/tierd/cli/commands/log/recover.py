"""``tierd log recover``: load and close a log dir, as a broker does at its start and clean stop."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.cli.failures import ExitCode
from tierd.cli.log_settings import SetOption, parse_settings
from tierd.cli.options import JsonOption
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_error, print_json, print_line
from tierd.cli.output.progress_line import progress_line
from tierd.cli.session import log_to_stderr
from tierd.log import RecoveredLogDir, RecoveredPartition, RemainingLoad, recover_log_dir
from tierd.sizes import human_size


def recover(
    log_dir: Annotated[
        Path,
        typer.Argument(
            metavar="LOGDIR",
            help="A log dir that no broker uses: the directory of the partition directories.",
            exists=True,
            file_okay=False,
            resolve_path=True,
        ),
    ],
    *,
    settings: SetOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="If there is damage that a broker would keep, list it and change nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Load every log of a log dir and close it cleanly, as a broker's start and clean stop would.

    After a crash the part that was not flushed is recovered: torn tails are cut off and not kept (tierd repair keeps
    them), indexes and producer snapshots are rebuilt, files of interrupted deletions and replacements are removed.
    Partitions without a topic id are set aside. Retention and compaction do not run. Settings are for all topics, or
    for one: --set orders:segment.bytes=1048576.

    Examples:
        tierd log recover /var/lib/kafka/data --strict

        tierd log recover /var/lib/kafka/data --set segment.bytes=1073741824 --json
    """
    log_to_stderr()
    config_for = parse_settings(settings).of
    with progress_line("recovering") as report_progress:
        found = recover_log_dir(
            log_dir,
            config_for=config_for,
            strict=strict,
            on_progress=lambda left: report_progress(_left(left)),
        )
    if json:
        print_json(_as_json(found))
    else:
        _print(found)
    if found.is_offline:
        raise typer.Exit(ExitCode.UNREACHABLE)
    if found.problems:
        raise typer.Exit(ExitCode.NO)


def _left(remaining: RemainingLoad) -> str:
    logs, segments = sum(remaining.logs.values()), sum(remaining.segments.values())
    return f"{logs} logs left" + (f", {segments} segments in those at hand" if segments else "")


def _print(found: RecoveredLogDir) -> None:
    if found.problems:
        for problem in found.problems:
            print_line(f"DAMAGE {problem}")
        print_line(f"{found.log_dir}: {len(found.problems)} problems that a broker would keep; nothing was changed")
        return
    table = plain_table(("partition", "outcome"), ("segments", "deleted", "cut", "start", "end"), "directory")
    for partition in found.partitions:
        table.add_row(*_row(partition))
    print_table(table)
    if found.is_offline:
        print_error(f"{found.log_dir}: the disk failed; it was not left clean")
        return
    was = "clean" if found.was_clean else "unclean"
    print_line(f"{found.log_dir}: {len(found.partitions)} partitions, the last stop was {was}, this one is clean")


def _row(partition: RecoveredPartition) -> tuple[str, ...]:
    cut = human_size(partition.bytes_cut) if partition.bytes_cut else "0"
    bounds = (partition.log_start_offset, partition.log_end_offset)
    return (
        partition.name,
        partition.outcome,
        str(partition.segments_recovered),
        str(partition.segments_deleted),
        cut,
        *("" if offset is None else str(offset) for offset in bounds),
        partition.directory.name if partition.directory.name != partition.name else "",
    )


def _as_json(found: RecoveredLogDir) -> dict[str, JsonValue]:
    return {
        "log_dir": str(found.log_dir),
        "was_clean": found.was_clean,
        "offline": found.is_offline,
        "problems": list(found.problems),
        "partitions": [
            {
                "partition": partition.name,
                "directory": partition.directory.name,
                "outcome": partition.outcome,
                "segments_recovered": partition.segments_recovered,
                "segments_deleted": partition.segments_deleted,
                "bytes_cut": partition.bytes_cut,
                "log_start_offset": partition.log_start_offset,
                "log_end_offset": partition.log_end_offset,
            }
            for partition in found.partitions
        ],
    }
