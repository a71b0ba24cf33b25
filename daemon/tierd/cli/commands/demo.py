"""``tierd demo``: the daemon beside a log dir that keeps growing, as ``make run`` starts it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tierd.cli.commands.run import run_foreground
from tierd.cli.demo.writer import prepare
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption
from tierd.cli.output.printing import print_line
from tierd.cli.session import log_to_stderr
from tierd.config import TierdConfig, load_config

_WRITER_STOP_DEADLINE_S = 10.0


def demo(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Write a small demo log dir into the first of log_dirs, keep it growing, and run the daemon on it.

    Example: tierd demo --config config/quickstart.yaml
    """
    settings = load_config(config, os.environ)
    log_dir = settings.log_dirs[0].path
    log_to_stderr()
    prepare(log_dir, cluster_id=settings.cluster_id, node_id=settings.node_id)
    for line in _introduction(settings, config):
        print_line(line, flush=True)
    with _writer(log_dir):
        run_foreground(config)


@contextlib.contextmanager
def _writer(log_dir: Path) -> Iterator[None]:
    """Keep a writer running. The writer ends with its standard input, and so with this process."""
    command = [sys.executable, "-m", "tierd.cli.demo.writer", str(log_dir)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdout.readline()  # the writer has begun its leader epoch, or has ended and printed why
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_WRITER_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _introduction(settings: TierdConfig, config: Path) -> list[str]:
    tierd = Path(sys.argv[0])
    with contextlib.suppress(ValueError):
        tierd = tierd.absolute().relative_to(Path.cwd())
    commands = ("status --watch", "segments orders-0", "cat orders-0 --to 9", "explain orders-0 0", "verify --deep")
    return [
        f"Demo log dir:    {settings.log_dirs[0].path}",
        f"Status endpoint: http://{settings.http.listen}",
        *(f"Kafka clients:   {listener.listen}" for listener in settings.kafka.listeners),
        "In a second terminal, from this directory:",
        *(f"  {tierd} {command} --config {config}" for command in commands),
        "Ctrl-C stops; the next run continues.",
        "",
    ]
