"""``tierd undelete``: take segments back during their grace."""

from collections.abc import Sequence
from typing import Annotated

import typer

from tierd.app import Deployment, run_in_loop
from tierd.app import undelete as undelete_segments
from tierd.cli.asking import daemon_state_dir
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionArgument
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.session import begin
from tierd.errors import RefusedError
from tierd.model import TopicPartition, uuid_from_text
from tierd.serve import UndeletedSegment, UndeleteRequest
from tierd.sizes import human_size


def undelete(
    partition: PartitionArgument,
    *,
    segments: Annotated[
        list[str] | None, typer.Option("--segment", metavar="ID", help="Id of a segment, from tierd segments.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Take back every segment in its grace, except those that a compaction replaced."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the segments that would come back.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also take back segments that retention would delete again, or that leave a hole."
        ),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Take back expired segments, and lower the log start again, until expire.grace is over.

    Raise the topic's retention first. Otherwise the segments would expire again at once, and the command refuses to
    take them back without --force.

    Example: tierd undelete orders-0 --all --dry-run
    """
    if bool(segments) == everything:
        raise typer.BadParameter("give --all, or name segments with --segment ID")
    try:
        wanted = tuple(map(uuid_from_text, segments or ()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    name = TopicPartition.parse(partition)
    request = UndeleteRequest(partition=name, segments=wanted, force=force, dry_run=dry_run)
    state_dir = daemon_state_dir(config, None)
    answer = run_in_loop(undelete_segments(state_dir, lambda: Deployment(begin(config), config), request))
    if as_json:
        print_json(answer.to_json())
    else:
        _print(answer.segments, dry_run=dry_run)
    problem = next((each.problem for each in answer.segments if each.problem), "")
    if dry_run and problem and not force:
        raise RefusedError(f"{name}: {problem}", remedy="raise the topic's retention first, or --force")


def _print(found: Sequence[UndeletedSegment], *, dry_run: bool) -> None:
    table = plain_table(("segment", "expired by"), ("start", "end", "size"), "what speaks against it")
    for each in found:
        offsets = str(each.start_offset), str(each.end_offset)
        table.add_row(each.segment_id, each.reason, *offsets, human_size(each.size_bytes), each.problem)
    if found:
        print_table(table)
    starts = [each.log_start_offset for each in found if each.log_start_offset is not None]
    begins = f", the log begins at {min(starts)}" if starts else ""
    print_line(f"{len(found)} segments {'would be' if dry_run else 'are'} back{begins}")
