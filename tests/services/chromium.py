"""Chromium for tests, driven over its DevTools protocol: what a page shows, how keys move in it, what axe finds."""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp

DEBIAN_BROWSER: Final = Path("/usr/lib/chromium/chromium-headless-shell")
DEADLINE_S: Final = 60.0  # other tests may have both cores
_ROWS: Final = 6
_KEYS: Final = {"Tab": 9, "Enter": 13}


@dataclass(frozen=True, slots=True)
class ChromiumService:
    """Running browser without a window. ``axe`` is the script that finds faults of accessibility."""

    url: str
    axe: str

    @contextlib.asynccontextmanager
    async def tab(self, *, dark: bool = False, width: int = 1280) -> AsyncIterator["Tab"]:
        """Open a tab and close it at the end; every wait of it has a deadline."""
        async with asyncio.timeout(DEADLINE_S * 4), aiohttp.ClientSession() as session:
            async with session.put(f"{self.url}/json/new?about:blank") as reply:
                target = await reply.json()
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as channel:
                tab = Tab(channel, self.axe)
                listening = asyncio.create_task(tab.listen(), name="events of a tab")
                try:
                    await tab.prepare(dark=dark, width=width)
                    yield tab
                finally:
                    listening.cancel()
                    await asyncio.wait([listening])
            async with session.get(f"{self.url}/json/close/{target['id']}"):
                pass


class Tab:
    """One tab.

    Attributes:
        complaints: what the browser itself complained about: blocked content, errors, dialogs.
    """

    def __init__(self, channel: aiohttp.ClientWebSocketResponse, axe: str) -> None:
        self.complaints: list[str] = []
        self._channel = channel
        self._axe = axe
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()

    async def listen(self) -> None:
        """Hand answers to their callers and take note of events, until cancelled."""
        async for message in self._channel:
            told = json.loads(message.data)
            if (number := told.get("id")) is not None:
                self._answers.pop(number).set_result(told)
                continue
            match told["method"]:
                case "Page.loadEventFired":
                    self._loaded.set()
                case "Log.entryAdded" if told["params"]["entry"]["level"] in ("error", "warning"):
                    self.complaints.append(told["params"]["entry"]["text"])
                case "Runtime.exceptionThrown":
                    self.complaints.append(json.dumps(told["params"]["exceptionDetails"])[:500])
                case "Page.javascriptDialogOpening":
                    self.complaints.append(f"dialog: {told['params']['message']}")

    async def prepare(self, *, dark: bool, width: int) -> None:
        """Switch events on, and set the colours and the size."""
        for domain in ("Page", "Log", "Runtime"):
            await self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._channel.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(DEADLINE_S):
            told = await answer
        assert "error" not in told, f"{method}: {told.get('error')}"
        result: dict[str, Any] = told["result"]
        return result

    async def open(self, url: str) -> None:
        """Go to a page and return when it is loaded."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(DEADLINE_S):
            await self._loaded.wait()

    async def follow(self, key: str = "Enter") -> None:
        """Press a key that leads to another page, and return when that is loaded."""
        self._loaded.clear()
        await self.press(key)
        async with asyncio.timeout(DEADLINE_S):
            await self._loaded.wait()

    async def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - as JSON has it
        """Return the value of an expression of JavaScript; the policy of the page does not bind it."""
        told = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def text(self) -> str:
        """Return what a person sees of the page."""
        seen: str = await self.evaluate("document.body.innerText")
        return seen

    async def press(self, key: str) -> None:
        """Press ``Tab`` or ``Enter``."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        typed = {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **code, **typed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    async def faults(self, *, rules: Sequence[str] = ()) -> list[str]:
        """Return what axe finds: rule, element and reason of each fault.

        Of a long table the first rows are examined, for all rows are made alike. ``rules`` names some; none means all.
        """
        if not await self.evaluate("typeof axe === 'object'"):
            await self.evaluate(self._axe)
        options = {"resultTypes": ["violations"]} | ({"runOnly": [*rules]} if rules else {})
        named = "rule.nodes.map(node => `${rule.id}: ${node.html}: ${node.failureSummary}`)"
        found = await self.evaluate(
            f"axe.run({{exclude: [['tbody tr:nth-child(n+{_ROWS + 1})']]}}, {json.dumps(options)})"
            f".then(told => told.violations.flatMap(rule => {named}))"
        )
        return [str(each)[:600] for each in found]

    async def screenshot(self, path: Path) -> None:
        """Write the whole page as PNG."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))


def artefacts(fallback: Path) -> Path:
    """Return the folder for screenshots of failures: ``$TIERD_ARTEFACTS``, or else a folder of the test run."""
    return Path(os.environ.get("TIERD_ARTEFACTS") or fallback)


def axe_file() -> Path:
    """Return the path of the script axe, which ``install.sh`` fetches; it may not be there."""
    return Path(os.environ.get("TIERD_CACHE", ".cache"), "browser/node_modules/axe-core/axe.min.js")


def browser_command(program: str, folder: Path, port: int) -> list[str]:
    """Return the command that starts the browser."""
    quiet = [
        "--no-first-run",
        "--disable-extensions",
        "--disable-background-networking",
        "--disable-gpu",
        "--mute-audio",
    ]
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    place = [f"--remote-debugging-port={port}", f"--user-data-dir={folder}", "--disable-dev-shm-usage"]
    return [program, "--headless", *quiet, *as_root, *place, "about:blank"]
