"""Waiting for what a process writes."""

import fcntl
import os

from tests.services.waiting import is_readable


def test_bytes_and_the_end_of_a_pipe_are_seen_on_a_descriptor_that_select_refuses() -> None:
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, 1024)

    seen_empty = is_readable(high, deadline_s=0)
    os.write(writing, b"x")
    seen_bytes = is_readable(high, deadline_s=0)
    os.read(high, 1)
    os.close(writing)
    seen_end = is_readable(high, deadline_s=0)

    os.close(reading)
    os.close(high)
    assert (seen_empty, seen_bytes, seen_end) == (False, True, True)
