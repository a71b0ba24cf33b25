"""Output of ``tierd endpoint release | hold``."""

from tierd.cli.printing import print_json, print_line
from tierd.serve import QuarantineAnswer


def print_clients(answer: QuarantineAnswer, *, verb: str, as_json: bool) -> None:
    """Print the clients that a verb let go, or holds back."""
    if as_json:
        print_json(answer.to_json())
        return
    for name in answer.listeners:
        print_line(f"{verb}: clients of listener {name}")
    for pattern in answer.principals:
        print_line(f"{verb}: principals {pattern}")
    if not (answer.listeners or answer.principals):
        print_line(f"{verb}: no clients")
