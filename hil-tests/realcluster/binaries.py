"""The binaries of one Kubernetes release: where they are, which are missing, and which release they are."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from realcluster import errors

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
KUBELET = "kubelet"
VERSION_SECONDS = 60.0
_VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Release:
    """A version of Kubernetes or etcd."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def name(self) -> str:
        """Return the release without the patch, such as `1.36`."""
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str) -> "Release":
        """Return the first version in what a program prints for `--version`.

        Raises:
            errors.Unavailable: there is none.
        """
        match = _VERSION.search(text)
        if match is None:
            raise errors.Unavailable(f"no version is in {text[:200]!r}: is this a release's binary?")
        return cls(major=int(match[1]), minor=int(match[2]), patch=int(match[3]))


OLDEST_ETCD = Release(major=3, minor=5)
"""Older ones send no progress notifications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """The programs of one release.

    Attributes:
        folder: the directory that was named.
        release: of the API server.
        etcd: the path of etcd, in the folder or on PATH.
        etcd_release: its version.
        has_kubelet: whether the kubelet's binary is there.
    """

    folder: Path
    release: Release
    etcd: Path
    etcd_release: Release
    has_kubelet: bool

    def path(self, name: str) -> Path:
        """Return the path of a program."""
        return self.etcd if name == "etcd" else self.folder / name


def describe_missing(present: Iterable[str], wanted: Iterable[str] = CONTROL_PLANE) -> str:
    """Return one line that names the programs that are not present; empty if none is missing."""
    names = [name for name in wanted if name not in set(present)]
    if not names:
        return ""
    there = "is not there" if len(names) == 1 else "are not there"
    return (
        f"{', '.join(names)} {there}: docs/development/checks.md says where to get the binaries of a release"
    )


def find(folder: Path, search: str | None = None) -> Binaries:
    """Look for the binaries of a release.

    Args:
        folder: where the programs of Kubernetes are.
        search: where etcd may be beside, as in PATH; None: the environment's PATH.

    Raises:
        errors.Unavailable: the folder or a program of the control plane is missing.
    """
    if not folder.is_dir():
        raise errors.Unavailable(f"{folder} is no directory: set KUBERNETES_BIN to the one with the binaries")
    present = {name for name in (*CONTROL_PLANE, KUBELET) if os.access(folder / name, os.X_OK)}
    elsewhere = None if "etcd" in present else shutil.which("etcd", path=search)
    if elsewhere is not None:
        present.add("etcd")
    if line := describe_missing(present):
        raise errors.Unavailable(f"in {folder} {line}")
    etcd = folder / "etcd" if elsewhere is None else Path(elsewhere)
    etcd_release = _version(etcd)
    if etcd_release < OLDEST_ETCD:
        raise errors.Unavailable(
            f"{etcd} is {etcd_release}: etcd {OLDEST_ETCD.name} or later is needed, for watches that begin with the list"
        )
    return Binaries(
        folder=folder,
        release=_version(folder / "kube-apiserver"),
        etcd=etcd,
        etcd_release=etcd_release,
        has_kubelet=KUBELET in present,
    )


def _version(program: Path) -> Release:
    try:
        done = subprocess.run(
            [str(program), "--version"], check=True, capture_output=True, text=True, timeout=VERSION_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise errors.Unavailable(f"{program} --version fails: {error}: is it for this machine?") from error
    return Release.parse(done.stdout)
