"""`drawbar-metrics-proxy`: give a daemon's metrics to callers who may read them, over TLS.

It runs in a container of its own beside the daemon, as a service account of its own: so no daemon may review tokens, and
Prometheus reaches nothing else of the daemon. The API server decides about each caller: a TokenReview names it, and a
SubjectAccessReview tells whether it may `get` the path `/metrics`. Answers are remembered for `ALLOWED_SECONDS` and
`REFUSED_SECONDS`, for at most `CALLERS_MAX` callers each. The certificate is made at each start and signs itself: callers prove
who they are, and the proxy does not.

Source: Kubernetes "Authenticating", "Authorization Overview"; controller-runtime, pkg/metrics/filters.
"""

import argparse
import asyncio
import hashlib
import logging
import signal
import ssl
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web_request, web_response

from drawbar.driver import logs
from drawbar.driver.kube import client, config, errors, kinds, reviews
from drawbar.driver.operation import certificates, server

log = logging.getLogger(__name__)

PATH = "/metrics"
BEARER = "Bearer "
ALLOWED_SECONDS = 60.0
REFUSED_SECONDS = 10.0
CALLERS_MAX = 64
REVIEWS_LIMIT = 4
PAGE_LIMIT_BYTES = 64 << 20
TIMEOUT_SECONDS = 4.0
OK, UNAUTHENTICATED, FORBIDDEN, UPSTREAM_FAILED, UNAVAILABLE = 200, 401, 403, 502, 503


@dataclass(kw_only=True)
class Judge:
    """The API server's opinion about callers, with a short memory.

    Attributes:
        api: a client that may create both kinds of review.
        clock: seconds of a monotonic clock.

    Refused callers have a memory of their own, so that a flood of wrong tokens makes nobody else be reviewed again.
    """

    api: client.Client
    clock: Callable[[], float] = time.monotonic
    _allowed: OrderedDict[bytes, tuple[float, int]] = field(default_factory=OrderedDict)
    _refused: OrderedDict[bytes, tuple[float, int]] = field(default_factory=OrderedDict)
    _review_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REVIEWS_LIMIT))

    async def judge(self, token: str) -> int:
        """Return 200, 401 or 403 for the holder of a token.

        Raises:
            errors.KubeError: the API server does not answer.
        """
        digest = hashlib.sha256(token.encode()).digest()
        for known in (self._allowed, self._refused):
            until, status = known.get(digest, (0.0, 0))
            if self.clock() < until:
                return status
        async with self._review_slots:
            status = await self._ask(token)
        known, lasts = (self._allowed, ALLOWED_SECONDS) if status == OK else (self._refused, REFUSED_SECONDS)
        known[digest] = (self.clock() + lasts, status)
        known.move_to_end(digest)
        while len(known) > CALLERS_MAX:
            known.popitem(last=False)
        return status

    async def _ask(self, token: str) -> int:
        holder = await reviews.ask(self.api, kinds.TOKEN_REVIEW, {"token": token})
        if not holder.authenticated:
            return UNAUTHENTICATED
        user = holder.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
        }
        verdict = await reviews.ask(self.api, kinds.ACCESS_REVIEW, spec)
        return OK if verdict.allowed else FORBIDDEN


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """The handler of requests.

    Attributes:
        judge: the opinion about callers.
        upstream: the address of the daemon's metrics.
        session: a session for requests to the daemon.
    """

    judge: Judge
    upstream: str
    session: aiohttp.ClientSession

    async def handle(self, request: web_request.BaseRequest) -> web_response.Response:
        """Return the daemon's metrics, or the reason why the caller does not get them."""
        response = await self._answer(request)
        response.force_close()
        return response

    async def _answer(self, request: web_request.BaseRequest) -> web_response.Response:
        if request.path != PATH:
            return web_response.Response(status=404, text=f"here is {PATH}\n")
        if request.method not in ("GET", "HEAD"):
            return web_response.Response(status=405, text="only GET\n")
        header = request.headers.get("Authorization", "")
        token = header.removeprefix(BEARER).strip()
        if not header.startswith(BEARER) or not reviews.TOKEN.fullmatch(token):
            return web_response.Response(status=UNAUTHENTICATED, text="send a bearer token\n")
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status = await self.judge.judge(token)
                if status == UNAUTHENTICATED:
                    return web_response.Response(
                        status=status, text="the API server does not know the token\n"
                    )
                if status == FORBIDDEN:
                    return web_response.Response(
                        status=status,
                        text=f"the caller may not get {PATH}: bind it to the ClusterRole drawbar-metrics-reader\n",
                    )
                return await self._fetch()
        except errors.KubeError as error:
            log.warning("the API server did not review a caller", extra={"reason": str(error)})
            return web_response.Response(status=UNAVAILABLE, text="the API server does not answer\n")
        except TimeoutError:
            return web_response.Response(status=UNAVAILABLE, text="no answer in time\n")

    async def _fetch(self) -> web_response.Response:
        try:
            async with self.session.get(self.upstream) as answer:
                page = await answer.content.read(PAGE_LIMIT_BYTES)
                while (more := await answer.content.read(PAGE_LIMIT_BYTES - len(page))) and more:
                    page += more
                return web_response.Response(
                    status=answer.status, body=page, headers={"Content-Type": server.METRICS_TYPE}
                )
        except aiohttp.ClientError as error:
            log.warning("the daemon does not give its metrics", extra={"reason": str(error)})
            return web_response.Response(status=UPSTREAM_FAILED, text="the daemon does not answer\n")


async def serve(api: client.Client, *, listen: str, upstream: str, tls: ssl.SSLContext) -> None:
    """Serve until cancelled.

    Args:
        api: a client that may create both kinds of review.
        listen: the port on all addresses, as `:8443`, or HOST:PORT.
        upstream: the address of the daemon's metrics.
        tls: the certificate.
    """
    host, _, port = listen.rpartition(":")
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        proxy = Proxy(judge=Judge(api=api), upstream=upstream, session=session)
        handlers = server.make_handlers(proxy.handle)
        async with handlers.serving(host.strip("[]") or None, int(port), tls):
            log.info("serving metrics to callers who may read them", extra={"address": listen})
            await asyncio.get_running_loop().create_future()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal; return the exit status."""
    parser = argparse.ArgumentParser(prog="drawbar-metrics-proxy", description=__doc__.partition("\n")[0])
    parser.add_argument("--listen", default=":8443", metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument("--upstream", required=True, metavar="URL", help="the daemon's metrics")
    parser.add_argument("--log", default="json", choices=[form.value for form in logs.Format])
    options = parser.parse_args(arguments)
    logs.configure(options.log)
    try:
        asyncio.run(_run(options))
    except (errors.KubeError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"error: metrics cannot be served: {error}\n")
        return 1
    return 0


async def _run(options: argparse.Namespace) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    tls = await asyncio.to_thread(certificates.make_self_signed)
    try:
        async with client.connecting(config.load()) as api:
            await serve(api, listen=options.listen, upstream=options.upstream, tls=tls)
    except asyncio.CancelledError:
        log.info("stopped")


if __name__ == "__main__":
    sys.exit(main())
