"""docs/taints.md is true: its commands run in their order."""

import re
import shlex
from pathlib import Path

import pytest

from drawbar.driver.kube import client, kinds

PAGE = (Path(__file__).parents[4] / "docs" / "taints.md").read_text()


@pytest.mark.drawbar(profile="1.37")
def test_the_commands_of_the_page_run(taint_command, cluster):
    async def let_go(api):
        # Here is no controller that would evict the pod.
        await api.patch(
            kinds.CLAIM,
            "train",
            {"status": {"reservedFor": None}},
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
            subresource="status",
        )

    blocks = re.findall(r"```sh run\n(.*?)```", PAGE, re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) >= 10
    for command in commands:
        assert command[:2] == ["drawbar", "taint"]
        if "NoExecute" in command:
            cluster(let_go)
        status, out, err = taint_command(*command[2:])
        assert status == 0, (command, out, err)
        assert out
    assert taint_command("list")[1] == "There is no DeviceTaintRule.\n"
