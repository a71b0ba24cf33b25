"""``tierd expire``: one pass of expiration, or what it would do."""

from functools import partial
from typing import Annotated, cast

import typer
from pydantic import JsonValue

from tierd.app import expire as expire_partitions
from tierd.app import run_in_loop
from tierd.cli.display import human_size, plain_table, print_table
from tierd.cli.failures import ExitCode
from tierd.cli.json_lists import print_list
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption, PartitionsArgument
from tierd.cli.printing import print_error, print_line
from tierd.cli.session import begin, daemon_state_dir
from tierd.model import TopicPartition


def expire(
    once: Annotated[bool, typer.Option("--once", help="What happens in any case; for scripts that say it.")] = False,
    partitions: PartitionsArgument = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go, and why.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Remove from the tier what retention does not keep, and say why; 1 when a partition could not be dealt with.

    A running daemon does it; without one this command does. Until expire.grace is over, tierd undelete takes it back.

    Example: tierd expire --dry-run orders-0
    """
    del once  # tierd run expires continuously
    names = [TopicPartition.parse(name) for name in partitions or []]
    state_dir = daemon_state_dir(config, None)
    answer = run_in_loop(expire_partitions(state_dir, partial(begin, config), config, names, dry_run=dry_run))
    found = cast("list[dict[str, JsonValue]]", answer)
    if as_json or as_object:
        print_list(found, as_object=as_object)
    else:
        _print(found, dry_run=dry_run)
    failed = [each for each in found if each["error"]]
    for each in failed:
        print_error(f"tierd: {each['partition']}: {each['error']}")
        if each["remedy"]:
            print_error(f"  next: {each['remedy']}")
    if failed:
        raise typer.Exit(ExitCode.NO)


def _print(found: list[dict[str, JsonValue]], *, dry_run: bool) -> None:
    table = plain_table(("partition", "segment", "reason"), ("start", "end", "size"), "why")
    count = 0
    for each in found:
        for planned in cast("list[dict[str, JsonValue]]", each["deletions"]):
            count += 1
            table.add_row(
                str(each["partition"]),
                str(planned["segment_id"]),
                str(planned["reason"]),
                str(planned["start_offset"]),
                str(planned["end_offset"]),
                human_size(int(str(planned["size_bytes"]))),
                str(planned["detail"]),
            )
    if count:
        print_table(table)
    print_line(f"{count} segments {'would go' if dry_run else 'go'}, of {len(found)} partitions")
