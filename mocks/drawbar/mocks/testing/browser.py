"""A headless Chromium for tests of pages, driven through its DevTools protocol.

Source: https://chromedevtools.github.io/devtools-protocol/. `DRAWBAR_CHROMIUM` names the program; the default is
`chromium` in PATH. Its profile is a temporary folder. The program ends with the context.
"""

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

PROGRAM = os.environ.get("DRAWBAR_CHROMIUM") or shutil.which("chromium")
MISSING = "no Chromium: install Debian's package chromium, or name the program by DRAWBAR_CHROMIUM"
SECONDS = 60.0
# Screenshots and 10,000 rows come as one message.
MESSAGE_LIMIT_BYTES = 256 * 1024 * 1024
KEYS = {
    "ArrowDown": 40,
    "ArrowUp": 38,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "End": 35,
    "Enter": 13,
    "Escape": 27,
    "Home": 36,
    "PageDown": 34,
    "Tab": 9,
}


class BrowserError(Exception):
    """Chromium did not start, or refused a command, or a script of the page failed."""


class Tab:
    """One page.

    Attributes:
        requests: the URLs of all requests of the page.
        complaints: console messages, uncaught exceptions and violations of the content security policy.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()

    async def receive(self) -> None:
        """Receive answers and events until cancelled."""
        async for message in self._socket:
            content = message.json()
            if "id" in content:
                answer = self._answers.pop(content["id"], None)
                if answer is not None and not answer.done():
                    answer.set_result(content)
                continue
            parameters = content["params"]
            match content["method"]:
                case "Network.requestWillBeSent":
                    self.requests.append(parameters["request"]["url"])
                case "Log.entryAdded":
                    self.complaints.append(parameters["entry"]["text"])
                case "Runtime.exceptionThrown":
                    self.complaints.append(str(parameters["exceptionDetails"]))
                case "Page.loadEventFired":
                    self._loaded.set()

    async def send(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result.

        Raises:
            BrowserError: it was refused.
        """
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(SECONDS):
            answer = await self._answers[number]
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    async def load(self, url: str) -> None:
        """Load a page; return once it is loaded."""
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.send(f"{domain}.enable")
        self._loaded.clear()
        await self.send("Page.navigate", url=url)
        async with asyncio.timeout(SECONDS):
            await self._loaded.wait()

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; await it first if it is a promise.

        Raises:
            BrowserError: it throws.
        """
        answer = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"].get("exception", answer)))
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Return the value of an expression once it is true in a drawn frame.

        Raises:
            BrowserError: it is not within `SECONDS`.
        """
        limit = int(SECONDS * 1000) - 5000
        value = await self.evaluate(
            "new Promise((done) => { const began = performance.now(); const look = () => {"
            f" const value = ({expression});"
            f" if (value) done(value); else if (performance.now() - began > {limit}) done(null);"
            " else requestAnimationFrame(look); }; look(); })"
        )
        if value is None:
            shown = await self.evaluate("document.body.innerText")
            raise BrowserError(f"never true: {expression}; the page shows {shown[:2000]!r}")
        return value

    async def press(self, key: str) -> None:
        """Press a key of `KEYS`, or a letter."""
        pressed = {"key": key, "text": key} if key not in KEYS else {"key": key, "code": key}
        if key in KEYS:
            pressed["windowsVirtualKeyCode"] = KEYS[key]  # type: ignore[assignment]
        if key == "Enter":
            pressed["text"] = "\r"
        await self.send("Input.dispatchKeyEvent", type="keyDown", **pressed)
        await self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def accessibility(self) -> list[tuple[str, str]]:
        """Return the role and name of each node of the accessibility tree, in its order, without ignored nodes."""
        answer = await self.send("Accessibility.getFullAXTree")
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in answer["nodes"]
            if not node["ignored"]
        ]

    async def picture(self) -> bytes:
        """Return a screenshot as PNG."""
        answer = await self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])


@contextlib.asynccontextmanager
async def opening(
    url: str, *, width: int = 1440, height: int = 900, is_dark: bool = False
) -> AsyncIterator[Tab]:
    """Yield a loaded page; end Chromium with the block.

    Args:
        url: the page's URL.
        width: the window's width in pixels.
        height: the window's height in pixels.
        is_dark: emulate a preference for dark colours.

    Raises:
        BrowserError: Chromium is missing or does not start.
    """
    if PROGRAM is None:
        raise BrowserError(MISSING)
    with tempfile.TemporaryDirectory(prefix="drawbar-chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            *("--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}"),
            *("--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
            *(
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-proxy-server",
            ),
            *(("--no-sandbox",) if os.geteuid() == 0 else ()),
            f"--window-size={width},{height}",
            "about:blank",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": profile},
        )
        try:
            port = await _port(process)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    target = next(entry for entry in await answer.json() if entry["type"] == "page")
                async with (
                    session.ws_connect(
                        target["webSocketDebuggerUrl"], max_msg_size=MESSAGE_LIMIT_BYTES
                    ) as socket,
                    asyncio.TaskGroup() as tasks,
                ):
                    tab = Tab(socket)
                    receiving = tasks.create_task(tab.receive(), name="devtools")
                    scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
                    await tab.send("Emulation.setEmulatedMedia", features=[scheme])
                    # Without it, elements get no focus events.
                    await tab.send("Emulation.setFocusEmulationEnabled", enabled=True)
                    await tab.send(
                        "Emulation.setDeviceMetricsOverride",
                        width=width,
                        height=height,
                        deviceScaleFactor=1,
                        mobile=False,
                    )
                    await tab.load(url)
                    yield tab
                    receiving.cancel()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _port(process: asyncio.subprocess.Process) -> int:
    """Return the DevTools port from Chromium's output."""
    assert process.stderr is not None
    lines: list[str] = []
    async with asyncio.timeout(SECONDS):
        while line := (await process.stderr.readline()).decode(errors="replace"):
            lines.append(line)
            if line.startswith("DevTools listening on ws://"):
                return int(line.split("//")[1].partition("/")[0].rpartition(":")[2])
    raise BrowserError(f"{PROGRAM} did not start: {' '.join(lines)[-1000:]}")
