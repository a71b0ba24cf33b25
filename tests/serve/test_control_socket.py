import asyncio
import errno
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
import uvloop
from pydantic import JsonValue, StrictBool, TypeAdapter
from structlog.testing import capture_logs

from tests.coded import coded
from tests.fakes.eventually import eventually
from tierd.clock import SystemClock
from tierd.errors import DaemonUnreachableError, RefusedError, TierError, TierErrorCode, UnknownPartitionError
from tierd.ports import ConnectionGate, ConnectionLimits
from tierd.serve import VerbHandler
from tierd.serve.awaited_answer import ask, ask_or_run
from tierd.serve.control_client import SOCKET_NAME
from tierd.serve.control_protocol import ControlAnswer, ControlListAnswer, ControlRequest, ControlVerb
from tierd.serve.control_socket import MAX_REQUEST_BYTES, ControlServer


class EchoRequest(ControlRequest):
    partitions: tuple[str, ...] = ()


class ForceRequest(ControlRequest):
    partitions: tuple[str, ...] = ()
    force: StrictBool = False


class Count(ControlAnswer):
    count: int


class Names(ControlListAnswer[str]):
    pass


ECHO = ControlVerb("echo", EchoRequest, TypeAdapter(Names))
REFUSE = ControlVerb("refuse", EchoRequest, TypeAdapter(Names))
FAIL = ControlVerb("fail", EchoRequest, TypeAdapter(Names))
HANG = ControlVerb("hang", EchoRequest, TypeAdapter(Names))
DESTROY = ControlVerb("destroy", ForceRequest, TypeAdapter(Names))
OPTIONS = ControlVerb("options", ForceRequest, TypeAdapter(ForceRequest))


async def echo(given: EchoRequest) -> Names:
    await asyncio.sleep(0)
    return Names(given.partitions)


async def refuse(given: EchoRequest) -> Names:
    await asyncio.sleep(0)
    raise UnknownPartitionError(f"{given.partitions[0]} is unknown", remedy="see tierd status")


async def fail(_given: EchoRequest) -> Names:
    await asyncio.sleep(0)
    raise ZeroDivisionError("a bug")


async def options(given: ForceRequest) -> ForceRequest:
    await asyncio.sleep(0)
    return given


async def destroy(_given: ForceRequest) -> Names:
    await asyncio.sleep(0)
    raise RefusedError("it would do harm", remedy="think again")


async def hang(_given: EchoRequest) -> Names:
    await asyncio.Event().wait()
    return Names(())


async def echoed(state_dir: Path, *names: str) -> list[JsonValue]:
    return (await ask(state_dir, ECHO, EchoRequest(partitions=names))).to_json()


@asynccontextmanager
async def serving(
    state_dir: Path,
    *,
    idle_timeout_s: float = 30.0,
    answer_timeout_s: float = 30.0,
    gate_timeout_s: float = 300.0,
    more: tuple[VerbHandler, ...] = (),
) -> AsyncIterator[ConnectionGate]:
    clock = SystemClock()
    limits = ConnectionLimits(connections=8, per_peer=8, answer_timeout_s=gate_timeout_s)
    gate = ConnectionGate(limits, clock=clock, is_short=lambda: False)
    server = ControlServer(
        state_dir,
        (
            ECHO.handled_by(echo),
            REFUSE.handled_by(refuse),
            FAIL.handled_by(fail),
            HANG.handled_by(hang),
            OPTIONS.handled_by(options),
            DESTROY.handled_by(destroy),
            *more,
        ),
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
        assert await echoed(tmp_path, "orders-0", "orders-1") == ["orders-0", "orders-1"]


async def test_unknown_option_of_a_command_is_refused(tmp_path: Path) -> None:
    forced = ForceRequest(partitions=("orders-0",), force=True)
    with_options = ControlVerb("echo", ForceRequest, TypeAdapter(Names))
    async with serving(tmp_path):
        assert await ask(tmp_path, OPTIONS, forced) == forced
        with pytest.raises(TierError, check=coded(TierErrorCode.CONTROL), match="no such option: force"):
            await ask(tmp_path, with_options, forced)


async def test_refusal_of_the_daemon_is_a_refusal_for_the_client(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(RefusedError, match="it would do harm") as refused:
            await ask(tmp_path, DESTROY, ForceRequest())
        assert refused.value.remedy == "think again"


async def test_command_does_not_act_itself_if_the_daemon_answers(tmp_path: Path) -> None:
    acted: list[str] = []

    async def act() -> str:
        acted.append("here")
        await asyncio.sleep(0)
        return "here"

    async with serving(tmp_path):
        assert await ask_or_run(tmp_path, ECHO, EchoRequest(partitions=("a-0",)), act) == Names(("a-0",))
        with pytest.raises(RefusedError):
            await ask_or_run(tmp_path, DESTROY, ForceRequest(), act)
        with pytest.raises(TierError, check=coded(TierErrorCode.CONTROL)):
            await ask_or_run(tmp_path, ControlVerb("echo", EchoRequest, TypeAdapter(Count)), EchoRequest(), act)
    assert acted == []
    assert await ask_or_run(tmp_path, ECHO, EchoRequest(), act) == "here"
    assert acted == ["here"]


async def test_socket_is_accessible_to_its_owner_only_and_removed_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode) == 0o600
    assert not (tmp_path / SOCKET_NAME).exists()


async def test_socket_is_made_without_a_change_of_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail(f"umask {mask:o}"))
    async with serving(tmp_path):
        assert await echoed(tmp_path) == []


async def test_a_socket_left_by_a_killed_daemon_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET_NAME))
    async with serving(tmp_path):
        assert await echoed(tmp_path) == []


