import asyncio
import errno
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from pydantic import JsonValue
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tierd.clock import SystemClock
from tierd.errors import ControlError, DaemonUnreachableError, RefusedError, UnknownPartitionError
from tierd.serve import ConnectionGate, ConnectionLimits, ControlHandler
from tierd.serve.control_socket import MAX_REQUEST_BYTES, SOCKET_NAME, ControlServer, request


async def echo(partitions: Sequence[str]) -> JsonValue:
    await asyncio.sleep(0)
    return list(partitions)


async def refuse(partitions: Sequence[str]) -> JsonValue:
    await asyncio.sleep(0)
    raise UnknownPartitionError(f"{partitions[0]} is unknown", remedy="see tierd status")


async def fail(_partitions: Sequence[str]) -> JsonValue:
    await asyncio.sleep(0)
    raise ZeroDivisionError("a bug")


async def options(partitions: Sequence[str], chosen: Mapping[str, JsonValue]) -> JsonValue:
    await asyncio.sleep(0)
    return {"partitions": list(partitions), "options": dict(chosen)}


async def destroy(_partitions: Sequence[str], _options: Mapping[str, JsonValue]) -> JsonValue:
    await asyncio.sleep(0)
    raise RefusedError("it would do harm", remedy="think again")


async def hang(_partitions: Sequence[str]) -> JsonValue:
    return await asyncio.Event().wait()


@asynccontextmanager
async def serving(
    state_dir: Path,
    *,
    idle_timeout_s: float = 30.0,
    answer_timeout_s: float = 30.0,
    more: Mapping[str, ControlHandler] | None = None,
) -> AsyncIterator[ConnectionGate]:
    clock = SystemClock()
    gate = ConnectionGate(ConnectionLimits(connections=8, per_peer=8), clock=clock, is_short=lambda: False)
    server = ControlServer(
        state_dir,
        {"echo": echo, "refuse": refuse, "fail": fail, "hang": hang} | dict(more or {}),
        with_options={"options": options, "destroy": destroy},
        gate=gate,
        clock=clock,
        idle_timeout_s=idle_timeout_s,
        answer_timeout_s=answer_timeout_s,
    )
    async with asyncio.TaskGroup() as group, server.listening(group):
        yield gate


async def raw(state_dir: Path, data: bytes) -> list[dict[str, object]]:
    reader, writer = await asyncio.open_unix_connection(str(state_dir / SOCKET_NAME))
    writer.write(data)
    writer.write_eof()
    answers = (await reader.read()).splitlines()
    writer.close()
    await writer.wait_closed()
    return [json.loads(answer) for answer in answers]


async def test_a_request_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert await request(tmp_path, "echo", ["orders-0", "orders-1"]) == ["orders-0", "orders-1"]


async def test_options_go_to_a_command_that_takes_them(tmp_path: Path) -> None:
    async with serving(tmp_path):
        answer = await request(tmp_path, "options", ["orders-0"], options={"force": True})
        assert answer == {"partitions": ["orders-0"], "options": {"force": True}}
        with pytest.raises(ControlError, match="no such option: force"):
            await request(tmp_path, "echo", options={"force": True})


async def test_a_refusal_arrives_as_one(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(RefusedError, match="it would do harm") as refused:
            await request(tmp_path, "destroy")
        assert refused.value.remedy == "think again"


async def test_the_socket_is_for_its_owner_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode) == 0o600
    assert not (tmp_path / SOCKET_NAME).exists()


async def test_socket_is_made_without_a_change_of_the_umask_that_other_threads_make_files_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail(f"umask {mask:o}"))
    async with serving(tmp_path):
        assert await request(tmp_path, "echo") == []


async def test_a_socket_left_by_a_killed_daemon_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET_NAME))
    async with serving(tmp_path):
        assert await request(tmp_path, "echo") == []


async def test_a_state_dir_with_a_long_path_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with serving(deep):
        assert await request(deep, "echo", ["a-0"]) == ["a-0"]


async def test_several_requests_on_one_connection_and_several_clients(tmp_path: Path) -> None:
    line = b'{"command": "echo", "partitions": ["a-0"]}\n'
    async with serving(tmp_path):
        answers = await asyncio.gather(*(raw(tmp_path, line * 3) for _ in range(8)))
    assert [len(each) for each in answers] == [3] * 8


