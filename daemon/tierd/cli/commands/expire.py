"""``tierd expire``: one pass of expiration, or its plan."""

from collections.abc import Sequence
from typing import Annotated

import typer

from tierd.app import Deployment, run_in_loop
from tierd.app import expire as expire_partitions
from tierd.cli.asking import daemon_state_dir
from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption, PartitionsArgument
from tierd.cli.output.display import print_table
from tierd.cli.output.json_lists import print_list
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_error, print_line
from tierd.cli.session import begin
from tierd.model import TopicPartition
from tierd.serve import ExpiredPartition, ExpireRequest
from tierd.sizes import human_size


def expire(
    once: Annotated[bool, typer.Option("--once", help="Accepted for scripts; the command always runs once.")] = False,
    partitions: PartitionsArgument = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the segments that would be deleted, and why.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Delete expired segments from the tier, and print why; exits with 1 if a partition failed.

    A running daemon does the pass; without a daemon, this command does. Until expire.grace is over, tierd undelete can
    take segments back.

    Example: tierd expire --dry-run orders-0
    """
    del once  # tierd run expires continuously
    request = ExpireRequest(partitions=tuple(map(TopicPartition.parse, partitions or ())), dry_run=dry_run)
    state_dir = daemon_state_dir(config, None)
    answer = run_in_loop(expire_partitions(state_dir, lambda: Deployment(begin(config), config), request))
    if as_json or as_object:
        print_list(answer.to_json(), as_object=as_object)
    else:
        _print(answer.root, dry_run=dry_run)
    failed = [each for each in answer.root if each.error]
    for each in failed:
        print_error(f"tierd: {each.partition}: {each.error}")
        if each.remedy:
            print_error(f"  next: {each.remedy}")
    if failed:
        raise typer.Exit(ExitCode.NO)


def _print(found: Sequence[ExpiredPartition], *, dry_run: bool) -> None:
    table = plain_table(("partition", "segment", "reason"), ("start", "end", "size"), "why")
    for each in found:
        for planned in each.deletions:
            table.add_row(
                each.partition,
                planned.segment_id,
                planned.reason,
                str(planned.start_offset),
                str(planned.end_offset),
                human_size(planned.size_bytes),
                planned.detail,
            )
    if table.row_count:
        print_table(table)
    print_line(f"{table.row_count} segments {'would go' if dry_run else 'go'}, of {len(found)} partitions")
