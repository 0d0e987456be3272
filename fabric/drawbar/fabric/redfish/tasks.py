"""Running changes of the service, begun by any client: its tasks, each with its request.

A task names its request in `Payload` (Task 1.7). If a service hides it, or has no readable tasks, there is nothing
here; then such a change becomes visible only at its end.
"""

import logging
from dataclasses import dataclass

import msgspec

from drawbar.fabric import errors
from drawbar.fabric.redfish import documents, monitors
from drawbar.fabric.redfish.documents import Document
from drawbar.fabric.redfish.reading import Reader

_logger = logging.getLogger(__name__)

# The newest ones, at the end of the collection; the running ones are among them.
TASKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A request that the service is performing.

    Attributes:
        uris: the request's target, and all resources that it names.
    """

    task_uri: str
    uris: frozenset[str]


async def changes(reader: Reader) -> tuple[Change, ...]:
    """Return the running changes; none if the tasks cannot be read."""
    try:
        service_uri = reader.root.link("Tasks")
        service = await reader.get(service_uri) if service_uri is not None else None
        uri = service.link("Tasks") if service is not None else None
        listed = await reader.newest(uri, TASKS) if uri is not None else ()
    except errors.FabricError as error:
        _logger.info("the tasks of the Redfish service cannot be read", extra={"error": error.message})
        return ()
    return tuple(change for task in listed if (change := from_task(task)) is not None)


def from_task(task: Document) -> Change | None:
    """Return the change of a running task; None if it has ended, or does not show its request."""
    target = task.value("Payload", "TargetUri")
    if monitors.has_ended(task.body) or not isinstance(target, str) or not target:
        return None
    content = task.value("Payload", "JsonBody")
    try:
        body = msgspec.json.decode(content) if isinstance(content, str) and content else {}
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        body = {}
    return Change(task_uri=task.uri, uris=frozenset({documents.path(target), *documents.links_in(body)}))
