"""Two node daemons on one node, each a process of its own: a rolling update, or one that an administrator started by hand."""

import asyncio
import json

from tests.scenes import nodeprocesses, nodes

ACTS = "acting on the devices of this node"
WAITS = "another instance acts on the devices of this node: serving the kubelet beside it until it ends"


def list_acting_uids(instances):
    return [
        instance.uid for instance in instances if any(read.startswith(ACTS) for read in instance.messages())
    ]


async def test_one_of_two_acts_and_both_prepare_without_giving_a_device_twice(tmp_path, until):
    async with nodeprocesses.running(tmp_path, "one", "two") as (node, *instances):
        claim = await node.allocate_claim()
        uid = claim["metadata"]["uid"]
        await node.attach(claim)
        await node.controller_says()
        await node.plug()

        async def read():
            return [instance.messages() for instance in instances]

        await until(read, lambda logs: sum(WAITS in log for log in logs) == 1)
        assert len(list_acting_uids(instances)) == 1

        # Both are asked for the same claim, and to let go of it, at the same moment and again and again.
        for _ in range(5):
            asked = [instance.prepare(("c1", uid)) for instance in instances * 3]
            answers = await asyncio.gather(*asked)
            assert all(answer == answers[0] and not answer[uid].error for answer in answers)
            (file,) = (tmp_path / "cdi").glob("*.json")
            assert json.loads(file.read_bytes())["kind"] == f"{nodes.DRIVER}/device"
            mixed = [
                call(("c1", uid)) for instance in instances for call in (instance.unprepare, instance.prepare)
            ]
            for answer in await asyncio.gather(*mixed):
                assert not answer[uid].error
            for file in (tmp_path / "cdi").glob("*.json"):
                json.loads(file.read_bytes())

        # Another claim of the same device gets it from neither of them.
        await asyncio.gather(*(instance.prepare(("c1", uid)) for instance in instances))
        for instance in instances:
            assert (await instance.prepare(("c2", "another-uid")))["another-uid"].error

        # The one that acts is killed: the other takes over, with the record.
        first = next(instance for instance in instances if instance.uid in list_acting_uids(instances))
        other = next(instance for instance in instances if instance is not first)
        first.process.kill()
        await first.process.wait()
        await until(read, lambda logs: any(line.startswith(ACTS) for line in logs[instances.index(other)]))
        await other.unprepare(("c1", uid))
        assert list((tmp_path / "cdi").glob("*.json")) == []


async def test_a_second_daemon_without_an_instance_of_its_own_ends_with_the_reason(tmp_path):
    async with nodeprocesses.running(tmp_path, "same") as (_, first):
        second = nodeprocesses.Instance(tmp_path, "same")
        second.log = tmp_path / "second"
        await second.start()
        async with asyncio.timeout(120):
            assert await second.process.wait() == 1
        (reason,) = [
            line for line in second.log.read_text().splitlines() if "another instance serves" in line
        ]
        assert "--pod-uid (POD_UID)" in reason
        assert not (await first.unprepare(("c", "unknown")))["unknown"].error
