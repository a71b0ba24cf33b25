"""``tierd log truncate``: cut off the end of a log, and keep it in side files."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.cli.failures import ExitCode
from tierd.cli.log_settings import SetOption, parse_settings
from tierd.cli.options import JsonOption, PartitionDirectoryArgument
from tierd.cli.output.printing import print_error, print_json
from tierd.cli.output.progress_line import progress_line
from tierd.cli.output.repair_output import as_json, plan_lines, print_repair
from tierd.cli.session import log_to_stderr
from tierd.clock import SystemClock
from tierd.control_characters import visible
from tierd.errors import NotConfirmedError
from tierd.log import RepairPlan, truncate_partition
from tierd.model import TopicPartition


def truncate(
    directory: PartitionDirectoryArgument,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="First offset that is cut off.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for a confirmation.")] = False,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Cut off all records from an offset on, as a follower does after a change of leader.

    Prints first what it will cut, and asks. A batch that contains the offset is cut as a whole, so the log may end
    below the offset. The cut part is kept beside the log, in files tierd-kept.*, which brokers ignore.

    Examples:
        tierd log truncate /var/lib/kafka/data/orders-0 1200

        tierd log truncate /var/lib/kafka/data/orders-0 1200 --yes --json
    """
    log_to_stderr()
    config = parse_settings(settings).of(TopicPartition.parse(directory.name).topic)
    with progress_line("looking") as report_progress:
        result = truncate_partition(
            directory,
            offset,
            now_ms=SystemClock().now_ms(),
            config=config,
            confirm=lambda plan: yes or not plan.steps or _confirm(directory, plan),
            progress=lambda name, done, total: report_progress(f"{name}, {done} of {total} segments"),
        )
    if result is None:
        raise NotConfirmedError("nothing was cut", remedy="give --yes to cut without a question")
    if json:
        answer: dict[str, JsonValue] = {"offset": offset, **as_json(result)}
        print_json(answer)
    else:
        print_repair(result, is_plan=False, done="cut")
    if result.plan.log_end_offset > offset:  # damage lies before the offset, and its batch cannot be found
        raise typer.Exit(ExitCode.NO)


def _confirm(directory: Path, plan: RepairPlan) -> bool:
    for line in plan_lines(plan, is_plan=True):
        print_error(line)
    if not sys.stdin.isatty():
        return False
    question = visible(f"{directory.name}: let the log end at offset {plan.log_end_offset}?")
    return typer.confirm(question, err=True)
