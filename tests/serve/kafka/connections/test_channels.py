"""Channels over real sockets, in the clear and under TLS: bytes in order, slow readers, vanished files and peers."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.open_files import open_files
from tests.serve.kafka.connections.handshakes import InsistentClient
from tests.services.certificates import Authority
from tierd.errors import SegmentChangedError
from tierd.open_file import OpenFile
from tierd.serve.kafka.connections.channel import Channel, PlainChannel
from tierd.serve.kafka.connections.connection_errors import ClientFaultError, PeerGoneError
from tierd.serve.kafka.connections.file_slices import FileSlices
from tierd.serve.kafka.connections.tls_channel import TlsChannel
from tierd.serve.kafka.served.served_log import FileSlice

Pieces = list[bytes | FileSlice]
CONTENT = bytes(range(256)) * 4096 * 3  # 3 MiB, more than a socket buffers for a client that does not read


class Pair:
    """A channel, and the client at its other end."""

    def __init__(
        self, channel: Channel, connected: socket.socket, tls: ssl.SSLContext | None, *, descriptor: int = -1
    ) -> None:
        self.channel = channel
        self.descriptor = descriptor  # of the channel
        self._connected = connected
        self._tls = tls
        self.progress: list[int] = []

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Shake hands on both sides, and return the streams of the client."""
        name = "localhost" if self._tls else None
        client = asyncio.open_connection(sock=self._connected, ssl=self._tls, server_hostname=name)
        _, streams = await asyncio.gather(self.channel.open(), client)
        return streams

    async def send(self, *pieces: bytes | FileSlice) -> None:
        """Send pieces, and note the progress."""
        await self.channel.send(pieces, self.progress.append)


