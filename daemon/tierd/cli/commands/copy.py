"""``tierd copy``: one pass of the copy tasks."""

from collections.abc import Sequence
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import Deployment, copy_once, run_in_loop, tune_memory
from tierd.cli.failures import ExitCode, exit_code_of, print_failure
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption, PartitionsArgument
from tierd.cli.output.display import print_table
from tierd.cli.output.json_lists import print_list
from tierd.cli.output.layout import PlainTable, plain_table
from tierd.cli.session import begin
from tierd.model import TopicPartition
from tierd.tiering import CopyOutcome


def copy(
    once: Annotated[bool, typer.Option("--once", help="Accepted for scripts; the command always runs once.")] = False,
    partitions: PartitionsArgument = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Copy the due segments to the tier once; exits with 1 if a copy failed.

    Refused while a daemon holds the state directory; tierd sync makes that daemon copy.

    Example: tierd copy orders-0 orders-1
    """
    del once  # tierd run copies continuously
    wanted = [TopicPartition.parse(name) for name in partitions or []] or None
    tune_memory()  # a pass may copy as much as a daemon does
    outcomes = run_in_loop(copy_once(Deployment(begin(config), config), wanted))
    if as_json or as_object:
        print_list([_as_json(outcome) for outcome in outcomes], as_object=as_object)
    else:
        print_table(_table(outcomes))
    failures = [outcome.error for outcome in outcomes if outcome.error is not None]
    for failure in failures:
        print_failure(failure)
    if failures:
        codes = {exit_code_of(failure) for failure in failures}
        raise typer.Exit(codes.pop() if codes <= {ExitCode.UNREACHABLE, ExitCode.REFUSED} else ExitCode.NO)


def _table(outcomes: Sequence[CopyOutcome]) -> PlainTable:
    table = plain_table(("partition",), ("tiered to", "segments left"), "why")
    for outcome in outcomes:
        status = outcome.status
        through = "-" if status.copied_through is None or status.copied_through < 0 else str(status.copied_through)
        why = "failed" if outcome.error else status.reason
        table.add_row(str(outcome.partition), through, str(status.lag.segments), why)
    return table


def _as_json(outcome: CopyOutcome) -> dict[str, JsonValue]:
    status = outcome.status
    return {
        "partition": str(outcome.partition),
        "copied_through": -1 if status.copied_through is None else status.copied_through,
        "lag_segments": status.lag.segments,
        "lag_bytes": status.lag.bytes,
        "state": status.state,
        "reason": status.reason,
        "error": None if outcome.error is None else str(outcome.error),
    }
