"""An adapter whose errors do not show its credentials, and whose defects do not end the controller.

Managers and adapters quote their input in a refusal. Their words go into conditions, Events and logs, so they pass
through here first.

Adapters are foreign code. Their callers know only the closed set of `drawbar.fabric.errors`. So any other exception
becomes one of them here, the only place that catches everything.
"""

import dataclasses
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from drawbar.fabric import contract, errors, wrapping

log = logging.getLogger(__name__)

DEFECT = "ADAPTER_DEFECT"
"""The reason of an error outside of the contract: the adapter's vendor must act."""


class AdapterClass(Protocol):
    """An adapter's class, or a stand-in for one."""

    def validate(self, config: contract.AdapterConfig) -> None:
        """Validate as in `contract.FabricAdapter.validate`."""
        ...

    async def connect(self, config: contract.AdapterConfig) -> contract.FabricAdapter:
        """Connect as in `contract.FabricAdapter.connect`, and return the adapter."""
        ...


AdapterOf = Callable[[str], AdapterClass]
"""A function from an adapter's name to its class; it raises `fabric.errors.InvalidConfiguration` if there is none."""


class RedactingAdapter(wrapping.WrappingAdapter):
    """Another adapter, with no secrets in its errors, and only errors of the set.

    Its calls raise `errors.Unavailable` with the reason `DEFECT` if the adapter raised anything else.
    """

    def __init__(
        self, adapter: contract.FabricAdapter, credentials: contract.Credentials, *, fabric: str, name: str
    ) -> None:
        """Wrap an adapter.

        Args:
            adapter: the wrapped adapter.
            credentials: the credentials of its connection.
            fabric: the Fabric's name, for the log.
            name: the adapter's name, for messages.
        """
        super().__init__(adapter)
        self._credentials = credentials
        self._fabric = fabric
        self._name = name

    @asynccontextmanager
    async def _guard(self, call: str) -> AsyncIterator[None]:
        del call
        try:
            yield
        except errors.FabricError as error:
            clean(error, self._credentials)
            raise
        except Exception as error:  # noqa: BLE001 -- foreign code, and nothing of it is lost
            # Without its cause, which may quote its input; the log has the cause, redacted.
            raise defect(error, self._credentials, fabric=self._fabric, name=self._name) from None

    async def devices(self) -> contract.Inventory:
        """Return the devices as in the contract, without secrets in the sentences."""
        inventory = await super().devices()
        return dataclasses.replace(
            inventory,
            unread=contract.bound_sentences(map(self._credentials.redact, inventory.unread)),
            oddities=contract.bound_sentences(map(self._credentials.redact, inventory.oddities)),
        )

    def _translate(self, operation: contract.Operation) -> contract.Operation:
        if operation.error is None:
            return operation
        redacted = self._credentials.redact
        cleaned = dataclasses.replace(
            operation.error,
            message=redacted(operation.error.message),
            vendor={key: redacted(value) for key, value in operation.error.vendor.items()},
        )
        return dataclasses.replace(operation, error=cleaned)


def clean(error: errors.FabricError, credentials: contract.Credentials) -> None:
    """Remove the secrets from an error's words."""
    error.message = credentials.redact(error.message)
    error.args = (error.message,)
    error.vendor = {key: credentials.redact(value) for key, value in error.vendor.items()}


def defect(
    error: Exception, credentials: contract.Credentials, *, fabric: str, name: str
) -> errors.Unavailable:
    """Return the contract's error for an exception that no adapter may raise; log its traceback without the credentials.

    Whether the call had an effect is unknown: it may have failed before it asked the manager, or over the answer.
    """
    text = credentials.redact("".join(traceback.format_exception(error)))
    log.error("the fabric adapter failed", extra={"fabric": fabric, "traceback": text})
    message = f"the adapter {name} failed with {type(error).__name__}; tell its vendor"
    return errors.Unavailable(message, reason=DEFECT, side_effects_unknown=True)
