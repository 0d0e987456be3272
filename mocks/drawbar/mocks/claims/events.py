"""Events about pods, as the real components record them.

Source: Kubernetes API reference, `events.k8s.io/v1` Event. Unlike the real recorders, equal events are not merged into
a series.
"""

import datetime
import logging
import secrets
from collections.abc import Callable
from typing import Any

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import client, errors, kinds

log = logging.getLogger(__name__)

NOTE_LIMIT_CHARS = 1024


class Recorder:
    """Writes the events of one component. An event that cannot be written is logged and dropped, as in Kubernetes."""

    def __init__(self, api: client.Client, *, component: str, clock: Callable[[], datetime.datetime]) -> None:
        self._api = api
        self._component = component
        self._clock = clock

    async def record(
        self,
        about: documents.Document,
        *,
        kind: str,
        reason: str,
        note: str,
        action: str,
        warning: bool = False,
    ) -> None:
        """Create an event about the object; `kind` is its kind, which list items do not contain."""
        namespace = about.metadata.namespace or "default"
        body: dict[str, Any] = {
            "apiVersion": kinds.EVENT.api_version,
            "kind": kinds.EVENT.kind,
            "metadata": {"name": f"{about.metadata.name}.{secrets.token_hex(8)}", "namespace": namespace},
            "eventTime": self._clock().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._component,
            "reportingInstance": f"{self._component}-double",
            "action": action,
            "reason": reason,
            "regarding": {
                "apiVersion": "v1",
                "kind": kind,
                "namespace": about.metadata.namespace,
                "name": about.metadata.name,
                "uid": about.metadata.uid,
            },
            "note": note[:NOTE_LIMIT_CHARS],
            "type": "Warning" if warning else "Normal",
        }
        try:
            await self._api.create(kinds.EVENT, body, into=dict[str, Any], namespace=namespace)
        except errors.KubeError as error:
            log.warning("event lost: %s", error, extra={"reason": reason, "object": about.full_name})
