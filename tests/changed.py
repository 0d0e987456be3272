"""Runs the unit tests of the changed files: the last step of `make check`.

Files count as changed since the branch left `main`, or in the working tree. Tests mirror the source tree: the tests of
`driver/drawbar/driver/node/kernel.py` are `tests/driver/node/test_kernel*.py`. Where no test has that name, the tests that
import the module run, and where no test does, those of its package.
"""

import contextlib
import itertools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = "tests"
ROOTS = (TESTS, "mocks/contract")
SOURCES = ("driver", "fabric", "cdi", "proto", "mocks")
"""Source roots; each holds a folder `drawbar`."""

DOCUMENTATION = "tests/docs/test_documentation.py"
"""The test of every page."""

FILES_MAX = 12
"""The most test files for one changed file."""

FEW = 3
"""Test files that one process runs sooner than several."""

NO_TESTS = 5
"""pytest's exit status if it finds none, such as where all need a tool that this machine lacks."""


def find_changes(root: Path = ROOT) -> list[str]:
    """Return the paths of files that differ from the commit where this branch left `main`."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    base = "HEAD"
    for main in ("main", "origin/main"):
        with contextlib.suppress(subprocess.CalledProcessError):
            [base] = git("merge-base", main, "HEAD")
            break
    untracked = git("ls-files", "--others", "--exclude-standard")
    return sorted({*git("diff", "--name-only", "--no-renames", base), *untracked})


def _parts(path: str) -> tuple[str, ...]:
    """Return the path that tests mirror: `node`, `kernel` of `driver/drawbar/driver/node/kernel.py` follow `driver`."""
    parts = Path(path).with_suffix("").parts
    if parts[0] in SOURCES and parts[1:2] == ("drawbar",):
        parts = parts[2:]
    elif parts[0] == TESTS:
        parts = parts[1:]
    return parts[:-1] if parts[-1] == "__init__" else parts


def _folder(test: str) -> str:
    return test.rpartition("/")[0]


def _find_named_tests(parts: tuple[str, ...], tests: Iterable[str]) -> Iterator[str]:
    """Yield the tests of this name, from the closest folder: `fabric/grpc/server` has `fabric/test_grpc_server.py`."""
    for depth in range(len(parts) - 1, -1, -1):
        folder, name = "/".join((TESTS, *parts[:depth])), re.escape("_".join(parts[depth:]))
        own = [
            test
            for test in tests
            if _folder(test) == folder and re.search(rf"/test_{name}(_\w+)?\.py$", test)
        ]
        if own:
            yield from own
            return


@cache
def _text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def _find_importing_tests(module: str, tests: Iterable[str], parts: str = "") -> Iterator[str]:
    """Yield the tests that import the module, or with `parts` a module below it."""
    package, _, name = module.rpartition(".")
    package, module = re.escape(package), re.escape(module)
    imports = re.compile(
        rf"^\s*(?:from {package} import (?:\([^)]*|.*)\b{name}\b|(?:from|import) {module}{parts}\s)",
        re.MULTILINE,
    )
    yield from (test for test in tests if imports.search(_text(test)))


def _module(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] in SOURCES else parts).removesuffix(".__init__")


def _of_packages(path: str, tests: Iterable[str]) -> Iterator[str]:
    """Yield the tests of the closest package that has any."""
    module, parts = _module(path), _parts(path)
    while parts := parts[:-1]:
        module = module.rpartition(".")[0]
        folder = "/".join((TESTS, *parts))
        if own := (
            [*_find_named_tests(parts, tests)]
            or [test for test in tests if _folder(test) == folder]
            or (
                path.endswith(".py")
                and len(parts) > 1
                and [*_find_importing_tests(module, tests, r"(?:\.\w+)*")]
            )
        ):
            yield from own
            return


def _distance(parts: tuple[str, ...], test: str) -> int:
    pairs = zip(parts, Path(test).parts[1:], strict=False)
    return -len([*itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)])


def find_tests(path: str, tests: frozenset[str]) -> list[str]:
    """Return the test files of a changed file, the closest first."""
    if path in tests:
        return [path]
    parts = _parts(path)
    if not parts or Path(path).name.startswith("test_"):
        return []
    if Path(path).name == "conftest.py":
        found = [test for test in tests if test.startswith(f"{_folder(path)}/")]
    else:
        found = [*_find_named_tests(parts, tests)]
        if not found and path.endswith(".py"):
            found = [*_find_importing_tests(_module(path), tests)]
        if path.endswith(".md"):
            found.append(DOCUMENTATION)
        found = found or [*_of_packages(path, tests)]
    return sorted(found, key=lambda test: (_distance(parts, test), test))


def list_tests() -> frozenset[str]:
    """Return the paths of all test files."""
    return frozenset(
        path.relative_to(ROOT).as_posix() for root in ROOTS for path in (ROOT / root).rglob("test_*.py")
    )


def main() -> int:
    """Run the tests; return pytest's exit status."""
    tests = list_tests()
    chosen: dict[str, None] = {}
    left = 0
    for path in find_changes():
        own = find_tests(path, tests)
        chosen |= dict.fromkeys(own[:FILES_MAX])
        left += len(own[FILES_MAX:])
    if not chosen:
        sys.stdout.write("== no tests belong to the changed files; make test runs all tests\n")
        return 0
    sys.stdout.write(f"== {len(chosen)} test files of what changed\n")
    if left:
        sys.stdout.write(f"== {left} more use the changed files; make test runs them\n")
    sys.stdout.flush()
    workers = ("-n", "auto", "--dist", "worksteal") if len(chosen) > FEW else ()
    status = subprocess.run((sys.executable, "-m", "pytest", "-q", *workers, *chosen), cwd=ROOT, check=False)
    return 0 if status.returncode == NO_TESTS else status.returncode


if __name__ == "__main__":
    sys.exit(main())
