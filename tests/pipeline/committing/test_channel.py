"""Leader and job over a real socket: a whole conversation, and its failures."""

import asyncio
import contextlib
import json
import os
import socket
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from tests.fakes.remote_segments import DELETE_STARTED, STARTED
from tests.pipeline.committing.lab import NOTHING_HIDDEN, LeaderLab
from tierd.errors import ListenError, PipelineError
from tierd.model import uuid_from_text
from tierd.pipeline.committing import LeaderClient, LeaderServer
from tierd.pipeline.committing.messages import (
    MAX_REQUEST_BYTES,
    VERSION,
    Begin,
    Hello,
    Noted,
    Welcome,
    encode_answer,
    encode_request,
)
from tierd.pipeline.pipeline_errors import LeaderChannelError

T = TypeVar("T")
HELLO = encode_request(1, Hello(version=VERSION))


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[LeaderLab]:
    lab = LeaderLab(tmp_path)
    await lab.copy_tier(0, 10, 20, 30)
    await lab.prepare()
    yield lab
    await lab.leader.end()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "leader.sock"


async def conversation(server: LeaderServer, job: Callable[[], T]) -> tuple[bool, T]:
    """Serve while ``job`` runs in a thread; return the success of the job, and its result."""
    async with server.listening(), asyncio.timeout(20):
        serving = asyncio.create_task(server.serve())
        answer = await asyncio.to_thread(job)
        return await serving, answer


async def refused(server: LeaderServer, job: Callable[[], T]) -> T:
    """Serve as ``conversation`` does, and expect the server to end with an error."""
    async with server.listening(), asyncio.timeout(20):
        serving = asyncio.create_task(server.serve())
        answer = await asyncio.to_thread(job)
        with pytest.raises(LeaderChannelError):
            await serving
        return answer


