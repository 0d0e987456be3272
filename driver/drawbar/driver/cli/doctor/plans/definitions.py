"""Whether the custom kinds in the cluster are those that this program was written for; pure.

The program's own types tell: a field that they have and the schema lacks is dropped by the API server without a word, and
what the schema has beyond them was written for a newer program.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from drawbar.driver.api import attachments, fabrics, meta
from drawbar.driver.cli.doctor import findings, objects
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity, Unread
from drawbar.driver.cli.doctor.observed import Reading

VERSION = "v1alpha1"
FABRICS = "fabrics.drawbar.dev"
ATTACHMENTS = "deviceattachments.drawbar.dev"
_SELECTABLE = ".spec.driver"
_APPLY = (
    "apply the CRDs of this version (deploy/drawbar/crds/); Helm does not change CRDs that are there already"
)


class _Part(NamedTuple):
    """One of the two halves of an object, and the type that it is read into."""

    name: str
    type: type[meta.Struct]


KINDS: Mapping[str, tuple[_Part, ...]] = {
    FABRICS: (_Part("spec", fabrics.FabricSpec), _Part("status", fabrics.FabricStatus)),
    ATTACHMENTS: (_Part("spec", attachments.AttachmentSpec), _Part("status", attachments.AttachmentStatus)),
}


def plan(
    known: Mapping[str, Reading[objects.Definition | None]], *, selectable: bool = True
) -> Iterator[Finding]:
    """A finding for everything that is wrong with each of our kinds, or that it is well.

    Args:
        known: our kinds by name.
        selectable: this API server can select objects by a field of ours.
    """
    for name in KINDS:
        definition = known[name]
        if isinstance(definition, Unread):
            yield findings.unread(Check.SERVER_DEFINITION, definition)
            continue
        complaints = list(_complaints(name, definition, selectable))
        yield from complaints or [
            findings.ok(
                Check.SERVER_DEFINITION,
                f"CRD {name}",
                f"{VERSION} is served, with the schema of this program",
            )
        ]


def _complaints(name: str, definition: objects.Definition | None, selectable: bool) -> Iterator[Finding]:
    if definition is None:
        yield _error(name, "does not exist", "apply deploy/drawbar/crds/, or install the chart")
        return
    version = next((one for one in definition.spec.versions if one.name == VERSION), None)
    if version is None or not version.served:
        yield _error(name, f"does not serve {VERSION}", _APPLY)
        return
    if not meta.is_true(definition.status.conditions or (), "Established"):
        yield _error(
            name,
            "is not established: the API server does not serve it yet, or refuses it",
            f"kubectl describe crd {name}, and mend what it says",
        )
    if "status" not in version.subresources:
        yield _error(name, "has no status subresource, so no status can be written", _APPLY)
    if selectable and {"jsonPath": _SELECTABLE} not in version.selectable_fields:
        yield _error(
            name, f"has no selectable field {_SELECTABLE}, so the controller cannot ask for its own", _APPLY
        )
    yield from _fields(name, version)


def _fields(name: str, version: objects.DefinitionVersion) -> Iterator[Finding]:
    ours = {path for part in KINDS[name] for path in paths(part)}
    theirs, open_ = schema_paths(version.schema.get("openAPIV3Schema", {}))
    lost = sorted(path for path in ours - theirs if not any(path.startswith(one) for one in open_))
    if lost:
        yield _error(
            name,
            f"is older than this program: the API server drops {findings.listed(lost)} without a word",
            _APPLY,
        )
    # Below the two halves nothing is ours to know.
    newer = sorted(path for path in theirs - ours if path.startswith(("spec.", "status.")))
    if newer:
        yield Finding(
            check=Check.SERVER_DEFINITION,
            severity=Severity.WARNING,
            subject=f"CRD {name}",
            message=f"is newer than this program, which does not know {findings.listed(newer)}",
            remedy="run the doctor, and the daemons, of the version that the CRDs are of",
        )


def _error(name: str, message: str, remedy: str) -> Finding:
    return Finding(
        check=Check.SERVER_DEFINITION,
        severity=Severity.ERROR,
        subject=f"CRD {name}",
        message=message,
        remedy=remedy,
    )


def paths(part: _Part) -> frozenset[str]:
    """Every field that this program knows, as `spec.policy.models[].model`."""
    return frozenset(_below(part.name, msgspec.inspect.type_info(part.type)))


def _below(path: str, known: msgspec.inspect.Type) -> Iterator[str]:
    match known:
        case msgspec.inspect.StructType(fields=fields):
            for field in fields:
                yield f"{path}.{field.encode_name}"
                yield from _below(f"{path}.{field.encode_name}", field.type)
        case msgspec.inspect.VarTupleType(item_type=item):
            yield from _below(f"{path}[]", item)
        case msgspec.inspect.UnionType(types=types):
            for one in types:
                yield from _below(path, one)
        case _:
            return


def schema_paths(schema: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """The same of a schema; and the paths below which it takes anything."""
    found, open_ = set(), set()
    for path, node in _walk("", schema):
        found.add(path)
        if node.get("x-kubernetes-preserve-unknown-fields"):
            open_.add(path)
    return frozenset(found), frozenset(open_)


def _walk(path: str, node: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if path and not path.endswith("[]"):
        yield path, node
    for name, child in (node.get("properties") or {}).items():
        yield from _walk(f"{path}.{name}".lstrip("."), child)
    if isinstance(node.get("items"), dict):
        yield from _walk(f"{path}[]", node["items"])
