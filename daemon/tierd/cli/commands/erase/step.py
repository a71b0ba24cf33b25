"""``tierd erase step``: take open requests to erase keys a step further."""

from tierd.app import Deployment, run_in_loop, step_erasures
from tierd.cli.erasures import print_erasures
from tierd.cli.json_lists import print_list
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption, PartitionsArgument
from tierd.cli.session import begin
from tierd.model import TopicPartition


def step(
    partitions: PartitionsArgument = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Take every step of open requests that is possible now.

    A running daemon does this by itself, every 30 s. Without a daemon, this command also deletes expired segments.

    Example: tierd erase step orders-0
    """
    names = [TopicPartition.parse(name) for name in partitions or []]
    stepped = run_in_loop(step_erasures(Deployment(begin(config), config), names))
    if as_json or as_object:
        print_list(stepped.to_json(), as_object=as_object)
    else:
        print_erasures(stepped.root)
