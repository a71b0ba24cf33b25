"""Complaints of a real broker in its log: of damage, of stray directories, and of a quorum whose state was lost."""

import re
from pathlib import Path
from typing import Final

_WORDS: Final = ("corrupt", "Corrupt", "stray", "sanity check", "ERROR", "quorum-state", "smaller than last written")
_BUSY_MACHINE: Final = tuple(
    map(
        re.compile,
        (
            # An event of the controller took over two seconds, or one waited so long in the queue that the broker's
            # heartbeat expired there. Both say that the thread did not get the processor, and nothing of the data.
            (
                r"ERROR org\.apache\.kafka\.controller\.EventPerformanceMonitor - \[QuorumController id=\d+\] "
                r"Exceptionally slow controller event \w+(\[.*\])? took \d+ ms\."
            ),
            r"processExpiredBrokerHeartbeat: controller event queue overloaded\. Timed out heartbeat from broker \d+\.",
            # A registration, a heartbeat or a forwarded reassignment that arrives before the controller has begun its
            # office, or after a slow one has lost it: it is sent again. Other requests and other exceptions of the
            # controller are complaints.
            (
                r"ERROR kafka\.server\.ControllerApis - \[ControllerApis nodeId=\d+\] Unexpected error handling "
                r"request (RequestHeader\(apiKey=(BROKER_HEARTBEAT|BROKER_REGISTRATION|CONTROLLER_REGISTRATION)|"
                r"Forwarded request: .* RequestHeader\(apiKey=ALTER_PARTITION_REASSIGNMENTS), .*\n"
                r"(java\.util\.concurrent\.CompletionException: )?"
                r"org\.apache\.kafka\.common\.errors\.(NotController|Timeout)Exception: "
            ),
            # The partition got another leader while the groups of the old one were still being read: the new one
            # reads them. An offline log dir, the other reason that the line names, is a complaint of its own.
            (
                r"ERROR org\.apache\.kafka\.coordinator\.common\.runtime\.CoordinatorRuntime - "
                r"\[GroupCoordinator id=\d+\] Failed to load metadata from __consumer_offsets-\d+ with epoch \d+ "
                r"due to Stopped loading records from __consumer_offsets-\d+ because the partition is not online "
                r"or is no longer the leader"
            ),
        ),
    )
)


def complaints(server_log: Path, *more_words: str) -> list[str]:
    """Return the complaints of a broker since its last start, without those that only a busy test machine causes.

    Each is a line of the log with the line behind it, which has the exception if there is one.

    Args:
        server_log: of the broker.
        more_words: by which a line is a complaint, too.
    """
    lines = server_log.read_text().splitlines()
    followed = zip(lines, [*lines[1:], ""], strict=True)  # an exception is in the line behind its message
    return [
        f"{line}\n{following}"
        for line, following in followed
        if any(word in line for word in (*_WORDS, *more_words))
        and not any(known.search(f"{line}\n{following}") for known in _BUSY_MACHINE)
    ]
