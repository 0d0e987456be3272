"""What `/healthz`, `/readyz` and `/metrics` answer."""

import http
import json
from collections.abc import Callable

from drawbar.driver.node.operation import readiness
from drawbar.driver.node.operation.http import server

HEALTHZ = "/healthz"
READYZ = "/readyz"
METRICS = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def pages(
    watchdog: readiness.Watchdog, ready: readiness.Readiness, metrics: Callable[[], bytes]
) -> server.Pages:
    """The three pages by path."""

    def healthz() -> server.Answer:
        return _verdict("alive", {"overdue": watchdog.overdue()})

    def readyz() -> server.Answer:
        return _verdict("ready", {"missing": ready.missing()})

    def metrics_page() -> server.Answer:
        return server.Answer(status=http.HTTPStatus.OK, content=metrics(), content_type=METRICS_TYPE)

    return {HEALTHZ: healthz, READYZ: readyz, METRICS: metrics_page}


def _verdict(name: str, why_not: dict[str, object]) -> server.Answer:
    good = not any(why_not.values())
    return server.Answer(
        status=http.HTTPStatus.OK if good else http.HTTPStatus.SERVICE_UNAVAILABLE,
        content=json.dumps({name: good, **why_not}).encode() + b"\n",
    )
