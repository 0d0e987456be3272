"""Container images as archives, made here: no registry is asked for one.

`busybox` needs nothing but Debian's package busybox-static. Drawbar's own image is built from deploy/image/Containerfile
by podman, without a container runtime, on a base of Debian packages; that takes minutes, so an archive may be named
instead.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from realcluster import errors

ARCHIVE = "IMAGE"
"""An archive of Drawbar's image, made before (podman save --format docker-archive)."""
SIMULATION_ARCHIVE = "SIMULATION_IMAGE"
"""An archive of the image with the doubles (podman build --target simulation)."""
BUILD_FLAGS = "PODMAN_BUILD"
"""Further flags for podman build, such as what the package index of this site needs."""
BUSYBOX = "localhost/busybox:1"
DRAWBAR = "localhost/drawbar:real"
SIMULATION = "localhost/drawbar-simulation:real"
BASE = "localhost/drawbar-base:real"
APPLETS = ("sh", "cat", "ls", "head", "sleep", "env", "id")
PACKAGES = "python3,python3-venv,python3-pip,libudev1,ca-certificates"
SUITE = "bookworm"
"""Its Python is 3.11, as that of the Containerfile's base."""
BUILD_SECONDS = 1200
CHECKOUT = Path(__file__).parents[2]


def busybox(path: Path) -> Path:
    """Write an archive of an image with busybox and nothing else; it serves for sandboxes too.

    Raises:
        errors.Unavailable: there is no busybox.
    """
    program = shutil.which("busybox")
    if program is None:
        raise errors.Unavailable("busybox is not there: apt-get install busybox-static")
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(program, "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for name in ("dev", "etc", "proc", "sys", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
    _write(path, BUSYBOX, layer.getvalue())
    return path


def _write(path: Path, name: str, layer: bytes) -> None:
    """Write an image of one layer, as `docker save` does."""
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    configuration = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            # A sandbox's first process, which has to stay.
            "config": {"Env": ["PATH=/bin"], "Entrypoint": ["/bin/sleep"], "Cmd": ["1000000000"]},
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        }
    ).encode()
    files = {
        "manifest.json": json.dumps(
            [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        ).encode(),
        "config.json": configuration,
        "layer.tar": layer,
    }
    with tarfile.open(path, "w") as tar:
        for member, content in files.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def drawbar(folder: Path) -> tuple[Path, str]:
    """Return an archive of Drawbar's image, and the image's name: that of IMAGE, or a new build.

    Raises:
        errors.Unavailable: what builds it is not there, or Debian's packages are not.
        errors.RealClusterError: the Containerfile does not build.
    """
    return _image(folder, ARCHIVE, DRAWBAR)


def simulation(folder: Path) -> tuple[Path, str]:
    """Return the same for the image with the doubles: that of SIMULATION_IMAGE, or a new build.

    Errors are those of `drawbar`.
    """
    return _image(folder, SIMULATION_ARCHIVE, SIMULATION, "--target", "simulation")


def _image(folder: Path, variable: str, name: str, *more: str) -> tuple[Path, str]:
    named = os.environ.get(variable)
    if named:
        return Path(named), _name_of(Path(named))
    for program in ("mmdebstrap", "podman"):
        if shutil.which(program) is None:
            raise errors.Unavailable(f"{program} is not there to build the image: apt-get install {program}")
    base = folder / "base.tar"
    _run(["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", _LINK, SUITE, str(base)])
    _run(["podman", "import", str(base), BASE])
    base.unlink()
    flags = os.environ.get(BUILD_FLAGS, "").split()
    build = ["podman", "build", "--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={BASE}"]
    containerfile = str(CHECKOUT / "deploy" / "image" / "Containerfile")
    try:
        _run([*build, *flags, *more, "-f", containerfile, "-t", name, str(CHECKOUT)])
    except errors.Unavailable as error:
        raise errors.RealClusterError(f"{error}; {BUILD_FLAGS} has further flags for it") from error
    archive = folder / "drawbar.tar"
    _run(["podman", "save", "--format", "docker-archive", "-o", str(archive), name])
    return archive, name


_LINK = '--customize-hook=ln -s /usr/bin/python3 "$1/usr/local/bin/python3"'
"""The image's program begins with the path that Python has in the Containerfile's base."""


def _name_of(archive: Path) -> str:
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile("manifest.json")
            assert file is not None
            return str(json.loads(file.read())[0]["RepoTags"][0])
    except (OSError, tarfile.TarError, KeyError, LookupError, TypeError) as error:
        raise errors.Unavailable(
            f"{ARCHIVE}={archive} is no archive of a named image: podman save --format docker-archive"
        ) from error


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS)
    except subprocess.CalledProcessError as error:
        reported = (error.stderr or error.stdout).strip()[-400:]
        raise errors.Unavailable(f"{command[0]} {command[1]} failed: {reported}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise errors.Unavailable(f"{command[0]} {command[1]} failed: {error}") from error
