"""Explanations of the page's objects, as in `drawbar explain`.

One explanation reads the whole cluster. So only one runs at a time, and a request fails if `WAITING_LIMIT` others wait.
"""

import asyncio
from collections.abc import Awaitable, Callable

from drawbar.driver import errors
from drawbar.driver.cli import objects
from drawbar.driver.cli.explain import diagnosis
from drawbar.driver.cli.explain import reading as explain_reading
from drawbar.driver.cli.status import tree
from drawbar.driver.kube import client

WAITING_LIMIT = 8
TIMEOUT_SECONDS = 60.0
KINDS = frozenset({"device", "claim", "pod", "node", "fabric"})


class Finding(tree.Node, frozen=True):
    """A finding; see `doctor.findings.Finding`."""

    severity: str
    subject: str
    message: str
    remedy: str


class Explanation(tree.Node, frozen=True):
    """The findings on one object, or an error in their place."""

    findings: tuple[Finding, ...] = ()
    error: str = ""


Explain = Callable[[objects.Target], Awaitable[Explanation]]


class Explainer:
    """A source of explanations of one cluster's objects, one at a time.

    Args:
        api: the API server.
        driver: the DRA driver's name.
        namespace: the daemons' namespace.
    """

    def __init__(self, api: client.Client, *, driver: str, namespace: str) -> None:
        self._api = api
        self._driver = driver
        self._namespace = namespace
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def explain(self, target: objects.Target) -> Explanation:
        """Return the findings on the object."""
        if self._waiting >= WAITING_LIMIT:
            return Explanation(error="too many explanations at once; try again in some seconds")
        self._waiting += 1
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS), self._lock:
                world = await explain_reading.read(
                    self._api, target, driver=self._driver, namespace=self._namespace
                )
        except TimeoutError:
            return Explanation(error=f"the API server has not answered within {TIMEOUT_SECONDS:g} s")
        except errors.DrawbarError as error:
            return Explanation(error=str(error))
        finally:
            self._waiting -= 1
        return Explanation(
            findings=tuple(
                Finding(
                    severity=finding.severity.value,
                    subject=finding.subject,
                    message=finding.message,
                    remedy=finding.remedy,
                )
                for finding in diagnosis.explain(world).findings
            )
        )
