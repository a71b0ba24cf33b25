"""``tierd delete-partition``: delete the whole tier of a partition."""

from typing import Annotated

import typer

from tierd.app import Deployment, require_confirmed, run_in_loop
from tierd.app import delete_partition as delete_whole_partition
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionArgument
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.session import begin
from tierd.model import TopicPartition, uuid_from_text
from tierd.serve import DeletePartitionRequest


def delete_partition(
    partition: PartitionArgument,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", help="Required: confirm that every segment of the partition is deleted.")
    ] = False,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for expire.grace.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Delete although this broker leads the partition and tierd still copies it.")
    ] = False,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", metavar="ID", help="Topic id, if the topic was created several times.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Delete the whole tier of a partition. After a crash, the running daemon or the next one continues.

    A deleted tier does not come back. First end the copies: delete or exclude the topic, or set its copy to false.

    Example: tierd delete-partition orders-0 --yes
    """
    name = TopicPartition.parse(partition)
    require_confirmed(name, confirmed=yes)
    try:
        incarnation = None if topic_id is None else uuid_from_text(topic_id)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    request = DeletePartitionRequest(partition=name, topic_id=incarnation, at_once=now, force=force)
    answer = run_in_loop(delete_whole_partition(Deployment(begin(config), config), request))
    if as_json:
        print_json(answer.to_json())
    else:
        when = "now" if now else "when expire.grace is over"
        print_line(
            f"{answer.partition} (topic id {answer.topic_id}): its objects go {when}; see tierd deletions {name}"
        )
