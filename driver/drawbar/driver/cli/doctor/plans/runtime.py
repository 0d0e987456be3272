"""Whether the container runtime's configuration lets containers have CDI devices; pure.

Source: containerd `docs/cri/config.md` (`enable_cdi`, `cdi_spec_dirs`; off by default before 2.0, whose own configuration is
version 3), CRI-O `crio.conf(5)` (`cdi_spec_dirs`; there is no switch).
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity

DEFAULT_DIRS = ("/etc/cdi", "/var/run/cdi")
_CONTAINERD = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_ON_SINCE_CONFIGURATION = 3
SUBJECT = "the container runtime"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a runtime's configuration.

    Attributes:
        runtime: containerd or cri-o.
        path: as the host has it.
        text: its content; empty where it could not be read.
        problem: why it could not be.
    """

    runtime: str
    path: str
    text: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configured:
    """What all files of one runtime say, the later ones last; None where none does."""

    runtime: str
    files: tuple[str, ...]
    enabled: bool | None = None
    spec_dirs: tuple[str, ...] | None = None
    version: int = 0


def plan(files: Sequence[File], cdi_dir: str, node_version: str) -> Iterator[Finding]:
    """Findings on the runtimes that are configured on this host.

    Args:
        files: in the order in which their runtime reads them.
        cdi_dir: where the node daemon writes.
        node_version: the runtime as the kubelet tells it, such as containerd://1.7.2; empty where that is not known.
    """
    parsed: dict[str, _Configured] = {}
    for file in files:
        known = parsed.get(file.runtime, _Configured(runtime=file.runtime, files=()))
        content = _content(file)
        if isinstance(content, str):
            yield Finding(
                check=Check.HOST_CDI,
                severity=Severity.UNCHECKED,
                subject=SUBJECT,
                message=f"{file.path} cannot be read: {content}",
                remedy="run this as root, or mend the file",
            )
            continue
        parsed[file.runtime] = _merged(known, file, content)
    in_use = [
        one for one in parsed.values() if not node_version or node_version.startswith(f"{one.runtime}:")
    ]
    for one in in_use:
        yield _judged(one, cdi_dir, node_version)


def _content(file: File) -> dict[str, Any] | str:
    if file.problem:
        return file.problem
    try:
        return tomllib.loads(file.text)
    except tomllib.TOMLDecodeError as error:
        return f"it is not TOML ({error})"


def _merged(known: _Configured, file: File, content: Mapping[str, Any]) -> _Configured:
    tables = (
        [_table(content, "plugins", name) for name in _CONTAINERD]
        if file.runtime == "containerd"
        else [_table(content, "crio", "runtime")]
    )
    enabled, dirs = known.enabled, known.spec_dirs
    for table in tables:
        if isinstance(table.get("enable_cdi"), bool):
            enabled = table["enable_cdi"]
        if isinstance(table.get("cdi_spec_dirs"), list):
            dirs = tuple(str(one) for one in table["cdi_spec_dirs"])
    version = content.get("version")
    return _Configured(
        runtime=file.runtime,
        files=(*known.files, file.path),
        enabled=enabled,
        spec_dirs=dirs,
        version=max(known.version, version if isinstance(version, int) else 0),
    )


def _table(content: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    found: Any = content
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _judged(one: _Configured, cdi_dir: str, node_version: str) -> Finding:
    where = ", ".join(one.files)
    if not _enabled(one, node_version):
        said = "says enable_cdi = false" if one.enabled is False else "does not say enable_cdi = true"
        return _error(
            f"{where} {said}, which containerd before 2.0 needs: containers do not get their devices",
            f'set enable_cdi = true in [plugins."{_CONTAINERD[0]}"], and restart containerd',
        )
    dirs = one.spec_dirs if one.spec_dirs is not None else DEFAULT_DIRS
    if _plain(cdi_dir) not in {_plain(known) for known in dirs}:
        return _error(
            f"{where} has it read CDI files in {', '.join(dirs) or 'no directory'}, and the node daemon writes them to "
            f"{cdi_dir}: containers do not get their devices",
            f"add {cdi_dir} to cdi_spec_dirs and restart {one.runtime}, or let cdiDir be one of those",
        )
    return findings.ok(Check.HOST_CDI, SUBJECT, f"{one.runtime} reads CDI files in {cdi_dir}, by {where}")


def _enabled(one: _Configured, node_version: str) -> bool:
    if one.runtime != "containerd":
        return True
    if one.enabled is not None:
        return one.enabled
    if node_version:
        return not node_version.removeprefix("containerd://").removeprefix("v").startswith(("0.", "1."))
    return one.version >= _ON_SINCE_CONFIGURATION


def _plain(path: str) -> PurePosixPath:
    """/var/run is /run on every distribution that a kubelet runs on."""
    found = PurePosixPath(path)
    return (
        PurePosixPath("/run") / found.relative_to("/var/run") if found.is_relative_to("/var/run") else found
    )


def _error(message: str, remedy: str) -> Finding:
    return Finding(
        check=Check.HOST_CDI, severity=Severity.ERROR, subject=SUBJECT, message=message, remedy=remedy
    )
