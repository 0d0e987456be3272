"""docs/status.md is true: its commands run."""

import re
import shlex
from pathlib import Path

PAGE = (Path(__file__).parents[4] / "docs" / "status.md").read_text()


def test_the_commands_of_the_page_run(status_command, cluster):
    blocks = re.findall(r"```sh run\n(.*?)```", PAGE, re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) >= 8
    for command in commands:
        assert command[:2] == ["drawbar", "status"]
        status, out, err = status_command(*command[2:])
        assert (status, err) == (0, ""), command
        assert "gpu-1" in out


def test_the_tree_of_the_page_matches_the_output(status_command, cluster):
    shown = re.search(r"```\n(Fabrics .*?)```", PAGE, re.DOTALL).group(1)
    _, out, _ = status_command()
    ages = re.compile(r" \d+[smhd]\b")
    printed = [ages.sub("", line).rstrip() for line in out.splitlines()]
    assert [ages.sub("", line).rstrip() for line in shown.splitlines()] == printed[: len(shown.splitlines())]
