"""docs/move.md is true: its commands run."""

import re
import shlex
from pathlib import Path

PAGE = (Path(__file__).parents[4] / "docs" / "move.md").read_text()


def test_the_commands_of_the_page_run(move_command, with_pod):
    blocks = re.findall(r"```sh run\n(.*?)```", PAGE, re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) >= 2
    for command in commands:
        assert command[:2] == ["drawbar", "move"]
        status, _, err = move_command(*command[2:])
        assert (status, err) == (0, ""), command
