"""The operator's fabric: a configuration file, or a Fabric object of the cluster with its Secret.

The file is YAML in the strict form of a Fabric's `spec`, with `credentialFiles` in place of `credentialsSecretRef`.
This maps each key of such a Secret to the path of a file, relative to the configuration file. The user owns the
endpoint and the credentials, so the file names no origins. A Secret of the cluster is sent only to its own origins.
"""

import asyncio
import base64
import difflib
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from drawbar.driver import errors
from drawbar.driver.api import attachments, core, fabrics
from drawbar.driver.cli import objects
from drawbar.driver.cli.fabric.observed import Cluster, Source
from drawbar.driver.controller.fabrics import credentials
from drawbar.driver.kube import client, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.fabric import contract

_HALF = re.compile("[\ud800-\udfff]")
LIMIT_BYTES = 1024 * 1024
SECRET_LIMIT_BYTES = 64 * 1024
TIMEOUT_SECONDS_MAX = 3600


class _FileSpec(fabrics.FabricSpec, frozen=True):
    """The content of a configuration file; `credentials_secret_ref` is refused."""

    credential_files: Mapping[str, str] = MappingProxyType({})


def from_file(path: Path) -> Source:
    """Return the fabric of a configuration file.

    Raises:
        UsageError: the file has mistakes; the message has a sentence for each and quotes no value.
    """
    content = _document(path)
    problems = list(_problems(content))
    if problems:
        raise _mistakes(path, problems)
    spec = msgspec.convert(content, _FileSpec)
    if not 1 <= spec.timeout_seconds <= TIMEOUT_SECONDS_MAX:
        problems.append(f"timeoutSeconds is out of range; give 1 to {TIMEOUT_SECONDS_MAX}")
    data: dict[str, str] = {}
    for key, name in spec.credential_files.items():
        try:
            data[key] = base64.b64encode(_read(path.parent / name, SECRET_LIMIT_BYTES)).decode()
        except errors.UsageError as error:
            problems.append(f"credentialFiles.{key}: {error}")
    adapter_credentials, wrong = credentials.parse(data)
    problems += [f"credentialFiles: {problem}" for problem in wrong]
    if problems:
        raise _mistakes(path, problems)
    return Source(name=str(path), spec=spec, credentials=adapter_credentials)


async def from_cluster(api: client.Client, name: str, namespace: str) -> Source:
    """Return the fabric of a Fabric object.

    Args:
        api: the cluster's API server.
        name: the Fabric's name.
        namespace: the controller's namespace, with the Fabric's Secret.

    Raises:
        DrawbarError: there is no such Fabric, or it or its Secret cannot be read or used.
    """
    try:
        fabric = await api.read(kinds.FABRIC, name, into=fabrics.Fabric)
    except kube_errors.NotFound as error:
        raise objects.Missing(
            f"there is no Fabric {name}; `kubectl get fabrics` lists them, --config FILE needs none"
        ) from error
    nodes, listed = await asyncio.gather(
        api.list_all(kinds.NODE, into=core.Node),
        api.list_all(kinds.ATTACHMENT, into=attachments.DeviceAttachment),
    )
    of_fabric = tuple(item for item in listed.items if item.spec.fabric == name)
    cluster = Cluster(fabric=fabric, nodes=tuple(nodes.items), attachments=of_fabric)
    reference = fabric.spec.credentials_secret_ref
    adapter_credentials = contract.Credentials()
    if reference is not None:
        recipient = credentials.Recipient.from_spec(name, fabric.spec)
        adapter_credentials = await _secret(api, reference.name, namespace, recipient)
    return Source(name=name, spec=fabric.spec, credentials=adapter_credentials, cluster=cluster)


async def _secret(
    api: client.Client, name: str, namespace: str, recipient: credentials.Recipient
) -> contract.Credentials:
    where = f"Secret {namespace}/{name}"
    try:
        secret = await api.read(kinds.SECRET, name, into=core.Secret, namespace=namespace)
    except kube_errors.NotFound as error:
        raise errors.DrawbarError(
            f"{where} of the Fabric does not exist; create it, or name the controller's namespace with --daemons"
        ) from error
    except kube_errors.Denied as error:
        raise errors.DrawbarError(
            f"you may not read {where}, which has the credentials of the Fabric; get that permission, or use --config FILE"
        ) from error
    outcome = credentials.choose(name, namespace, secret, recipient)
    if isinstance(outcome, credentials.Unusable):
        raise errors.DrawbarError(outcome.message)
    return outcome


