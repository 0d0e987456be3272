"""The verbs with the rights of a reader, of an operator, and without any: each ends with its status and one clear sentence."""

import pytest

from drawbar.driver.kube import kinds

VIEWER, OPERATOR, NONE = "viewer", "operator", None
DONE, REFUSED, UNREAD = 0, 1, 3
STATUS = ("status",)
STATUS_POD = ("status", "pod/a")
EXPLAIN = ("explain", "pod/a")
EXPLAIN_CLAIM = ("explain", "claim/waiting")
MOVE_POD = ("move", "pod/a", "--dry-run")
HOSTS = ("fabric", "hosts", "fab")
DOCTOR = ("doctor", "--brief")
TAINT = ("taint", "add", "psu", "device/fab/enc/disk-1", "--effect", "NoSchedule", "--yes")
UNTAINT = ("taint", "remove", "psu", "--yes")
MAINTENANCE = ("maintenance", "on", "device/disk-1", "--yes")
NO_MAINTENANCE = ("maintenance", "off", "device/disk-1", "--yes")
ATTACH = ("fabric", "attach", "disk-1", "node-1", "--fabric", "fab", "--yes")
DETACH = ("fabric", "detach", "disk-1", "--fabric", "fab", "--yes")
WAITING = {
    "apiVersion": kinds.CLAIM.api_version,
    "kind": kinds.CLAIM.kind,
    "metadata": {"name": "waiting"},
    "spec": {"devices": {"requests": [{"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}}]}},
}
# The words, the exit status and a part of the output.
ROWS = {
    VIEWER: (
        (STATUS, DONE, "fabric fab Connected"),
        (STATUS_POD, DONE, "1 in use"),
        (EXPLAIN, DONE, "Nothing is wrong with pod a."),
        (EXPLAIN_CLAIM, DONE, "1 device matches and is free"),
        (HOSTS, DONE, "host-node-1"),
        (DOCTOR, UNREAD, "cannot be looked at"),
        (TAINT, REFUSED, 'cannot create resource "devicetaintrules"'),
        (MAINTENANCE, REFUSED, 'cannot create resource "maintenances"'),
        (ATTACH, REFUSED, 'cannot create resource "deviceattachments"'),
    ),
    OPERATOR: (
        (STATUS, DONE, "fabric fab Connected"),
        (STATUS_POD, DONE, "1 in use"),
        (EXPLAIN, DONE, "Nothing is wrong with pod a."),
        (EXPLAIN_CLAIM, DONE, "1 device matches and is free"),
        (MOVE_POD, REFUSED, "no controller makes another pod in place of a"),
        (HOSTS, DONE, "host-node-1"),
        (DOCTOR, UNREAD, "cannot be looked at"),
        (TAINT, DONE, "DeviceTaintRule psu has effect NoSchedule."),
        (UNTAINT, DONE, "psu"),
        (MAINTENANCE, DONE, "device disk-1 is in maintenance."),
        (NO_MAINTENANCE, DONE, "disk-1"),
        (ATTACH, DONE, "Device disk-1 is attached to host"),
        (DETACH, DONE, "Device disk-1 is detached."),
    ),
    NONE: (
        (STATUS, UNREAD, "cannot list resource"),
        (EXPLAIN, UNREAD, "cannot list resource"),
        (DOCTOR, UNREAD, "cannot be looked at"),
        (TAINT, UNREAD, "devicetaintrules"),
        (MAINTENANCE, UNREAD, "cannot list resource"),
        (ATTACH, UNREAD, 'cannot get resource "fabrics"'),
    ),
}


@pytest.mark.parametrize("role", ROWS)
async def test_a_verb_works_within_its_users_rights_and_names_missing_ones(flow_lab, role):
    async with flow_lab("1.36", gates={"DRADeviceTaintRules": True}, devices=2) as cluster:
        await cluster.until(cluster.slices, bool)
        await cluster.pod("a")
        _, (used,) = await cluster.wait_until_running("a")
        free, *_ = {"disk-0", "disk-1"} - {used}
        await cluster.api.create(kinds.CLAIM, WAITING, into=dict, namespace="default")
        kubeconfig = await cluster.account(role or "nobody", role)
        wrong = []
        for row, expected, sentence in ROWS[role]:
            words = [word.replace("disk-1", free) for word in row]
            status, out, err = await cluster.run_verb(kubeconfig, *words)
            printed = " ".join((out + err).split())
            is_right = status == expected and sentence.replace("disk-1", free) in printed
            if is_right and status != DONE and words[0] not in ("doctor", "explain", "move"):
                # One sentence, which ends with the role that has the right.
                is_right = err.startswith("error: ") and len(err.splitlines()) == 1 and "drawbar-" in err
            if not is_right:
                wrong.append((words, status, printed))
        assert not wrong, "\n".join(map(str, wrong))
