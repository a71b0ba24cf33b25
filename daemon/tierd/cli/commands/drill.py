"""``tierd drill``: restore partitions into a scratch directory, and prove that they come back."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

import tierd.app
from tierd.cli.asking import state_dir_of
from tierd.cli.failures import ExitCode
from tierd.cli.moments import utc_text
from tierd.cli.options import (
    DEFAULT_CONFIG,
    ClusterIdOption,
    ConfigOption,
    FromBucketOption,
    JsonObjectOption,
    JsonOption,
    PartitionsArgument,
)
from tierd.cli.output.display import print_table
from tierd.cli.output.json_lists import print_list
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_error, print_line
from tierd.cli.output.progress_line import ReportProgress, progress_line
from tierd.cli.session import begin
from tierd.model import TopicIdPartition, TopicPartition
from tierd.sizes import human_size

# The history needs nothing of a drill.
if TYPE_CHECKING:
    from tierd.app import DrillProgress, DrillResult
    from tierd.restore import DrilledPartition
    from tierd.serve import JsonObject


def drill(
    partitions: PartitionsArgument = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Drill all partitions of the tier, one after the other, whatever their size.")
    ] = False,
    broker: Annotated[
        bool,
        typer.Option("--broker", help="Restore all partitions of the tier into one log dir, whatever their size."),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the restored log dirs; remove them yourself afterwards.")
    ] = False,
    cluster_id: ClusterIdOption = None,
    from_bucket: FromBucketOption = False,
    history: Annotated[bool, typer.Option("--history", help="List past drills instead, newest last.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Prove that partitions come back: restore them into a scratch directory, and check the result.

    Without names, the drill takes the next partitions of the rotation, as many as drill.partitions. Each one is
    restored as after the loss of its broker, opened, compared with the tier, tested by drill.command if that is set,
    and removed. Needs no daemon and no broker, and disturbs neither. The exit code is 1 if a partition was not proven.

    Examples:
        tierd drill

        tierd drill orders-0 --keep

        tierd drill --all --from-bucket --json

        tierd drill --broker

        tierd drill --history
    """
    if (history and (partitions or everything or broker or keep)) or [bool(partitions), everything, broker].count(
        True
    ) > 1:
        print_error("tierd: --history takes no other work; give partitions, --all or --broker")
        print_error("  next: tierd drill --history")
        raise typer.Exit(ExitCode.USAGE)
    if history:
        drills = tierd.app.past_drills(state_dir_of(config))
        _print_history(drills, as_json=as_json, as_object=as_object)
        return
    deployment = tierd.app.Deployment(begin(config), config)
    request = tierd.app.DrillRequest(
        names=tuple(map(TopicPartition.parse, partitions or [])),
        is_everything=everything,
        is_broker=broker,
        is_kept=keep,
    )
    source = tierd.app.SourceRequest(cluster_id=cluster_id, from_bucket=from_bucket)
    results: list[DrillResult] = []
    is_json = as_json or as_object
    with progress_line("drill") as report_progress:
        show = _DrillOutput(results, report_progress, is_json=is_json)
        run = tierd.app.drill(deployment, request, source, show.callbacks(), on_progress=report_progress)
        tierd.app.run_in_loop(run)
    if is_json:
        print_list([_result_json(result) for result in results], as_object=as_object)
    else:
        proven = sum(result.drilled.outcome.is_proof for result in results)
        if not results:
            print_line("the tier has no records: nothing is to be proven")
        print_line(f"{proven} of {len(results)} partitions are proven to come back")
    if not all(result.drilled.outcome.is_proof for result in results):
        raise typer.Exit(ExitCode.NO)


class _DrillOutput:
    """Progress of a drill, and its results as they come."""

    def __init__(self, results: "list[DrillResult]", report: ReportProgress, *, is_json: bool) -> None:
        self._results = results
        self._report = report
        self._is_json = is_json
        self._partition = ""
        self._bytes = 0

    def callbacks(self) -> "DrillProgress":
        """Return the callbacks for the drill."""
        return tierd.app.DrillProgress(begun=self._begun, arrived=self._arrived, drilled=self._drilled)

    def _begun(self, partition: TopicIdPartition) -> None:
        self._partition, self._bytes = str(partition), 0
        self._report(self._partition)

    def _arrived(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._report(f"{self._partition}, {human_size(self._bytes)}")

    def _drilled(self, result: "DrillResult") -> None:
        self._results.append(result)
        if not self._is_json:
            _print_result(result)


def _print_result(result: "DrillResult") -> None:
    drilled = result.drilled
    print_line(f"{drilled.outcome.value} {drilled.partition}: {_summary(drilled)}")
    if drilled.remedy:
        print_line(f"  next: {drilled.remedy}")
    for line in drilled.output.splitlines():
        print_line(f"  | {line}")
    if result.kept is not None:
        print_line(f"  kept: {result.kept}")


def _summary(drilled: "DrilledPartition") -> str:
    if drilled.problem:
        return drilled.problem
    if not drilled.batches:
        return "the tier has no records of it"
    through = "" if drilled.through_ms is None else f", records until {utc_text(drilled.through_ms)}"
    rebuilt = f"; indexes of {drilled.rebuilt_indexes} segments built anew" if drilled.rebuilt_indexes else ""
    return (
        f"offsets {drilled.log_start_offset} to {drilled.end_offset - 1}{through}, {human_size(drilled.size_bytes)}; "
        f"{', '.join(drilled.checks)}; {drilled.samples} batches compared with the tier{rebuilt}"
    )


def _print_history(drills: "list[DrilledPartition]", *, as_json: bool, as_object: bool) -> None:
    if as_json or as_object:
        print_list([_drilled_json(drilled) for drilled in drills], as_object=as_object)
        return
    table = plain_table(("began (UTC)", "partition", "outcome", "trigger"), ("seconds", "through", "size"), "result")
    for drilled in drills:
        table.add_row(
            utc_text(drilled.began_ms).removesuffix(" UTC"),
            drilled.partition,
            drilled.outcome.value,
            drilled.trigger,
            f"{(drilled.ended_ms - drilled.began_ms) / 1000:.0f}",
            str(drilled.end_offset - 1) if drilled.batches else "-",
            human_size(drilled.size_bytes),
            drilled.problem or ", ".join(drilled.checks),
        )
    if table.row_count:
        print_table(table)
    else:
        print_line("no partition was drilled yet")


def _result_json(result: "DrillResult") -> "JsonObject":
    return {**_drilled_json(result.drilled), "kept": None if result.kept is None else str(result.kept)}


def _drilled_json(drilled: "DrilledPartition") -> "JsonObject":
    facts: JsonObject = {**asdict(drilled), "checks": list(drilled.checks), "outcome": drilled.outcome.value}
    return facts
