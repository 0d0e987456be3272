"""The archive of `drawbar report` and its files. `missing.txt` names the objects that could not be read."""

import datetime
import io
import json
import os
import tarfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich import console

from drawbar.driver import errors
from drawbar.driver.api import core
from drawbar.driver.cli import documents, objects, remedies
from drawbar.driver.cli.doctor import observation, observed, plan
from drawbar.driver.cli.doctor import report as doctor_report
from drawbar.driver.cli.status import building, document, reading, views
from drawbar.driver.kube import client, kinds, sessions
from drawbar.driver.kube import errors as kube_errors

CONTENT = "names of objects, users' annotations and the daemons' logs are in it as they are, and no Secret"
LOGS_MOST = 30
LOG_LINES = 5000
LOG_BYTES = 2 * 1024 * 1024
RECORDING_BYTES = 256 * 1024 * 1024
WIDTH = 160
OBJECTS = (kinds.FABRIC, kinds.ATTACHMENT, kinds.MAINTENANCE, kinds.HEALTH_POLICY)
Files = dict[str, bytes]


async def collect(connection: sessions.Connection, where: observed.Where) -> Files:
    """Return the files by name.

    Raises:
        errors.DrawbarError: the API server does not answer.
    """
    files: Files = {"version.txt": f"drawbar {metadata.version('drawbar')}\n".encode()}
    missing: list[str] = []

    async def attempt(what: str, work: Callable[[], Awaitable[Files]]) -> None:
        try:
            files.update(await work())
        except kube_errors.KubeError as error:
            missing.append(f"{what}: {remedies.sentence(error)}")
        except errors.DrawbarError as error:
            missing.append(f"{what}: {error}")

    # This raises if the API server does not answer.
    found = await observation.observe(connection, where)
    listed = plan.plan(found)
    about = {"server": found.server, "version": found.version, "driver": where.driver}
    files["doctor.json"] = _json("Diagnosis", doctor_report.document(listed, about))
    files["doctor.txt"] = _text(lambda out: doctor_report.show(out, listed))
    async with client.connecting(connection) as api:
        await attempt("status", lambda: _status(api, where.driver))
        for kind in OBJECTS:
            await attempt(kind.plural, lambda kind=kind: _objects(api, kind))  # type: ignore[misc]
        await attempt(
            "events", lambda: _objects(api, kinds.EVENT, fields=f"reportingController={where.driver}")
        )
        await attempt("logs", lambda: _logs(api, where.namespace, missing))
    if missing:
        files["missing.txt"] = "".join(f"{line}\n" for line in missing).encode()
    return files


async def _status(api: client.Client, driver: str) -> Files:
    cluster = await reading.read(api, objects.Target(), driver=driver)
    shown = building.build(cluster)
    now = datetime.datetime.now(datetime.UTC)
    return {
        "status.json": _json("Status", document.describe(shown, now)),
        "status.txt": _text(lambda out: views.show(out, shown, now=now, every=True, wide=True)),
    }


async def _objects(api: client.Client, kind: kinds.Kind, *, fields: str = "") -> Files:
    listing = await api.list_all(kind, into=dict, fields=fields)
    for item in listing.items:
        item.get("metadata", {}).pop("managedFields", None)
    return {f"objects/{kind.plural}.json": _json(f"{kind.kind}List", list(listing.items))}


async def _logs(api: client.Client, namespace: str, missing: list[str]) -> Files:
    """Return the end of the log of each of the daemons' pods."""
    files: Files = {}
    pods = (await api.list_all(kinds.POD, into=core.Pod, namespace=namespace)).items
    for pod in pods[:LOGS_MOST]:
        name = pod.metadata.name
        path = kinds.POD.path(namespace=namespace, name=name, subresource="log")
        query = {"tailLines": str(LOG_LINES), "limitBytes": str(LOG_BYTES), "timestamps": "true"}
        try:
            files[f"logs/{name}.log"] = bytes(await api.request("GET", path, query, accept="*/*"))
        except kube_errors.KubeError as error:
            missing.append(f"log of pod {name}: {remedies.sentence(error)}")
    if len(pods) > LOGS_MOST:
        missing.append(f"logs: {len(pods) - LOGS_MOST} more pods of namespace {namespace}")
    return files


def recordings(paths: Sequence[Path]) -> Files:
    """Return the files of recordings, by their names in the archive.

    Raises:
        errors.UsageError: one cannot be read, or they are too large.
    """
    files: Files = {}
    for path in paths:
        parts = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]
        for part in parts:
            try:
                content = part.read_bytes()
            except OSError as error:
                raise errors.UsageError(f"cannot read the recording {part}: {error.strerror}") from error
            files[f"recordings/{part.relative_to(path.parent)}"] = content
    if sum(map(len, files.values())) > RECORDING_BYTES:
        raise errors.UsageError(
            f"the recordings have more than {RECORDING_BYTES // 1024**2} MiB: leave one out of --recording"
        )
    return files


def write(path: Path, files: Mapping[str, bytes], *, now: datetime.datetime) -> None:
    """Write the archive with access for its owner only.

    Raises:
        errors.UsageError: the file exists, or cannot be written.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"drawbar-report/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(now.timestamp()), 0o600
            archive.addfile(entry, io.BytesIO(content))
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(packed.getvalue())
    except OSError as error:
        raise errors.UsageError(
            f"cannot write {path}: {error.strerror}: name another file with --to"
        ) from error


def _json(kind: str, content: Any) -> bytes:
    return (json.dumps(documents.document(kind, content), indent=1) + "\n").encode()


def _text(show: Callable[[console.Console], None]) -> bytes:
    buffer = io.StringIO()
    show(console.Console(file=buffer, width=WIDTH, highlight=False, markup=False, emoji=False))
    return buffer.getvalue().encode()