async def test_socket_in_a_state_dir_with_a_long_path_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with serving(deep):
        assert await echoed(deep, "a-0") == ["a-0"]


async def test_several_clients_can_send_several_requests_on_one_connection(tmp_path: Path) -> None:
    line = b'{"command": "echo", "partitions": ["a-0"]}\n'
    async with serving(tmp_path):
        answers = await asyncio.gather(*(raw(tmp_path, line * 3) for _ in range(8)))
    assert [len(each) for each in answers] == [3] * 8


async def test_a_refusal_carries_cause_and_remedy(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(TierError, check=coded(TierErrorCode.CONTROL), match="a-0 is unknown") as refused:
            await ask(tmp_path, REFUSE, EchoRequest(partitions=("a-0",)))
        assert refused.value.remedy == "see tierd status"
        with pytest.raises(TierError, check=coded(TierErrorCode.CONTROL), match="no command 'dance'") as unknown:
            await ask(tmp_path, ControlVerb("dance", EchoRequest, TypeAdapter(Names)), EchoRequest())
        assert "echo" in unknown.value.remedy


async def test_bug_in_a_command_is_logged_and_the_server_continues(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with (
            capture_logs() as logs,
            pytest.raises(TierError, check=coded(TierErrorCode.CONTROL), match="internal error"),
        ):
            await ask(tmp_path, FAIL, EchoRequest())
        assert [entry["event"] for entry in logs] == ["control_command_failed"]
        assert await echoed(tmp_path) == []


async def test_command_that_exceeds_its_deadline_is_an_error(tmp_path: Path) -> None:
    async with serving(tmp_path, answer_timeout_s=0.01):
        with pytest.raises(TierError, check=coded(TierErrorCode.CONTROL), match="took above"):
            await ask(tmp_path, HANG, EchoRequest())


@pytest.mark.parametrize(
    "line", [b"junk\n", b"{}\n", b'{"command": 7}\n', b'{"command": "echo", "more": 1}\n', b"\xff\n"]
)
async def test_malformed_request_is_refused_and_the_connection_continues(tmp_path: Path, line: bytes) -> None:
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
        assert await echoed(tmp_path) == []


async def test_silent_client_is_disconnected(tmp_path: Path) -> None:
    async with serving(tmp_path, idle_timeout_s=0.01):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME))
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_connection_that_is_cut_while_it_is_answered_does_not_end_the_server(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    begun, is_cut = asyncio.Event(), asyncio.Event()

    async def wait(_given: EchoRequest) -> Names:
        begun.set()
        await is_cut.wait()
        return Names(())

    async def cut_early() -> None:
        verb = ControlVerb("wait", EchoRequest, TypeAdapter(Names))
        async with serving(tmp_path, more=(verb.handled_by(wait),), gate_timeout_s=0.0) as gate:
            asked = asyncio.create_task(ask(tmp_path, verb, EchoRequest()))
            await begun.wait()
            gate.cut_overdue()
            with pytest.raises(DaemonUnreachableError):
                await asked
            is_cut.set()
            assert await echoed(tmp_path, "orders-0") == ["orders-0"]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(cut_early())


async def test_the_server_ends_although_a_client_is_connected(tmp_path: Path) -> None:
    async with serving(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME))
        writer.write(b'{"command": "echo"}\n')
        await reader.readline()
    assert await reader.read() == b""
    writer.close()


async def test_missing_daemon_is_unreachable_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachableError, match=r"control\.sock") as unreachable:
        await echoed(tmp_path)
    assert "systemctl start tierd" in unreachable.value.remedy
    with pytest.raises(DaemonUnreachableError):
        await echoed(tmp_path / "absent")


@contextmanager
def as_another_user() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_client_of_another_user_is_refused_although_the_socket_is_open_to_all(
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
        assert await echoed(tmp_path) == []


async def test_command_is_answered_while_idle_clients_fill_the_socket(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path):
        idle = [await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME)) for _ in range(40)]
        assert await echoed(tmp_path, "a-0") == ["a-0"]
        for _, writer in idle:
            writer.close()


async def test_client_beyond_the_limit_of_answers_is_refused(tmp_path: Path) -> None:
    begun = 0

    async def count(_given: EchoRequest) -> Names:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()
        return Names(())

    counted = ControlVerb("count", EchoRequest, TypeAdapter(Names)).handled_by(count)
    async with asyncio.timeout(60), serving(tmp_path, more=(counted,)) as gate:
        busy = [await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME)) for _ in range(8)]
        for _, writer in busy:
            writer.write(b'{"command": "count"}\n')
        await eventually(lambda: begun == 8, what="all of them to be answered")
        reader, refused = await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME))
        assert json.loads(await reader.read())["error"] == "too many control clients"
        assert gate.refused == 1
        for writer in (refused, *(writer for _, writer in busy)):
            writer.close()


async def test_client_that_does_not_read_its_answer_loses_its_place(tmp_path: Path) -> None:
    async def large(_given: EchoRequest) -> Names:
        await asyncio.sleep(0)
        return Names(("x" * (8 << 20),))

    verb = ControlVerb("large", EchoRequest, TypeAdapter(Names)).handled_by(large)
    async with asyncio.timeout(60), serving(tmp_path, idle_timeout_s=0.1, more=(verb,)) as gate:
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


async def test_socket_of_another_user_is_unreachable_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_to_open(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse_to_open)
    with pytest.raises(DaemonUnreachableError, match="Permission denied") as caught:
        await echoed(tmp_path)
    assert "as the user of the daemon" in caught.value.remedy
