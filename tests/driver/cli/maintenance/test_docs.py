"""docs/maintenance.md is true: its commands run."""

import re
import shlex
from pathlib import Path

PAGE = (Path(__file__).parents[4] / "docs" / "maintenance.md").read_text()


def test_the_commands_of_the_page_run(maintenance_command, cluster):
    blocks = re.findall(r"```sh run\n(.*?)```", PAGE, re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) >= 4
    for command in commands:
        assert command[:2] == ["drawbar", "maintenance"]
        status, _, err = maintenance_command(*command[2:])
        assert (status, err) == (0, ""), command
