"""``tierd delete-partition``: take the whole tier of a partition away."""

from typing import Annotated

import typer

from tierd.app import delete_partition as delete_whole_partition
from tierd.app import require_confirmed, run_in_loop
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionArgument
from tierd.cli.printing import print_json, print_line
from tierd.cli.session import begin
from tierd.model import TopicPartition, uuid_from_text
from tierd.serve import DeletePartitionRequest


def delete_partition(
    partition: PartitionArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Required: delete every segment of it.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Without waiting for expire.grace.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Although it is led here and still copied.")] = False,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", metavar="ID", help="Which incarnation, where there were several.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Delete the whole tier of a partition; a crash is survived, the running daemon or the next one goes on with it.

    There is no way back. It may not be copied any more: delete or exclude the topic, or switch its copy off, first.

    Example: tierd delete-partition orders-0 --yes
    """
    name = TopicPartition.parse(partition)
    require_confirmed(name, confirmed=yes)
    try:
        incarnation = None if topic_id is None else uuid_from_text(topic_id)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    request = DeletePartitionRequest(partition=name, topic_id=incarnation, at_once=now, force=force)
    answer = run_in_loop(delete_whole_partition(begin(config), config, request))
    if as_json:
        print_json(answer.to_json())
    else:
        when = "now" if now else "when expire.grace is over"
        print_line(
            f"{answer.partition} (topic id {answer.topic_id}): its objects go {when}; see tierd deletions {name}"
        )
