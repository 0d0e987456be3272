"""A connected adapter with a deadline, no secrets in its errors, and progress for long calls."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from drawbar.driver import errors
from drawbar.driver.cli import progress
from drawbar.driver.cli.fabric import observed
from drawbar.driver.controller.fabrics import redacting_adapter
from drawbar.fabric import contract, registry
from drawbar.fabric import errors as fabric_errors

CLOSE_SECONDS = 5.0

Connect = Callable[[contract.AdapterConfig], Awaitable[contract.FabricAdapter]]


class Failed(errors.DrawbarError):
    """The fabric manager refuses, fails, or is not reached."""


@contextlib.contextmanager
def translate_errors(subject: str) -> Iterator[None]:
    """Raise the errors of a fabric manager as errors for users."""
    try:
        yield
    except fabric_errors.InvalidConfiguration as error:
        raise errors.UsageError(
            "\nerror: ".join(f"{subject}: {problem}" for problem in error.problems)
        ) from error
    except fabric_errors.FabricError as error:
        unknown = " (whether it had an effect is unknown: list the devices before you try again)"
        raise Failed(
            f"{subject}: {error.reason}: {error.message}{unknown if error.side_effects_unknown else ''}"
        ) from error


def configuration(source: observed.Source) -> contract.AdapterConfig:
    """Return the adapter's configuration."""
    spec = source.spec
    return contract.AdapterConfig(
        name=source.name,
        endpoint=spec.endpoint,
        parameters=spec.parameters,
        timeout_seconds=spec.timeout_seconds,
        credentials=source.credentials,
        tls=contract.Tls(verify=spec.tls.verify, server_name=spec.tls.server_name),
        limits=spec.policy.limits.budget,
    )


@contextlib.asynccontextmanager
async def open_adapter(
    source: observed.Source, connect: Connect | None = None
) -> AsyncIterator[contract.FabricAdapter]:
    """Yield the connected adapter, reached by `connect` if given.

    Raises:
        DrawbarError: the configuration is wrong, or the fabric manager is not reached or refuses.
    """
    spec, credentials = source.spec, source.credentials
    config = configuration(source)
    with translate_errors(f"fabric {source.name}"):
        try:
            adapter_class = registry.adapter_class(spec.adapter)
            adapter_class.validate(config)
            async with progress.show_activity("connecting to the fabric manager"):
                inner = await (connect or adapter_class.connect)(config)
        except fabric_errors.InvalidConfiguration as error:
            raise fabric_errors.InvalidConfiguration(
                [credentials.redact(problem) for problem in error.problems]
            ) from None
        except fabric_errors.FabricError as error:
            redacting_adapter.clean(error, credentials)
            raise
        except Exception as error:  # noqa: BLE001 -- foreign code, which may raise anything
            raise redacting_adapter.defect(
                error, credentials, fabric=source.name, name=spec.adapter
            ) from None
        adapter = redacting_adapter.RedactingAdapter(
            inner, credentials, fabric=source.name, name=spec.adapter
        )
        try:
            yield adapter
        finally:
            with contextlib.suppress(fabric_errors.FabricError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await adapter.close()
