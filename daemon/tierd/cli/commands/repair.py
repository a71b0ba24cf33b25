"""``tierd repair``: repair a damaged partition directory, and keep everything that is cut off."""

from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.cli.failures import ExitCode
from tierd.cli.log_settings import SetOption, parse_settings
from tierd.cli.options import JsonOption, PartitionDirectoryArgument
from tierd.cli.output.printing import print_json
from tierd.cli.output.progress_line import progress_line
from tierd.cli.output.repair_output import as_json, print_repair
from tierd.cli.session import log_to_stderr
from tierd.clock import SystemClock
from tierd.log import repair_partition
from tierd.model import TopicPartition


def repair(
    directory: PartitionDirectoryArgument,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done, and why.")] = False,
    cut_damaged: Annotated[
        bool,
        typer.Option(
            "--cut-damaged",
            help="End the log before the first damage in its middle; the rest is moved to side files.",
        ),
    ] = False,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Repair a partition directory that no broker and no daemon uses: tierd's own, or that of a stopped broker.

    Indexes, producer snapshots and leader epochs that are missing or wrong are rebuilt from the batches; a torn tail is
    cut off. Everything that is replaced or cut is kept beside the log, in a file tierd-kept.*, which brokers ignore.
    Damage in the middle of the log is reported with the possible next steps. Exits with 1 while damage remains.

    Examples:
        tierd repair --dry-run /var/lib/kafka/data/orders-0

        tierd repair /var/lib/kafka/data/orders-0 --set index.interval.bytes=4096
    """
    log_to_stderr()
    topic = TopicPartition.parse(directory.name).topic
    config = parse_settings(settings).of(topic)
    with progress_line("looking") as report_progress:
        result = repair_partition(
            directory,
            now_ms=SystemClock().now_ms(),
            config=config,
            cut_damaged=cut_damaged,
            dry_run=dry_run,
            progress=lambda name, done, total: report_progress(f"{name}, {done} of {total} segments"),
        )
    if json:
        answer: dict[str, JsonValue] = {"dry_run": dry_run, **as_json(result)}
        print_json(answer)
    else:
        print_repair(result, is_plan=dry_run)
    if not result.is_sound:
        raise typer.Exit(ExitCode.NO)