def _mistakes(path: Path, problems: list[str]) -> errors.UsageError:
    return errors.UsageError("\nerror: ".join(f"{path}: {problem}" for problem in problems))


def _read(path: Path, limit_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(limit_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a path"
        raise errors.UsageError(f"cannot read {path}: {reason}; name a file that you may read") from error
    if len(content) > limit_bytes:
        raise errors.UsageError(f"{path} has more than {limit_bytes} bytes; name the right file")
    return content


def _document(path: Path) -> dict[str, Any]:
    import yaml

    text = _read(path, LIMIT_BYTES)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        mistakes = list(_complaints(root, set()))
        content = yaml.safe_load(text) if not mistakes else {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark is not None else "the file"
        # The parser's own message may quote a secret.
        raise errors.UsageError(f"{path}: {line} is not YAML; write `key: value` lines") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise errors.UsageError(f"{path}: this is not YAML; write `key: value` lines") from error
    if mistakes:
        raise _mistakes(path, mistakes)
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise errors.UsageError(f"{path}: the file holds no keys with values; write those of a Fabric's spec")
    return content


def _complaints(node: Any, seen: set[int]) -> Iterator[str]:
    """Yield a sentence for each repeated key in a mapping, and for each text with an incomplete character."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if getattr(node, "id", "") == "scalar" and _HALF.search(node.value):
        yield f"line {node.start_mark.line + 1}: a text has half a character, such as \\ud800; write the whole one"
    if getattr(node, "id", "") == "sequence":
        for entry in node.value:
            yield from _complaints(entry, seen)
    if getattr(node, "id", "") != "mapping":
        return
    keys: set[str] = set()
    for key, value in node.value:
        yield from _complaints(key, seen)
        if key.id == "scalar" and not _HALF.search(key.value):
            if key.value in keys:
                yield f"line {key.start_mark.line + 1}: the key {key.value} appears twice; remove one of them"
            keys.add(key.value)
        yield from _complaints(value, seen)


def _problems(content: dict[str, Any]) -> Iterator[str]:
    if "spec" in content and "kind" in content:
        yield "this is an object of the cluster; write only the content of its spec"
        return
    fields = {entry.encode_name: entry for entry in msgspec.structs.fields(_FileSpec)}
    if "credentialsSecretRef" in content:
        yield (
            "credentialsSecretRef needs a cluster; write credentialFiles, with a path for each of "
            f"{', '.join(credentials.KEYS)} that there is"
        )
    yield from (
        f"{name} is missing; add it"
        for name, entry in fields.items()
        if entry.required and name not in content
    )
    yield from _unknown(_FileSpec, content, "")
    for name in sorted(fields.keys() & content.keys() - {"credentialsSecretRef"}):
        try:
            msgspec.convert(content[name], fields[name].type)
        except msgspec.ValidationError as error:
            reason = str(error).replace("`$", f"`{name}").replace(" - at", " at")
            yield f"{name}: {reason[:1].lower()}{reason[1:]}; correct it"


def _unknown(kind: Any, content: Any, where: str) -> Iterator[str]:
    """Yield a sentence for each key that a struct does not have."""
    if isinstance(content, list):
        entries = [inner for inner in typing.get_args(kind) if inner is not Ellipsis]
        for number, entry in enumerate(content if entries else []):
            yield from _unknown(entries[0], entry, f"{where.rstrip('.')}[{number}].")
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(content, dict)):
        return
    fields = {entry.encode_name: entry.type for entry in msgspec.structs.fields(kind)}
    for key, value in content.items():
        if key in fields:
            yield from _unknown(fields[key], value, f"{where}{key}.")
            continue
        near = difflib.get_close_matches(str(key), fields, n=1)
        if key in credentials.KEYS:
            remedy = "write it into a file, and the file's path below credentialFiles"
        else:
            remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(fields))}"
        yield f"{where}{key} is not a setting; {remedy}"