@pytest.fixture
def last() -> Iterator[contextlib.ExitStack]:
    """Yield a stack of what ends behind the fixtures that a test names later."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def slices() -> Iterator[FileSlices]:
    with running_slices() as found:
        yield found


@contextmanager
def running_slices() -> Iterator[FileSlices]:
    with ThreadPoolExecutor(2) as executor:
        found = FileSlices(executor, clock=ManualClock())
        yield found
        found.close()


@pytest.fixture(params=["plain", "tls"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path, slices: FileSlices) -> AsyncIterator[Pair]:
    ours, theirs = _socket_pair()
    if request.param == "plain":
        pair = Pair(PlainChannel(ours, slices), theirs, None, descriptor=ours.fileno())
    else:
        channel = TlsChannel(ours, slices, server_context(tmp_path))
        pair = Pair(channel, theirs, client_context(tmp_path), descriptor=ours.fileno())
    yield pair
    pair.channel.close()
    theirs.close()


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


def server_context(folder: Path) -> ssl.SSLContext:
    authority = Authority(folder / "pki", "authority")
    server = authority.issue("server", hosts=("localhost",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.cert_file, server.key_file)
    return context


def client_context(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "pki" / "authority-ca.pem"))


def segment(folder: Path, content: bytes = CONTENT) -> FileSlice:
    """Return a slice of the whole of a new file."""
    path = folder / "00000000000000000000.log"
    path.write_bytes(content)
    return FileSlice(path, path.stat().st_ino, 0, len(content))


async def received(reader: asyncio.StreamReader, size_bytes: int) -> bytes:
    async with asyncio.timeout(60):
        return await reader.readexactly(size_bytes)


async def ended(pair: Pair, writer: asyncio.StreamWriter) -> None:
    """Close both ends."""
    pair.channel.close()
    writer.close()
    try:
        await writer.wait_closed()
    except (ConnectionError, ssl.SSLError):
        return


async def test_bytes_and_slices_arrive_in_order(pair: Pair, tmp_path: Path) -> None:
    whole = segment(tmp_path)
    middle = replace(whole, position=1000, size_bytes=2_000_001)
    reader, writer = await pair.open()
    expected = b"head" + CONTENT[1000:2_001_001] + b"" + b"between" + b"more" + CONTENT + CONTENT[:1]

    sending = asyncio.gather(
        pair.send(b"head", middle, b"", b"between", b"more", CONTENT, replace(whole, size_bytes=1)),
        received(reader, len(expected)),
    )

    assert (await sending)[1] == expected
    assert sum(pair.progress) == len(expected)
    await ended(pair, writer)


async def test_slice_without_bytes_sends_nothing(pair: Pair, tmp_path: Path) -> None:
    reader, writer = await pair.open()

    await pair.send(b"a", replace(segment(tmp_path), size_bytes=0), b"b")

    assert await received(reader, 2) == b"ab"
    await ended(pair, writer)


async def test_many_small_pieces_are_sent(pair: Pair) -> None:
    reader, writer = await pair.open()
    pieces = [number.to_bytes(4, "big") for number in range(3000)]

    _, found = await asyncio.gather(pair.send(*pieces), received(reader, 12_000))

    assert found == b"".join(pieces)
    await ended(pair, writer)


async def test_client_that_reads_slowly_holds_up_its_own_send_only(pair: Pair, tmp_path: Path) -> None:
    reader, writer = await pair.open()
    sending = asyncio.get_running_loop().create_task(pair.send(segment(tmp_path), *[CONTENT] * 4))
    size_bytes = 5 * len(CONTENT)
    await eventually(lambda: len(pair.progress) > 0, what="the first bytes")
    assert not sending.done()

    assert len(await received(reader, size_bytes)) == size_bytes

    await sending
    await ended(pair, writer)


async def test_requests_are_read_whole_and_in_order(pair: Pair) -> None:
    _, writer = await pair.open()
    intake = pair.channel.intake
    writer.write(b"first" + CONTENT + b"last")

    await intake.fill(5)
    assert intake.peek(5) == b"first"
    await intake.fill(5 + len(CONTENT))
    assert intake.take(len(CONTENT), skip_bytes=5) == CONTENT
    await intake.fill(4)
    assert intake.take(4) == b"last"
    assert len(intake) == 0
    await ended(pair, writer)


async def test_client_that_goes_away_ends_reads_and_is_reported(pair: Pair) -> None:
    _, writer = await pair.open()
    gone = asyncio.Event()
    pair.channel.intake.on_end = gone.set
    writer.write(b"half")

    writer.close()

    async with asyncio.timeout(60):
        await gone.wait()
        with pytest.raises(PeerGoneError):
            await pair.channel.intake.fill(10)
    await ended(pair, writer)


async def test_client_that_goes_away_ends_a_send(pair: Pair, tmp_path: Path) -> None:
    _, writer = await pair.open()
    sending = asyncio.get_running_loop().create_task(pair.send(*[segment(tmp_path)] * 20))
    await eventually(lambda: len(pair.progress) > 0, what="the first bytes")

    writer.transport.abort()

    with pytest.raises(PeerGoneError):
        await sending
    await ended(pair, writer)


@pytest.mark.parametrize("waits", ["read", "send"])
async def test_abort_ends_what_waits(pair: Pair, waits: str) -> None:
    _, writer = await pair.open()
    call = pair.channel.intake.fill(1) if waits == "read" else pair.send(*[CONTENT] * 20)
    task = asyncio.get_running_loop().create_task(call)
    await asyncio.sleep(0)

    pair.channel.abort()

    with pytest.raises(PeerGoneError):
        await task
    await ended(pair, writer)


@pytest.mark.parametrize("end", ["abort", "client"])
async def test_disk_that_hangs_holds_no_connection_that_has_ended(
    last: contextlib.ExitStack, pair: Pair, tmp_path: Path, end: str
) -> None:
    path = tmp_path / "00000000000000000000.log"
    os.mkfifo(path)  # opening it waits for a writer
    _, writer = await pair.open()
    sending = asyncio.create_task(pair.send(b"head", FileSlice(path, path.stat().st_ino, 0, 100)))
    await eventually(lambda: pair.progress == [4], what="the bytes before the slice")
    if end == "abort":
        pair.channel.abort()
    else:
        writer.transport.abort()
    try:
        async with asyncio.timeout(10):
            with pytest.raises(PeerGoneError):
                await sending
    finally:
        last.callback(os.close, os.open(path, os.O_RDWR))  # the threads end now
    await ended(pair, writer)


async def test_channel_that_was_aborted_before_it_opened_reads_nothing_and_leaves_no_reader(pair: Pair) -> None:
    """A port that is full cuts connections that it has just accepted."""
    descriptor = pair.descriptor
    pair.channel.abort()
    with contextlib.suppress(PeerGoneError):
        await pair.channel.open()
    with pytest.raises(PeerGoneError):
        await pair.channel.intake.fill(1)
    pair.channel.close()
    assert not asyncio.get_running_loop().remove_reader(descriptor)


async def test_aborted_channel_drops_what_the_client_has_not_taken(pair: Pair) -> None:
    reader, writer = await pair.open()
    task = asyncio.get_running_loop().create_task(pair.send(*[CONTENT] * 20))
    await eventually(lambda: len(pair.progress) > 0, what="the first bytes")

    pair.channel.abort()
    with pytest.raises(PeerGoneError):
        await task
    pair.channel.close()

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await received(reader, 20 * len(CONTENT))
    await ended(pair, writer)


async def test_closed_channel_ends_the_stream_of_the_client(pair: Pair) -> None:
    reader, writer = await pair.open()
    await pair.send(b"bye")

    pair.channel.close()

    async with asyncio.timeout(60):
        assert await reader.read() == b"bye"
    await ended(pair, writer)


async def test_cancelled_send_leaves_no_descriptor(pair: Pair, slices: FileSlices, tmp_path: Path) -> None:
    _, writer = await pair.open()
    sending = asyncio.get_running_loop().create_task(pair.send(*[segment(tmp_path)] * 20))
    await eventually(lambda: len(pair.progress) > 0, what="the first bytes")

    sending.cancel()
    await asyncio.wait({sending})

    slices.close()
    await eventually(lambda: open_files(tmp_path) == [], what="the end of the worker threads")
    await ended(pair, writer)


def _gone(path: Path) -> None:
    path.unlink()


def _replaced(path: Path) -> None:
    path.with_suffix(".new").write_bytes(CONTENT)
    path.with_suffix(".new").rename(path)


def _shorter(path: Path) -> None:
    os.truncate(path, 100)


@pytest.mark.parametrize("change", [_gone, _replaced, _shorter])
async def test_slice_of_a_file_that_changed_is_an_error(
    pair: Pair, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    _, writer = await pair.open()
    whole = segment(tmp_path)
    change(whole.path)

    with pytest.raises(SegmentChangedError):
        await pair.send(b"head", replace(whole, position=50, size_bytes=100))

    assert open_files(tmp_path) == []
    await ended(pair, writer)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_slice_of_a_segment_that_the_broker_deletes_or_compacts_is_sent_from_the_renamed_file(
    pair: Pair, tmp_path: Path, is_replaced: bool
) -> None:
    reader, writer = await pair.open()
    whole = segment(tmp_path)
    whole.path.rename(whole.path.with_suffix(".log.deleted"))
    if is_replaced:
        whole.path.write_bytes(b"compacted")

    await pair.send(b"head", replace(whole, position=50, size_bytes=100))

    async with asyncio.timeout(60):
        assert await reader.readexactly(104) == b"head" + CONTENT[50:150]
    await ended(pair, writer)


async def test_slice_of_an_open_file_is_sent_although_the_file_was_deleted(pair: Pair, tmp_path: Path) -> None:
    reader, writer = await pair.open()
    whole = segment(tmp_path)
    file = OpenFile(whole.path, os.open(whole.path, os.O_RDONLY | os.O_CLOEXEC))
    whole.path.unlink()

    sending = pair.send(
        b"head", replace(whole, position=50, size_bytes=len(CONTENT) - 50, opened=file), replace(whole, opened=file)
    )
    _, found = await asyncio.gather(sending, received(reader, 4 + 2 * len(CONTENT) - 50))

    assert found == b"head" + CONTENT[50:] + CONTENT
    await ended(pair, writer)


@settings(max_examples=20)
@given(
    plan=st.lists(
        st.binary(max_size=100) | st.tuples(st.integers(0, 5000), st.integers(0, 5000)), min_size=1, max_size=20
    )
)
def test_any_pieces_arrive_as_they_are(
    plan: list[bytes | tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("segments")
    whole = segment(folder, CONTENT[:10_000])
    pieces = [
        each if isinstance(each, bytes) else replace(whole, position=each[0], size_bytes=each[1]) for each in plan
    ]
    expected = b"".join(
        each if isinstance(each, bytes) else CONTENT[each.position : each.position + each.size_bytes] for each in pieces
    )

    async def play(slices: FileSlices) -> bytes:
        ours, theirs = _socket_pair()
        pair = Pair(PlainChannel(ours, slices), theirs, None)
        reader, writer = await pair.open()
        _, found = await asyncio.gather(pair.send(*pieces), received(reader, len(expected)))
        await ended(pair, writer)
        return found

    with running_slices() as slices:
        assert asyncio.run(play(slices)) == expected


class TestTls:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path: Path) -> None:
        self.context = server_context(tmp_path)
        self.folder = tmp_path

    async def _opened(self, slices: FileSlices, speak: Callable[[socket.socket], Awaitable[None]]) -> None:
        ours, theirs = _socket_pair()
        channel = TlsChannel(ours, slices, self.context)
        try:
            await asyncio.gather(channel.open(), speak(theirs))
        finally:
            channel.close()
            theirs.close()

    async def test_client_without_tls_is_a_fault(self, slices: FileSlices) -> None:
        async def speak(client: socket.socket) -> None:
            await asyncio.get_running_loop().sock_sendall(client, b"\0\0\0\x0a\0\x12\0\0 no TLS at all")

        with pytest.raises(ClientFaultError, match="no TLS with the client"):
            await self._opened(slices, speak)

    async def test_client_that_goes_away_during_the_handshake_is_gone(self, slices: FileSlices) -> None:
        async def speak(client: socket.socket) -> None:
            await asyncio.get_running_loop().sock_sendall(client, b"\x16\x03\x01\x02\0")
            client.close()

        with pytest.raises(PeerGoneError):
            await self._opened(slices, speak)

    async def test_abort_ends_a_handshake(self, slices: FileSlices) -> None:
        ours, theirs = _socket_pair()
        channel = TlsChannel(ours, slices, self.context)
        opening = asyncio.get_running_loop().create_task(channel.open())
        await asyncio.sleep(0)

        channel.abort()

        with pytest.raises(PeerGoneError):
            await opening
        channel.close()
        theirs.close()

    async def test_client_that_asks_for_handshakes_without_end_is_cut(self, slices: FileSlices) -> None:
        ours, theirs = _socket_pair()
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        channel = TlsChannel(ours, slices, self.context)
        client = InsistentClient(self.folder / "pki" / "authority-ca.pem", self.folder / "keys")
        loop = asyncio.get_running_loop()
        opening = loop.create_task(channel.open())
        is_done, received = client.shake_hands(b""), b""
        while not is_done:
            await loop.sock_sendall(theirs, client.outgoing.read())
            received = await loop.sock_recv(theirs, 65536)
            is_done = client.shake_hands(received)
        await opening

        await loop.sock_sendall(theirs, client.handshakes(1000))

        await eventually(lambda: channel.intake.is_ended, what="the end of the client")
        channel.close()
        theirs.close()

    async def test_bytes_that_come_with_the_end_of_the_handshake_are_read(self, slices: FileSlices) -> None:
        ours, theirs = _socket_pair()
        channel = TlsChannel(ours, slices, self.context)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context(self.folder).wrap_bio(incoming, outgoing, server_hostname="localhost")
        loop = asyncio.get_running_loop()
        opening = loop.create_task(channel.open())
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        await loop.sock_sendall(theirs, outgoing.read())
        while True:
            incoming.write(await loop.sock_recv(theirs, 65536))
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                continue
            break
        client.write(b"early")
        await loop.sock_sendall(theirs, outgoing.read())  # the last bytes of the handshake, and the first of the client

        await opening
        async with asyncio.timeout(60):
            await channel.intake.fill(5)

        assert channel.intake.take(5) == b"early"
        channel.close()
        theirs.close()

    async def test_client_without_a_certificate_has_none(self, slices: FileSlices) -> None:
        ours, theirs = _socket_pair()
        pair = Pair(TlsChannel(ours, slices, self.context), theirs, client_context(self.folder))
        _, writer = await pair.open()

        assert pair.channel.certificate() is None

        await ended(pair, writer)