async def test_a_refusal_carries_cause_and_remedy(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(ControlError, match="a-0 is unknown") as refused:
            await request(tmp_path, "refuse", ["a-0"])
        assert refused.value.remedy == "see tierd status"
        with pytest.raises(ControlError, match="no command 'dance'") as unknown:
            await request(tmp_path, "dance")
        assert "echo" in unknown.value.remedy


async def test_a_bug_in_a_command_is_loud_and_the_server_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with capture_logs() as logs, pytest.raises(ControlError, match="internal error"):
            await request(tmp_path, "fail")
        assert [entry["event"] for entry in logs] == ["control_command_failed"]
        assert await request(tmp_path, "echo") == []


async def test_a_command_has_a_deadline(tmp_path: Path) -> None:
    async with serving(tmp_path, answer_timeout_s=0.01):
        with pytest.raises(ControlError, match="took above"):
            await request(tmp_path, "hang")


@pytest.mark.parametrize(
    "line", [b"junk\n", b"{}\n", b'{"command": 7}\n', b'{"command": "echo", "more": 1}\n', b"\xff\n"]
)
async def test_what_is_no_request_is_answered_and_the_connection_goes_on(tmp_path: Path, line: bytes) -> None:
    async with serving(tmp_path):
        first, second = await raw(tmp_path, line + b'{"command": "echo"}\n')
    assert first["ok"] is False
    assert second["ok"] is True


async def test_a_line_above_the_limit_is_refused_and_ends_the_connection(tmp_path: Path) -> None:
    async with serving(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME))
        writer.write(b"x" * (3 * MAX_REQUEST_BYTES))
        answer = json.loads(await reader.readline())
        writer.close()
        assert answer["ok"] is False
        assert str(MAX_REQUEST_BYTES) in answer["error"]
        assert await request(tmp_path, "echo") == []


async def test_a_silent_client_is_dropped(tmp_path: Path) -> None:
    async with serving(tmp_path, idle_timeout_s=0.01):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME))
        assert await reader.read() == b""
        writer.close()


async def test_the_server_ends_although_a_client_is_connected(tmp_path: Path) -> None:
    async with serving(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME))
        writer.write(b'{"command": "echo"}\n')
        await reader.readline()
    assert await reader.read() == b""
    writer.close()


async def test_without_a_daemon_the_client_says_so(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachableError, match=r"control\.sock") as unreachable:
        await request(tmp_path, "status")
    assert "systemctl start tierd" in unreachable.value.remedy
    with pytest.raises(DaemonUnreachableError):
        await request(tmp_path / "absent", "status")


@contextmanager
def as_another_user() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_is_not_answered_even_if_the_socket_is_open_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # whose parents are closed to others
    async with asyncio.timeout(60), serving(tmp_path):
        (tmp_path / SOCKET_NAME).chmod(0o666)
        channel = socket.socket(socket.AF_UNIX)
        channel.setblocking(False)
        with as_another_user():
            channel.connect(SOCKET_NAME)
        reader, writer = await asyncio.open_unix_connection(sock=channel)
        assert json.loads(await reader.read())["ok"] is False
        writer.close()
        assert await request(tmp_path, "echo") == []


async def test_command_is_answered_while_idle_clients_fill_the_socket(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path):
        idle = [await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME)) for _ in range(40)]
        assert await request(tmp_path, "echo", ["a-0"]) == ["a-0"]
        for _, writer in idle:
            writer.close()


async def test_client_beyond_those_that_are_being_answered_is_told_to_try_again(tmp_path: Path) -> None:
    begun = 0

    async def count(_partitions: Sequence[str]) -> JsonValue:
        nonlocal begun
        begun += 1
        return await asyncio.Event().wait()

    async with asyncio.timeout(60), serving(tmp_path, more={"count": count}) as gate:
        busy = [await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME)) for _ in range(8)]
        for _, writer in busy:
            writer.write(b'{"command": "count"}\n')
        await eventually(lambda: begun == 8, what="all of them to be answered")
        reader, refused = await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME))
        assert json.loads(await reader.read())["error"] == "too many control clients"
        assert gate.refused == 1
        for writer in (refused, *(writer for _, writer in busy)):
            writer.close()


async def test_client_that_does_not_read_its_answer_gives_its_place_back(tmp_path: Path) -> None:
    async def large(_partitions: Sequence[str]) -> JsonValue:
        await asyncio.sleep(0)
        return "x" * (8 << 20)

    async with asyncio.timeout(60), serving(tmp_path, idle_timeout_s=0.1, more={"large": large}) as gate:
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(tmp_path / SOCKET_NAME))
            deaf.send(b'{"command": "large"}\n')
            await eventually(lambda: gate.connections == 1, what="the client")
            await eventually(lambda: gate.connections == 0, what="its place")
            deaf.setblocking(False)
            size = 0
            with suppress(ConnectionError):
                while received := await asyncio.get_running_loop().sock_recv(deaf, 1 << 20):
                    size += len(received)
            assert 0 < size < 8 << 20


async def test_socket_of_another_user_is_told_with_that_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_to_open(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse_to_open)
    with pytest.raises(DaemonUnreachableError, match="Permission denied") as caught:
        await request(tmp_path, "status")
    assert "as the user of the daemon" in caught.value.remedy
