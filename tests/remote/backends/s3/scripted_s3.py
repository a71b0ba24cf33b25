"""A tiny S3 server that answers what a test tells it to, for the answers that a sound server cannot be made to give."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from tierd.kernels import crc32c
from tierd.remote.backends.parts import decoded


@dataclass(frozen=True)
class Answer:
    """One answer; ``hang_up`` closes the connection instead, after the request was read.

    ``after`` holds the answer back until it is set, also where the client is gone meanwhile.
    """

    status: int = 200
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    hang_up: bool = False
    after: asyncio.Event | None = None


def refusal(status: int, code: str, more: str = "", **headers: str) -> Answer:
    """An error in S3's form."""
    body = f"<Error><Code>{code}</Code><Message>{code} was said</Message>{more}</Error>"
    return Answer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def listed_uploads(*upload_ids: str) -> Answer:
    """Return the unfinished uploads of ``key``."""
    items = "".join(f"<Upload><Key>key</Key><UploadId>{upload_id}</UploadId></Upload>" for upload_id in upload_ids)
    return Answer(200, f"<ListMultipartUploadsResult>{items}</ListMultipartUploadsResult>")


class ScriptedS3:
    """Takes the answers of each operation one after the other, the last one for ever; notes every request."""

    def __init__(self) -> None:
        self.endpoint_url = ""
        self.requests: list[str] = []
        self.paths: list[str] = []
        self.headers: dict[str, list[Mapping[str, str]]] = defaultdict(list)
        self.unfinished: set[str] = set()
        """Uploads as a store on a file system has them: a part that is written makes its upload."""
        self.noted = asyncio.Event()
        """Set with every request whose body was read."""
        self.parts: dict[int, bytes] = {}
        """Bytes of the parts that were answered with success, by number."""
        self._answers: dict[str, list[Answer]] = {}
        self._late: set[asyncio.Task[None]] = set()

    def answer(self, operation: str, *answers: Answer) -> None:
        """Set the answers of an operation, for example ``upload_part`` or ``head``."""
        self._answers[operation] = list(answers)

    def begin_uploads(self, *, checksum_type: str | None) -> None:
        """Let multipart uploads begin and take parts; an older store does not tell a checksum type."""
        told = {"x-amz-checksum-type": checksum_type} if checksum_type else {}
        body = "<InitiateMultipartUploadResult><UploadId>id-1</UploadId></InitiateMultipartUploadResult>"
        self.answer("create_upload", Answer(200, body, told))
        self.answer("upload_part", Answer(200, "", {"ETag": '"tag"'}))
        self.answer("abort_upload", Answer(204))
        self.answer("list_uploads", listed_uploads())

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        content = await request.read()
        operation = _operation(request)
        self.requests.append(operation)
        self.paths.append(str(request.rel_url))
        self.headers[operation].append(request.headers)
        answers = self._answers.get(operation) or [refusal(501, "NotScripted")]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        checksum = request.headers.get("x-amz-checksum-crc32c")
        if operation in {"put", "upload_part"} and checksum is not None and decoded(checksum) != crc32c(content):
            answer = refusal(400, "BadDigest")
        if operation == "upload_part" and answer.status == 200 and not answer.hang_up:
            self.parts[int(request.query["partNumber"])] = content
        self.noted.set()
        writing = asyncio.create_task(self._written(operation, answer))  # goes on when the client has hung up
        self._late.add(writing)
        writing.add_done_callback(self._late.discard)
        await asyncio.shield(writing)
        if answer.hang_up:
            assert request.transport is not None
            request.transport.abort()
            raise asyncio.CancelledError
        headers = dict(answer.headers)
        if request.method == "HEAD":
            return _Head(answer.status, headers)
        return web.Response(status=answer.status, text=answer.body, headers=headers, content_type="application/xml")

    async def settled(self) -> None:
        """Wait until everything that was asked for is written."""
        if self._late:
            await asyncio.wait(self._late)

    async def _written(self, operation: str, answer: Answer) -> None:
        if answer.after is not None:
            await answer.after.wait()
        if operation == "upload_part":
            self.unfinished.add("id-1")
        elif operation in {"abort_upload", "complete_upload"}:
            self.unfinished.discard("id-1")


class _Head(web.Response):
    """An answer to HEAD may state a length that it does not have."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self._stated = headers.pop("Content-Length", "0")
        super().__init__(status=status, headers=headers)

    async def _start(self, request: web.BaseRequest) -> AbstractStreamWriter:
        self.headers["Content-Length"] = self._stated
        return await super()._start(request)


def _operation(request: web.Request) -> str:
    query = request.query
    match request.method:
        case "PUT":
            return "upload_part" if "partNumber" in query else "put"
        case "POST":
            return "create_upload" if "uploads" in query else "complete_upload"
        case "DELETE":
            return "abort_upload" if "uploadId" in query else "delete"
        case "GET" if "list-type" in query:
            return "list"
        case "GET" if "uploads" in query:
            return "list_uploads"
        case method:
            return method.lower()


@asynccontextmanager
async def scripted_s3() -> AsyncIterator[ScriptedS3]:
    """Run one on a free port."""
    script = ScriptedS3()
    application = web.Application(client_max_size=1 << 30)
    application.router.add_route("*", "/{path:.*}", script.handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    script.endpoint_url = f"http://{host}:{port}"
    try:
        yield script
    finally:
        await runner.cleanup()
