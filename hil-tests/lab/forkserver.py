"""Starts node daemons without the seconds that Python takes to import them: run in a guest.

    python -m lab.forkserver

One line of stdin, a JSON list, holds the arguments of `drawbar`: a process that has imported everything is forked, and
runs what the command `drawbar` runs. One line of stdout says `{"pid": 1}`, a later one `{"pid": 1, "status": -9}`. One
daemon at a time. The first line of stdout is `{}`, once everything is imported.
"""

import importlib
import json
import os
import pkgutil
import sys
from typing import Any, NoReturn

PROGRAM = "drawbar.driver.main"
PACKAGES = ("drawbar.driver.node", "drawbar.driver.kube", "drawbar.driver.api", "drawbar.driver.cli")
LIBRARIES = ("grpc.aio", "aiohttp", "pyudev")


def load() -> None:
    """Import what a node daemon needs, now or later."""
    for name in (PROGRAM, *LIBRARIES):
        importlib.import_module(name)
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)


def serve() -> None:
    """Start one daemon per line, until there are no more."""
    _say({})
    for line in sys.stdin:
        arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(arguments)
        _say({"pid": child})
        _, status = os.waitpid(child, 0)
        _say({"pid": child, "status": os.waitstatus_to_exitcode(status)})


def _become(arguments: list[str]) -> NoReturn:
    sys.argv = ["drawbar", *arguments]
    sys.stdin.close()
    sys.exit(importlib.import_module(PROGRAM).main())


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    load()
    serve()
