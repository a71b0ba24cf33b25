"""``tierd log roll``: begin a new segment in a partition that no process uses."""

from tierd.cli.log_settings import SetOption, parse_settings
from tierd.cli.options import JsonOption, PartitionDirectoryArgument
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.session import log_to_stderr
from tierd.cli.writable_partition import writable_partition
from tierd.clock import SystemClock
from tierd.model import TopicPartition


def roll(directory: PartitionDirectoryArgument, *, settings: SetOption = None, json: JsonOption = False) -> None:
    """Begin a new segment at the log end; the finished segment can then be copied to the tier.

    A log whose active segment is empty stays as it is. The log dir is locked during the command, and left
    as after a clean stop.

    Example: tierd log roll /srv/tierd/orders-0
    """
    log_to_stderr()
    config, now_ms = (
        parse_settings(settings).of(TopicPartition.parse(directory.name).topic),
        SystemClock().now_ms(),
    )
    with writable_partition(directory, config=config, now_ms=now_ms) as log:
        is_empty = not log.segments[-1].size_bytes
        base_offset = log.segments[-1].base_offset if is_empty else log.roll(now_ms=now_ms).base_offset
        count = log.segment_count
    if json:
        answer = {"directory": str(directory), "rolled": not is_empty, "base_offset": base_offset, "segments": count}
        print_json(answer)
    elif is_empty:
        print_line(f"the active segment, {base_offset}, is empty already")
    else:
        print_line(f"rolled: the active segment begins at offset {base_offset}, {count} segments")
