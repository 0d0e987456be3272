"""The operator's verbs on macOS and Windows: Python has no Linux-only module there."""

import json
import os
import subprocess
import sys

import pytest

# What Windows lacks of Python's own library, and what nobody installs there.
WINDOWS = ["asyncinotify", "fcntl", "grp", "pty", "pwd", "pyroute2", "pyudev", "resource", "termios", "tty"]
NO_EXTRA = ["asyncinotify", "trustme"]
PROGRAM = """
import importlib.abc, json, sys
blocked = set(json.loads(sys.argv[1]))
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
for name in blocked:
    sys.modules.pop(name, None)
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in blocked else find(name, package)
from drawbar.driver import main
sys.exit(main.main(sys.argv[2:]))
"""
NOBODY = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.fixture
def drawbar(tmp_path):
    """Return a function: `drawbar(words, blocked)` runs the program without the modules `blocked`."""
    (tmp_path / "kubeconfig").write_text(NOBODY)

    def run(words, blocked=WINDOWS):
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(blocked), *words.split()],
            env=os.environ | {"KUBECONFIG": str(tmp_path / "kubeconfig")},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    "words",
    [
        *("status", "explain pod/x", "doctor", "report", "taint list", "maintenance list", "move claim/x"),
        *("fabric devices x", "status --watch", "ui --no-open"),
    ],
)
def test_an_operators_verb_needs_no_module_of_linux(drawbar, words):
    ended = drawbar(words)
    # It came as far as its first request.
    assert "http://127.0.0.1:1" in ended.stderr
    assert "Connection refused" in ended.stderr
    assert ended.returncode != 0


def test_help_shows_the_verbs_that_work_there_and_no_others(drawbar):
    ended = drawbar("--help")
    assert ended.returncode == 0, ended.stderr
    for verb in ("status", "explain", "doctor", "report", "ui", "maintenance", "taint", "move", "fabric"):
        assert f"\n  {verb} " in ended.stdout
    for verb in ("discover", "node", "mock", "demo"):
        assert f"\n  {verb} " not in ended.stdout


@pytest.mark.parametrize("verb", ["discover", "node"])
def test_a_verb_of_nodes_says_that_it_needs_linux(drawbar, verb):
    ended = drawbar(verb)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: drawbar {verb} works on Linux only")


def test_without_the_extra_the_doubles_are_not_shown_and_name_the_extra(drawbar):
    shown = drawbar("--help", NO_EXTRA)
    assert shown.returncode == 0, shown.stderr
    assert "\n  node " in shown.stdout
    assert "\n  demo " not in shown.stdout
    assert "\n  mock " not in shown.stdout
    for words in ("demo", "mock cluster"):
        ended = drawbar(words, NO_EXTRA)
        assert ended.returncode == 2
        assert "pip install 'drawbar[mocks]'" in ended.stderr
        assert "Traceback" not in ended.stderr
