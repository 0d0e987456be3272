"""The two OData documents and the headers that every Redfish service has (DSP0266); pure."""

from collections.abc import Iterable, Mapping

from drawbar.mocks.redfish.tree import ROOT, Body, Tree

SERVICE = f"{ROOT}/odata"
METADATA = f"{ROOT}/$metadata"
VERSION = "4.0"
_SCHEMAS = "http://redfish.dmtf.org/schemas/v1"


def service_document(tree: Tree) -> Body:
    """Return the OData service document: the resources below the service root."""
    links = {name: value for name, value in tree[ROOT].items() if isinstance(value, dict)}
    entries = [
        {"name": name, "kind": "Singleton", "url": value["@odata.id"]}
        for name, value in {"Service": {"@odata.id": f"{ROOT}/"}, **links}.items()
        if "@odata.id" in value
    ]
    return {"@odata.context": METADATA, "value": entries}


def metadata(tree: Tree) -> str:
    """Return the OData metadata document: a reference for each schema that a resource is of."""
    references = "".join(
        f'<edmx:Reference Uri="{_SCHEMAS}/{_file(name)}.xml">'
        + "".join(f'<edmx:Include Namespace="{namespace}"/>' for namespace in sorted(namespaces))
        + "</edmx:Reference>"
        for name, namespaces in sorted(_namespaces(tree).items())
    )
    root = str(tree[ROOT]["@odata.type"]).removeprefix("#").rpartition(".")[0]
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">'
        f"{references}<edmx:DataServices>"
        '<Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">'
        f'<EntityContainer Name="Service" Extends="{root}.ServiceContainer"/>'
        "</Schema></edmx:DataServices></edmx:Edmx>"
    )


def headers(body: Mapping[str, object] | None, *, status: int, allowed: Iterable[str]) -> dict[str, str]:
    """Return the headers of an answer.

    Args:
        body: of the resource that is read; None for other requests.
        status: of HTTP.
        allowed: the methods that the resource has; of answers that name them.
    """
    named = {"OData-Version": VERSION, "Cache-Control": "no-cache"}
    if body is not None and "@odata.type" in body:
        kind = str(body["@odata.type"]).removeprefix("#").rpartition(".")[0]
        named["Link"] = f"<{_SCHEMAS}/{kind}.json>; rel=describedby"
    if body is not None or status == 405:
        named["Allow"] = ", ".join(allowed)
    if status == 401:
        named["WWW-Authenticate"] = 'Basic realm="Redfish"'
    return named


def _namespaces(tree: Tree) -> dict[str, set[str]]:
    """Return the namespaces in use by the name of their schema."""
    listed: dict[str, set[str]] = {}
    for uri in tree:
        namespace = str(tree[uri]["@odata.type"]).removeprefix("#").rpartition(".")[0]
        name = namespace.partition(".")[0]
        listed.setdefault(name, {name}).add(namespace)
    return listed


def _file(name: str) -> str:
    return name if name.endswith("Collection") else f"{name}_v1"
