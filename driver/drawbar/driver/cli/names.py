"""The names of a cluster's objects for completion: within a second, bounded in number, and none after any error."""

import argparse
import asyncio
import contextlib
import io
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from drawbar.driver import errors
from drawbar.driver.cli import completion, flags, shell
from drawbar.driver.kube import client, kinds
from drawbar.driver.kube import errors as kube_errors

SECONDS = 1.0
READ_MAX = 1000
OFFERED_MAX = 200
_KINDS = {
    "fabric": (kinds.FABRIC,),
    "attachment": (kinds.ATTACHMENT,),
    "node": (kinds.NODE,),
    "claim": (kinds.CLAIM,),
    "pod": (kinds.POD,),
    "rule": kinds.TAINT_RULES,
}


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _SliceSpec(msgspec.Struct, frozen=True):
    driver: str = ""
    pool: _Named = _Named()
    devices: tuple[_Named, ...] = ()


class _Mapping(msgspec.Struct, frozen=True):
    host: str = ""


class _Status(msgspec.Struct, rename="camel", frozen=True):
    mapped_hosts: tuple[_Mapping, ...] = ()


class _Item(msgspec.Struct, frozen=True):
    """The parts of any object that have names."""

    metadata: _Named
    spec: _SliceSpec = _SliceSpec()
    status: _Status = _Status()


class _Answer(msgspec.Struct, frozen=True):
    items: tuple[_Item, ...] = ()


def find(wanted: completion.Wanted, typed: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the wanted objects in the cluster that the typed flags select, sorted.

    Args:
        wanted: the kind and the typed part of the name.
        typed: the words before the last one.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        args = _read_flags(typed)
        found = asyncio.run(_list(args, wanted.kind)) if args is not None else ()
    except (errors.DrawbarError, TimeoutError, msgspec.MsgspecError, OSError):
        return ()
    finally:
        logging.disable(before)
    return tuple(sorted({name for name in found if name.startswith(wanted.start)})[:OFFERED_MAX])


def _read_flags(typed: Sequence[str]) -> argparse.Namespace | None:
    """Return the flags for the cluster, or None if one has no value."""
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_cluster(shared)
    flags.add_driver(shared)
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            return shared.parse_known_args(list(typed))[0]
        except SystemExit:
            return None


async def _list(args: argparse.Namespace, kind: str) -> Iterable[str]:
    async with asyncio.timeout(SECONDS), shell.connecting(args) as session:
        if kind in ("device", "enclosure"):
            driver = shell.driver(args)
            slices = await _read(session.api, kinds.SLICE, {"fieldSelector": f"spec.driver={driver}"})
            pools = [item.spec for item in slices if item.spec.driver == driver]
            if kind == "enclosure":
                return [spec.pool.name for spec in pools]
            return [
                name
                for spec in pools
                for device in spec.devices
                for name in (device.name, f"{spec.pool.name}/{device.name}")
            ]
        if kind == "host":
            listed = await _read(session.api, kinds.FABRIC, {})
            return [each.host for item in listed for each in item.status.mapped_hosts]
        for version in _KINDS[kind]:
            namespace = session.namespace if version.namespaced else None
            with contextlib.suppress(kube_errors.NotFound):
                listed = await _read(session.api, version, {}, namespace, accept=client.METADATA)
                return [item.metadata.name for item in listed]
    return ()


async def _read(
    api: client.Client,
    kind: kinds.Kind,
    query: dict[str, Any],
    namespace: str | None = None,
    accept: str = client.JSON,
) -> tuple[_Item, ...]:
    path = kind.path(namespace=namespace)
    body = await api.request("GET", path, query | {"limit": str(READ_MAX)}, accept=accept)
    return msgspec.json.decode(body, type=_Answer).items
