"""Makes the self-contained program of a release, tries it, and packs it for kubectl's plugin manager krew.

    python release/program.py [--scie] FOLDER

The program is a PEX of what `deploy/image/install` installs, so it has the packages of the image, each with the hash that
was asked for, and no double. --scie puts an interpreter in, which is downloaded; without it
the program needs a Python of this minor version. It is for the operating system and the processor of this machine alone.

FOLDER gets `kubectl-drawbar_VERSION_linux_ARCH.tar.gz` with the program and the licence, and `kubectl-drawbar_VERSION_linux_ARCH.cdx.json`,
the bill of materials. Equal sources give equal files, but for what --scie downloads.

Source: docs.pex-tool.org; krew's developer guide, "Submitting plugins to Krew".
"""

import argparse
import gzip
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME = "kubectl-drawbar"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names, which krew uses, by those of the kernel."""
EPOCH = 1580601600
"""Seconds since 1970: the time of packed files, as in deploy/image/install."""
TRY_SECONDS = 120.0
# A scie's interpreter has a version of its own, so this asks for what a program can lack and not for how it was made.
PROBE = """
import importlib.util
from importlib import metadata

import grpc
import drawbar.driver.kube.kubeconfig
import drawbar.cdi, drawbar.fabric, drawbar.proto

adapters = {point.name: point.load() for point in metadata.entry_points(group="drawbar.fabric_adapters")}
assert adapters.keys() == {"grpc", "redfish"}, adapters
assert not metadata.entry_points(group="drawbar.commands")
assert importlib.util.find_spec("drawbar.mocks") is None, "the doubles are in it"
"""


class ProgramError(Exception):
    """The program could not be made, or does not work; says which step and why."""


def make(folder: Path, *, scie: bool) -> Path:
    """Write the archive and the bill of materials into the folder; return the archive.

    Raises:
        ProgramError: it could not be made, or does not work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="drawbar-program-") as name:
        work = Path(name)
        packages = work / "root"
        _run(sys.executable, ROOT / "deploy" / "image" / "install", packages)
        program = _pex(work, packages / "usr/local/lib/drawbar", scie=scie)
        try_out(program)
        archive = folder / f"{stem()}.tar.gz"
        _pack(archive, {NAME: (program, 0o755), "LICENSE": (ROOT / "LICENSE", 0o644)})
        shutil.copy(packages / "usr/local/share/drawbar/sbom.cdx.json", folder / f"{stem()}.cdx.json")
    return archive


def stem() -> str:
    """Return the name of the files for this machine, without an ending.

    Raises:
        ProgramError: no program is made for it.
    """
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    machine = platform.machine()
    if sys.platform != "linux" or machine not in ARCHITECTURES:
        raise ProgramError(
            f"no program is made for {sys.platform} on {machine}: run this on Linux, {' or '.join(ARCHITECTURES)}"
        )
    return f"{NAME}_{version}_linux_{ARCHITECTURES[machine]}"


def try_out(program: Path) -> None:
    """Run the program as a user does who has nothing but it.

    Raises:
        ProgramError: it does not start, lacks a part of Drawbar, or has the doubles.
    """
    with tempfile.TemporaryDirectory(prefix="drawbar-home-") as home:
        environment = {"HOME": home, "PATH": os.defpath, "LANG": "C.UTF-8"}

        def run(*words: str, status: int = 0, **more: str) -> str:
            command = [str(program), *words]
            done = subprocess.run(
                command,
                env=environment | more,
                cwd=home,
                capture_output=True,
                text=True,
                timeout=TRY_SECONDS,
                check=False,
            )
            if done.returncode != status:
                raise ProgramError(
                    f"{NAME} {' '.join(words)[:40]!r} ended with {done.returncode}, not {status}: {done.stderr[-800:]}"
                )
            return done.stdout + done.stderr

        run("-c", PROBE, PEX_INTERPRETER="1")
        for words, expected in (
            (("--help",), "status"),
            (("--version",), "drawbar "),
            (("status", "--help"), "usage: drawbar status"),
        ):
            if expected not in (text := run(*words)):
                raise ProgramError(f"{NAME} {' '.join(words)} printed {text[-400:]!r}")
        missing = str(Path(home) / "kubeconfig")
        text = run("status", "--kubeconfig", missing, status=2)
        if not text.startswith("error: ") or missing not in text or len(text.splitlines()) != 1:
            raise ProgramError(f"{NAME} status without a kubeconfig printed {text[-400:]!r}")


def _pex(work: Path, packages: Path, *, scie: bool) -> Path:
    python = work / "tools" / "bin" / "python"
    _run(sys.executable, "-m", "venv", work / "tools")
    _run(
        *(python, "-m", "pip", "--quiet", "install", "--disable-pip-version-check", "--require-hashes"),
        *("--only-binary=:all:", "-r", ROOT / "requirements-release.txt"),
    )
    file = work / f"{NAME}.pex"
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    # Sources and not distributions: these packages are resolved, and the folder has no lists of files.
    words = ["-D", packages, "-e", "drawbar.driver.main:main", "-o", file]
    words += ["--interpreter-constraint", f"CPython=={minor}.*"]
    words += ["--scie", "eager", "--scie-only"] if scie else []
    _run(work / "tools" / "bin" / "pex", *words)
    return work / NAME if scie else file


def _pack(archive: Path, files: dict[str, tuple[Path, int]]) -> None:
    """An archive of the files by name, each with its mode."""
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=EPOCH) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, (path, mode) in files.items():
            content = path.read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), mode, EPOCH
            tar.addfile(member, io.BytesIO(content))


def _run(*words: object) -> None:
    try:
        subprocess.run([str(word) for word in words], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ProgramError(
            f"{json.dumps([str(word) for word in words])} failed: {type(error).__name__}"
        ) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Make it, print the archive's name; return the exit status."""
    parser = argparse.ArgumentParser(prog="release/program.py", description="make the self-contained program")
    parser.add_argument("--scie", action="store_true", help="with an interpreter in it, which is downloaded")
    parser.add_argument("folder", type=Path, help="where the archive goes")
    options = parser.parse_args(arguments)
    try:
        archive = make(options.folder, scie=options.scie)
    except ProgramError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{archive}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
