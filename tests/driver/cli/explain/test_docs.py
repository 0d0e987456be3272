"""docs/explain.md is true: its commands run, and its example is what is printed."""

import re
import shlex
from pathlib import Path

PAGE = (Path(__file__).parents[4] / "docs" / "explain.md").read_text()


def test_the_commands_of_the_page_run(explain_command, cluster):
    blocks = re.findall(r"```sh run\n(.*?)```", PAGE, re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) >= 5
    for command in commands:
        assert command[:2] == ["drawbar", "explain"]
        status, out, _ = explain_command(*command[2:])
        assert status in (0, 1), command
        assert out.startswith(("Cause", "Nothing is wrong", "API server", "Features"))


def test_the_example_of_the_page_matches_the_output(explain_command, cluster, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    example = re.search(r"```\n(Cause.*?)```", PAGE, re.DOTALL).group(1)
    _, out, _ = explain_command("claim/next")
    printed = [line.rstrip() for line in out.splitlines()]
    assert [line for line in example.splitlines() if line.rstrip() not in printed] == []
