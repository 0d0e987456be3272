"""What `/healthz`, `/readyz` and `/metrics` answer."""

import http
import json
from collections.abc import Callable, Mapping

from drawbar.driver.operation import readiness
from drawbar.driver.operation.http import server

HEALTHZ = "/healthz"
READYZ = "/readyz"
METRICS = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _nothing() -> Mapping[str, object]:
    return {}


def pages(
    watchdog: readiness.Watchdog,
    ready: readiness.Readiness,
    metrics: Callable[[], bytes],
    said: Callable[[], Mapping[str, object]] = _nothing,
) -> server.Pages:
    """The three pages by path.

    Args:
        watchdog: what hangs.
        ready: what is missing.
        metrics: the text of the last page.
        said: what stands in `/readyz` besides, and does not make the daemon more or less ready.
    """

    def healthz() -> server.Answer:
        return _verdict("alive", {"overdue": watchdog.overdue()}, {})

    def readyz() -> server.Answer:
        return _verdict("ready", {"missing": ready.missing()}, said())

    def metrics_page() -> server.Answer:
        return server.Answer(status=http.HTTPStatus.OK, content=metrics(), content_type=METRICS_TYPE)

    return {HEALTHZ: healthz, READYZ: readyz, METRICS: metrics_page}


def _verdict(name: str, why_not: dict[str, object], said: Mapping[str, object]) -> server.Answer:
    good = not any(why_not.values())
    return server.Answer(
        status=http.HTTPStatus.OK if good else http.HTTPStatus.SERVICE_UNAVAILABLE,
        content=json.dumps({name: good, **why_not, **said}).encode() + b"\n",
    )
