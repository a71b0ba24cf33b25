"""Lists as JSON: with ``--json`` an array or one item a line, by command; with ``--json-object`` one shape for all."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from pydantic import JsonValue

from tierd.cli.output.printing import json_text, print_exactly, print_json

PrintItem: TypeAlias = Callable[[JsonValue], None]


def print_list(items: Sequence[JsonValue], *, as_object: bool) -> None:
    """Print an array, or with ``as_object`` one object."""
    print_json({"items": list(items), "complete": True} if as_object else list(items))


@contextmanager
def printed_lines(*, as_object: bool) -> Iterator[PrintItem]:
    """Yield a function that prints an item at once: one item a line, or with ``as_object`` inside one object.

    After an exception inside the context the object is still valid JSON; its ``complete`` is false.
    """
    if not as_object:
        yield lambda item: print_json(item, flush=True)
        return
    count, complete = 0, False

    def print_item(item: JsonValue) -> None:
        nonlocal count
        print_exactly(",\n" if count else "", json_text(item), flush=True)
        count += 1

    print_exactly('{"items": [')
    try:
        yield print_item
        complete = True
    finally:
        print_exactly(f'], "complete": {json_text(complete)}}}\n', flush=True)