@contextlib.contextmanager
def raw(path: Path) -> Iterator[socket.socket]:
    """Connect a client without the protocol."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(60)
        channel.connect(str(path))
        yield channel


def answers_to(path: Path, sent: bytes, *, ends: bool = True) -> list[dict[str, object]]:
    """Send bytes, and return every answer until the server closes."""
    with raw(path) as channel:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            channel.sendall(sent)
            if ends:
                channel.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := channel.recv(1 << 16):
                received += piece
    return [json.loads(line)["body"] for line in received.splitlines()]


class TestConversation:
    async def test_conversation_of_a_run_commits_one_group_and_reports_one_failure(
        self, lab: LeaderLab, path: Path
    ) -> None:
        loop = asyncio.get_running_loop()

        def job() -> None:
            with LeaderClient.connect(path) as leader:
                order = leader.order()
                assert order == lab.leader.order
                begun = leader.begin(0, [0, 1])
                assert not begun.refused
                leader.progress("rewriting", done=1, total=2)
                first, second = begun.outputs
                manifest = asyncio.run_coroutine_threadsafe(lab.write(first), loop).result(10)
                assert leader.written(first, manifest, NOTHING_HIDDEN).committed
                assert not leader.written(first, manifest, NOTHING_HIDDEN).committed
                leader.failed(0, second.group, "x" * 100_000)
                leader.done({"seconds": 3})

        done, _ = await conversation(LeaderServer(lab.leader, path), job)
        assert done
        assert lab.readable() == [(0, 19), (20, 29), (30, 39)]
        found = lab.leader.statistics()
        assert (found.committed, found.failed, found.stage) == (1, 1, "done")
        assert len(found.problems[0].problem) == 2000

    async def test_progress_of_the_job_is_in_the_statistics(self, lab: LeaderLab, path: Path) -> None:
        def job() -> None:
            with LeaderClient.connect(path) as leader:
                leader.progress("scanning", done=3, total=9)

        await conversation(LeaderServer(lab.leader, path), job)
        found = lab.leader.statistics()
        assert (found.stage, found.stage_done, found.stage_total) == ("scanning", 3, 9)

    async def test_impossible_request_is_refused_and_the_run_continues(self, lab: LeaderLab, path: Path) -> None:
        def job() -> None:
            with LeaderClient.connect(path) as leader:
                with pytest.raises(PipelineError, match="no partition 7"):
                    leader.begin(7, [0])
                with pytest.raises(PipelineError, match="no group 9"):
                    leader.unchanged(0, 9)
                leader.unchanged(0, 0)
                leader.done({})

        assert (await conversation(LeaderServer(lab.leader, path), job))[0]

    async def test_invalid_manifest_is_refused_for_its_group_only(self, lab: LeaderLab, path: Path) -> None:
        def job() -> list[dict[str, object]]:
            with raw(path) as channel:
                reader = channel.makefile("rb")
                channel.sendall(HELLO + encode_request(2, Begin(index=0, groups=(0,))))
                reader.readline()
                row = json.loads(reader.readline())["body"]["outputs"][0]["metadata"]
                written = {"request": "written", "output": str(uuid_from_text(row[3])), "manifest": "{}"}
                channel.sendall(json.dumps({"id": 3, "body": written}).encode() + b"\n")
                return [json.loads(reader.readline())["body"]]

        _, (verdict,) = await conversation(LeaderServer(lab.leader, path), job)
        assert verdict["committed"] is False
        assert "manifest" in str(verdict["reason"])
        assert lab.in_state(DELETE_STARTED)

    async def test_threads_of_a_job_share_one_client(self, lab: LeaderLab, path: Path) -> None:
        def tell(leader: LeaderClient) -> None:
            for _ in range(20):
                leader.progress("x", done=1, total=2)

        def job() -> None:
            with LeaderClient.connect(path) as leader:
                threads = [threading.Thread(target=tell, args=(leader,)) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                leader.done({})

        assert (await conversation(LeaderServer(lab.leader, path), job))[0]

    async def test_socket_is_made_without_a_change_of_the_umask(
        self, lab: LeaderLab, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail(f"umask {mask:o}"))
        async with LeaderServer(lab.leader, path).listening():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    async def test_socket_with_a_long_path_works(self, lab: LeaderLab, tmp_path: Path) -> None:
        path = tmp_path / ("d" * 150) / "leader.sock"
        done, _ = await conversation(LeaderServer(lab.leader, path), lambda: LeaderClient.connect(path).done({}))
        assert done


class TestSocket:
    async def test_socket_is_accessible_to_its_owner_only(self, lab: LeaderLab, path: Path) -> None:
        async with LeaderServer(lab.leader, path).listening():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert not path.exists()

    async def test_socket_directory_that_other_users_may_enter_is_refused(self, lab: LeaderLab, path: Path) -> None:
        path.parent.mkdir(mode=0o755)
        path.parent.chmod(0o755)
        with pytest.raises(ListenError, match="not ours alone"):
            async with LeaderServer(lab.leader, path).listening():
                pass

    async def test_socket_of_a_killed_run_is_replaced(self, lab: LeaderLab, path: Path) -> None:
        path.parent.mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(path))
        async with LeaderServer(lab.leader, path).listening():
            assert path.exists()

    async def test_second_client_finds_no_leader(self, lab: LeaderLab, path: Path) -> None:
        def job() -> None:
            with LeaderClient.connect(path) as leader:
                with pytest.raises(LeaderChannelError, match="no leader on"):
                    LeaderClient.connect(path)
                leader.done({})

        assert (await conversation(LeaderServer(lab.leader, path), job))[0]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    async def test_client_of_another_user_is_disconnected_and_the_job_is_served(
        self, lab: LeaderLab, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = LeaderServer(lab.leader, path)
        async with server.listening(), asyncio.timeout(20):
            path.parent.chmod(0o755)
            path.chmod(0o666)
            monkeypatch.chdir(path.parent)  # whose parents are closed to others
            with socket.socket(socket.AF_UNIX) as stranger:
                os.seteuid(65534)
                try:
                    stranger.connect(path.name)
                finally:
                    os.seteuid(0)
                serving = asyncio.create_task(server.serve())
                assert await asyncio.to_thread(_ended, stranger)
            await asyncio.to_thread(lambda: LeaderClient.connect(path).done({}))
            assert await serving

    async def test_client_that_waits_behind_the_first_is_disconnected(self, lab: LeaderLab, path: Path) -> None:
        server = LeaderServer(lab.leader, path)
        async with server.listening(), asyncio.timeout(20):
            with raw(path) as first, raw(path) as second:
                serving = asyncio.create_task(server.serve())
                first.sendall(HELLO)
                assert await asyncio.to_thread(first.recv, 1000)
                assert await asyncio.to_thread(_ended, second)
            assert not await serving

    async def test_job_that_does_not_connect_meets_a_deadline(self, lab: LeaderLab, path: Path) -> None:
        server = LeaderServer(lab.leader, path, connect_timeout_s=0.01)
        async with server.listening():
            with pytest.raises(LeaderChannelError, match="no job came"):
                await server.serve()
        assert not path.exists()

    async def test_job_that_falls_silent_meets_a_deadline(self, lab: LeaderLab, path: Path) -> None:
        server = LeaderServer(lab.leader, path, idle_timeout_s=0.05)

        def job() -> str:
            with LeaderClient.connect(path) as leader:
                assert _ended(leader._channel)
                with pytest.raises(LeaderChannelError) as failed:
                    leader.order()
                return str(failed.value)

        assert "gone" in await refused(server, job)


class TestProtocolViolations:
    """A job that breaks the protocol: the run ends, and the leader abandons the outputs that were begun."""

    @pytest.mark.parametrize(
        ("sent", "named"),
        [
            (b"\n", "whole"),
            (b"nonsense\n", "whole"),
            (b"[]\n", "whole"),
            (b"{}\n", "id"),
            (b'{"id":1,"body":{"request":"conquer"}}\n', "body"),
            (b'{"id":1,"body":{"request":"hello","version":"1"}}\n', "version"),
            (b'{"id":1,"body":{"request":"hello","version":1,"more":1}}\n', "more"),
            (b'{"id":2,"body":{"request":"hello","version":1}}\n', "request 2 where 1 was due"),
            (b'{"id":1,"body":{"request":"hello","version":2}}\n', "version 2 of the protocol"),
            (b'{"id":1,"body":{"request":"order"}}\n', "hello comes first"),
            (HELLO + HELLO, "request 1 where 2 was due"),
            (HELLO + encode_request(2, Hello(version=VERSION)), "hello comes first, and once"),
            (HELLO + b'{"id":2,"body":{"request":"begin","index":-1,"groups":[0]}}\n', "index"),
            (HELLO + b'{"id":2,"body":{"request":"written","output":"x","manifest":""}}\n', "output"),
            (HELLO + b'{"id":2,"body":{"request":"done","counts":{"x":-1}}}\n', "counts"),
            (HELLO + b"\xff\xfe\n", "whole"),
        ],
    )
    async def test_violation_of_the_protocol_ends_the_run_with_a_named_problem(
        self, lab: LeaderLab, path: Path, sent: bytes, named: str
    ) -> None:
        answers = await refused(LeaderServer(lab.leader, path), lambda: answers_to(path, sent))
        assert answers[-1]["answer"] == "problem"
        assert named in str(answers[-1]["problem"])

    async def test_line_without_end_is_read_up_to_a_limit(self, lab: LeaderLab, path: Path) -> None:
        huge = b"x" * (MAX_REQUEST_BYTES + (1 << 20))
        assert await refused(LeaderServer(lab.leader, path), lambda: answers_to(path, HELLO + huge, ends=False))

    async def test_false_claims_about_outputs_change_no_segment(self, lab: LeaderLab, path: Path) -> None:
        strange = [
            {"request": "written", "output": str(UUID(int=5)), "manifest": "", "counts": {}},
            {"request": "failed", "index": 5, "group": 0, "problem": ""},
            {"request": "unchanged", "index": 0, "group": 99},
            {"request": "begin", "index": 0, "groups": [0, 0, 0, 98]},
            {"request": "work", "index": 4},
        ]
        lines = (json.dumps({"id": 2 + n, "body": body}).encode() + b"\n" for n, body in enumerate(strange))
        sent = HELLO + b"".join(lines)
        _, answers = await conversation(LeaderServer(lab.leader, path), lambda: answers_to(path, sent))
        assert [answer["answer"] for answer in answers] == [
            *("welcome", "verdict", "problem", "problem", "begun", "problem")
        ]
        assert lab.readable() == [(0, 9), (10, 19), (20, 29), (30, 39)]
        assert len(lab.in_state(STARTED)) == 1


class TestEndOfStream:
    @pytest.mark.parametrize("cut", [0, 1, len(HELLO) - 1, len(HELLO), len(HELLO) + 10])
    async def test_job_that_disconnects_within_or_after_a_line_leaves_no_output(
        self, lab: LeaderLab, path: Path, cut: int
    ) -> None:
        sent = (HELLO + encode_request(2, Begin(index=0, groups=(0,))))[:cut]
        done, answers = await conversation(LeaderServer(lab.leader, path), lambda: answers_to(path, sent))
        assert not done
        assert len(answers) == (cut >= len(HELLO))
        assert not lab.in_state(STARTED)

    async def test_job_that_disconnects_before_its_answer_leaves_no_output(self, lab: LeaderLab, path: Path) -> None:
        def job() -> None:
            with raw(path) as channel:
                channel.sendall(HELLO + encode_request(2, Begin(index=0, groups=(0, 1))))

        done, _ = await conversation(LeaderServer(lab.leader, path), job)
        assert not done
        await lab.leader.end()
        assert not lab.in_state(STARTED)
        assert not lab.being_copied

    async def test_line_sent_in_pieces_is_read_as_one(self, lab: LeaderLab, path: Path) -> None:
        def job() -> bytes:
            with raw(path) as channel:
                for byte in HELLO:
                    channel.send(bytes([byte]))
                return channel.recv(1000)

        _, answer = await conversation(LeaderServer(lab.leader, path), job)
        assert json.loads(answer)["body"]["answer"] == "welcome"

    async def test_a_leader_that_stops_ends_the_job(self, lab: LeaderLab, path: Path) -> None:
        server, connected = LeaderServer(lab.leader, path), threading.Event()

        def job() -> None:
            with LeaderClient.connect(path) as leader:
                connected.set()
                assert _ended(leader._channel)
                with pytest.raises(LeaderChannelError, match="the leader is gone"):
                    leader.order()
                with pytest.raises(LeaderChannelError, match="the leader is gone"):
                    leader.progress("x", done=0, total=1)

        async with server.listening(), asyncio.timeout(20):
            serving = asyncio.create_task(server.serve())
            working = asyncio.create_task(asyncio.to_thread(job))
            await asyncio.to_thread(connected.wait, 10)
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            await working


class TestClient:
    """Client of a leader that breaks the protocol."""

    @pytest.mark.parametrize(
        ("answer", "problem"),
        [
            (b"", "the leader is gone"),
            (b'{"id":1,"bo', "the leader is gone"),
            (b"nonsense\n", "not its protocol"),
            (encode_answer(2, Welcome(run_id=UUID(int=1))), "answer 2 to request 1"),
            (encode_answer(1, Noted()), "Noted is no answer to Hello"),
        ],
    )
    async def test_anything_but_an_answer_ends_the_run(self, path: Path, answer: bytes, problem: str) -> None:
        with pytest.raises(LeaderChannelError, match=problem):
            await self.greeted(path, answer)

    async def test_leader_of_another_version_is_refused_with_its_version(self, path: Path) -> None:
        with pytest.raises(PipelineError, match="version 9"):
            await self.greeted(path, b'{"id":1,"body":{"answer":"problem","problem":"version 9"}}\n')

    async def test_missing_answer_meets_a_deadline(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen(1)
            with pytest.raises(LeaderChannelError, match=r"no answer within 0\.05 s"):
                await asyncio.to_thread(LeaderClient.connect, path, timeout_s=0.05)

    async def test_connection_without_a_leader_is_refused(self, path: Path) -> None:
        with pytest.raises(LeaderChannelError, match="no leader on"):
            LeaderClient.connect(path)

    async def test_closed_client_refuses_requests(self, lab: LeaderLab, path: Path) -> None:
        def job() -> None:
            with LeaderClient.connect(path) as leader:
                leader.close()
                with pytest.raises(LeaderChannelError, match="closed"):
                    leader.order()
                leader.close()

        assert not (await conversation(LeaderServer(lab.leader, path), job))[0]

    async def test_a_request_above_the_limit_is_not_sent(self, lab: LeaderLab, path: Path) -> None:
        def job() -> None:
            with LeaderClient.connect(path) as leader:
                with pytest.raises(PipelineError, match="ask for less"):
                    leader.begin(0, [10**18] * 900_000)
                leader.done({})

        assert (await conversation(LeaderServer(lab.leader, path), job))[0]

    async def greeted(self, path: Path, answer: bytes) -> LeaderClient:
        path.parent.mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen(1)
            connecting = asyncio.create_task(asyncio.to_thread(LeaderClient.connect, path, timeout_s=5))
            channel, _ = await asyncio.to_thread(listening.accept)
            with channel:
                await asyncio.to_thread(channel.recv, 1000)
                channel.sendall(answer)
            return await connecting


def _ended(channel: socket.socket) -> bool:
    """Wait for the end of the stream."""
    try:
        return not channel.recv(1)
    except ConnectionError:
        return True
