"""Makes the manifest by which krew installs `kubectl drawbar`, out of release/krew.yaml.

    python release/krew.py v0.1.0 --url URL --homepage URL FOLDER > drawbar.yaml

FOLDER has the archives that release/program.py made for each processor; --url is the address below which they are published.
"""

import argparse
import hashlib
import string
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

TEMPLATE = Path(__file__).with_name("krew.yaml")
ARCHITECTURES = ("amd64", "arm64")
FILES = {"kubectl-drawbar": 0o755, "LICENSE": 0o644}
"""What an archive has, by name with the mode; krew's index takes no plugin without its licence."""


class ManifestError(Exception):
    """The manifest cannot be made; says which archive is missing or wrong."""


def manifest(tag: str, folder: Path, *, url: str, homepage: str) -> str:
    """Return the manifest's text.

    Args:
        tag: as `v0.1.0`.
        folder: with an archive for each processor.
        url: where the archives are published, without a slash at the end.
        homepage: of the project.

    Raises:
        ManifestError: an archive is missing or is not as it has to be.
    """
    version = tag.removeprefix("v")
    sums = {
        name: _hash_archive(folder / f"kubectl-drawbar_{version}_linux_{name}.tar.gz")
        for name in ARCHITECTURES
    }
    return string.Template(TEMPLATE.read_text()).substitute(
        sums, tag=tag, version=version, url=url, homepage=homepage
    )


def _hash_archive(archive: Path) -> str:
    """Return the SHA-256 of an archive that krew can install."""
    try:
        content = archive.read_bytes()
        with tarfile.open(archive) as tar:
            modes = {member.name: member.mode for member in tar.getmembers() if member.isfile()}
    except (OSError, tarfile.TarError) as error:
        raise ManifestError(f"{archive} cannot be read ({error}): make it with release/program.py") from error
    if modes != FILES:
        raise ManifestError(f"{archive} has {modes} and not {FILES}: make it with release/program.py")
    return hashlib.sha256(content).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the manifest; return the exit status."""
    parser = argparse.ArgumentParser(prog="release/krew.py", description="print the manifest of the plugin")
    parser.add_argument("tag", help="the release's tag, such as v0.1.0")
    parser.add_argument("folder", type=Path, help="the folder with the archives")
    parser.add_argument("--url", required=True, help="address below which the archives are published")
    parser.add_argument("--homepage", required=True, help="address of the project")
    options = parser.parse_args(arguments)
    try:
        text = manifest(options.tag, options.folder, url=options.url.rstrip("/"), homepage=options.homepage)
    except ManifestError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
