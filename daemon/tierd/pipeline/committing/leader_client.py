"""LeaderClient: the synchronous connection from the job to the leader."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self, TypeVar

from tierd.clock import Clock, SystemClock
from tierd.errors import PipelineError
from tierd.pipeline.committing.messages import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    VERSION,
    AskOrder,
    AskWork,
    Begin,
    Begun,
    Done,
    Failed,
    Hello,
    JobRequest,
    LeaderAnswer,
    Noted,
    OrderHeader,
    Problem,
    Progress,
    Unchanged,
    Verdict,
    Welcome,
    Work,
    Written,
    decode_answer,
    encode_request,
)
from tierd.pipeline.pipeline_errors import LeaderChannelError, WorkOrderError
from tierd.pipeline.planning import Output, WorkOrder
from tierd.remote import SegmentManifest

_STEP_BYTES: Final = 1 << 18
_MAX_PROBLEM: Final = 2_000
_A = TypeVar("_A", bound=LeaderAnswer)


class LeaderClient:
    """Connection to the leader, which threads may share; it carries one request at a time.

    Every call raises ``LeaderChannelError`` when the leader is gone, silent or not to be understood. The connection is
    closed then, since the next answer could be of either request: the run is over, and the leader abandons the open
    outputs. ``PipelineError`` says that the leader could not carry out this request; the run may go on.
    """

    def __init__(self, channel: socket.socket, *, answer_timeout_s: float, clock: Clock) -> None:
        self._channel = channel
        self._answer_timeout_s = answer_timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._received = bytearray()
        self._number = 0
        self._over: str | None = None

    @classmethod
    def connect(
        cls, path: Path, *, timeout_s: float = 30.0, answer_timeout_s: float = 900.0, clock: Clock | None = None
    ) -> Self:
        """Connect and greet.

        Args:
            path: the socket.
            timeout_s: for the connection and the greeting.
            answer_timeout_s: for every answer after that: a commit waits for the metadata store and the object store.
            clock: of the deadlines.

        Raises:
            LeaderChannelError: no process listens on the socket, or it does not speak the protocol.
            PipelineError: the leader refused the greeting, and says why.
        """
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.settimeout(timeout_s)
        try:
            directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # an address has 108 bytes
            try:
                channel.connect(f"/proc/self/fd/{directory}/{path.name}")
            finally:
                os.close(directory)
        except OSError as error:
            channel.close()
            raise LeaderChannelError(
                f"no leader on {path}: {error.strerror or error}",
                remedy="jobs are started by tierd, which listens there",
            ) from error
        client = cls(channel, answer_timeout_s=timeout_s, clock=clock or SystemClock())
        try:
            client._ask(Hello(version=VERSION), Welcome)
        except BaseException:
            client.close()
            raise
        client._answer_timeout_s = answer_timeout_s
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def order(self) -> WorkOrder:
        """Ask for the order of this run, and the work of each of its partitions."""
        header = self._ask(AskOrder(), OrderHeader)
        partitions = tuple(self._ask(AskWork(index=index), Work).work for index in range(header.partitions))
        try:
            return WorkOrder(run_id=header.run_id, now_ms=header.now_ms, secret=header.secret, partitions=partitions)
        except ValueError as error:
            raise LeaderChannelError(self._end(f"the order does not fit together: {error}")) from error

    def begin(self, index: int, groups: Iterable[int]) -> Begun:
        """Announce that groups of one partition are about to be rewritten; a refused group must be left alone."""
        return self._ask(Begin(index=index, groups=tuple(groups)), Begun)

    def written(
        self,
        output: Output,
        manifest: SegmentManifest,
        counts: Mapping[str, int],
        *,
        erased: Mapping[int, int] = MappingProxyType({}),
    ) -> Verdict:
        """Hand in an output whose objects are there; groups of one partition in ascending order.

        Args:
            output: as ``begin`` gave it.
            manifest: as ``stage_log_segment_data`` gave it.
            counts: counts of the rewrite, by name; ``ORDERED_COUNTS`` are those that the leader looks at.
            erased: records that went of each erased key, by ``PartitionWork.erased_places``.
        """
        text, pairs = manifest.encode().decode(), tuple(sorted(erased.items()))
        request = Written(output=output.metadata.segment.id, manifest=text, counts=dict(counts), erased=pairs)
        return self._ask(request, Verdict)

    def unchanged(self, index: int, group: int, counts: Mapping[str, int] | None = None) -> None:
        """Report that a group, begun or not, stays as it is and counts as done.

        Args:
            index: of the partition.
            group: of the partition.
            counts: counts of the group that are reported all the same.
        """
        self._ask(Unchanged(index=index, group=group, counts=dict(counts or {})), Noted)

    def failed(self, index: int, group: int, problem: str) -> None:
        """Report that a group, begun or not, could not be rewritten: it stays, and the partition is not done."""
        self._ask(Failed(index=index, group=group, problem=problem[:_MAX_PROBLEM]), Noted)

    def progress(self, stage: str, *, done: int, total: int) -> None:
        """Report the progress of the job. The leader ends a run whose job sends nothing for minutes."""
        self._ask(Progress(stage=stage, done=done, total=total), Noted)

    def done(self, counts: Mapping[str, int]) -> None:
        """Report that nothing is left to do, and close the connection."""
        self._ask(Done(counts=dict(counts)), Noted)
        self.close()

    def fileno(self) -> int:
        """Return the descriptor of the connection, with which a thread can wait for its end; -1 once it is closed."""
        return self._channel.fileno()

    def close(self) -> None:
        """End the run; the leader abandons the outputs that were begun and not committed."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        self._channel.close()
        self._over = self._over or "the connection is closed"

    def _ask(self, body: JobRequest, kind: type[_A]) -> _A:
        with self._lock:
            if self._over:
                raise LeaderChannelError(self._over, remedy="the run is over; the next one begins anew")
            answer = self._exchange(body)
        if isinstance(answer, Problem):
            raise PipelineError(answer.problem, remedy=answer.remedy)
        if not isinstance(answer, kind):
            raise LeaderChannelError(self._end(f"{type(answer).__name__} is no answer to {type(body).__name__}"))
        return answer

    def _exchange(self, body: JobRequest) -> LeaderAnswer:
        line = encode_request(self._number + 1, body)
        if len(line) > MAX_REQUEST_BYTES:
            raise PipelineError(f"a request of {len(line)} bytes is above {MAX_REQUEST_BYTES}: ask for less at a time")
        self._number += 1
        try:
            self._channel.settimeout(self._answer_timeout_s)
            self._channel.sendall(line)
            answer = decode_answer(self._read_line())
        except TimeoutError as error:
            raise LeaderChannelError(self._end(f"no answer within {self._answer_timeout_s:g} s")) from error
        except (OSError, EOFError) as error:
            raise LeaderChannelError(self._end("the leader is gone")) from error
        except WorkOrderError as error:
            raise LeaderChannelError(self._end(f"not its protocol: {error}")) from error
        if answer.id != self._number:
            raise LeaderChannelError(self._end(f"answer {answer.id} to request {self._number}"))
        return answer.body

    def _read_line(self) -> bytes:
        deadline_s = self._clock.monotonic_s() + self._answer_timeout_s
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > MAX_ANSWER_BYTES:
                raise WorkOrderError(f"a line above {MAX_ANSWER_BYTES} bytes")
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise TimeoutError
            self._channel.settimeout(left_s)
            piece = self._channel.recv(_STEP_BYTES)
            if not piece:
                raise EOFError
            self._received += piece
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        return line

    def _end(self, problem: str) -> str:
        """Close the connection for good; return the problem in words."""
        self._over = f"leader: {problem}"
        self.close()
        return self._over
