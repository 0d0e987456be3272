"""The choice of a sink by the standard environment variables of OpenTelemetry."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from drawbar.driver import errors
from drawbar.driver.tracing import spans

EXPORTER = "OTEL_TRACES_EXPORTER"
DISABLED = "OTEL_SDK_DISABLED"
PACKAGES = "opentelemetry"


def is_on(environment: Mapping[str, str]) -> bool:
    """Return whether the environment asks for traces.

    Raises:
        errors.UsageError: it names an exporter that Drawbar does not have.
    """
    exporter = environment.get(EXPORTER, "").strip().lower()
    if exporter not in ("", "none", "otlp"):
        raise errors.UsageError(
            f"{EXPORTER}={exporter!r} is not an exporter of Drawbar: set it to otlp or none"
        )
    return exporter == "otlp" and environment.get(DISABLED, "").strip().lower() != "true"


class Switch:
    """A sink that drops all spans, except while it is on.

    Args:
        service: the name of the service, unless OTEL_SERVICE_NAME names another.
        environment: the environment variables.

    Attributes:
        wanted: whether the environment asks for traces.

    Raises:
        errors.UsageError: a variable is wrong.
    """

    def __init__(self, service: str, environment: Mapping[str, str]) -> None:
        self._service, self._environment = service, environment
        self.wanted = is_on(environment)
        self._sink: spans.Sink = spans.Off()

    def export(self, span: spans.Span) -> None:
        """Take a span, as `spans.Sink` specifies."""
        self._sink.export(span)

    @contextlib.asynccontextmanager
    async def exporting(self) -> AsyncIterator[None]:
        """Send spans to the collector while the context lasts, if the environment asks for it.

        Raises:
            errors.UsageError: the packages for it are not installed.
        """
        if not self.wanted:
            yield
            return
        try:
            from drawbar.driver.tracing import otlp
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != PACKAGES:
                raise
            raise errors.UsageError(
                f"{EXPORTER}=otlp needs more packages: pip install 'drawbar[tracing]', or unset it"
            ) from error
        sink = otlp.Otlp(self._service, self._environment)
        self._sink = sink
        try:
            yield
        finally:
            self._sink = spans.Off()
            await asyncio.to_thread(sink.close)
