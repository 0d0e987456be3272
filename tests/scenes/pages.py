"""Contents of the page of `drawbar ui`: a healthy cluster, a broken one, a large one and an empty one."""

import datetime

from drawbar.driver.api import meta
from drawbar.driver.cli.status import claim_entries, tree
from drawbar.driver.cli.ui import device_rows, model

ABOUT = model.About(cluster="prod-eu-1", server="https://10.0.0.1:6443", driver="drawbar.dev")
ENCLOSURES = (
    ("chassis-1", "gpu", "NVIDIA H200 NVL", 8),
    ("chassis-2", "nvme", "Samsung PM1743 7.68TB", 12),
    ("chassis-3", "cxl-memory", "Micron CZ122 256GB", 6),
    ("chassis-4", "fpga", "AMD Alveo U55C", 4),
)
WORKERS = 6
DRAIN = tree.Taint(key="drawbar.dev/maintenance", value="", effect="NoSchedule")
PROBATION = tree.Taint(key="drawbar.dev/attach-failed", value="LinkDown", effect="NoSchedule")


class Clock:
    """The moments of a scene, counted back from now."""

    def __init__(self):
        self._now = datetime.datetime.now(datetime.UTC)

    def format_ago(self, seconds):
        """Return the moment as RFC 3339."""
        return meta.timestamp(self._now - datetime.timedelta(seconds=seconds))


def claim(clock, number, *, node, namespace="team-a", is_ready=True):
    """Return an allocated claim with one pod."""
    return tree.Claim(
        namespace=namespace,
        name=f"train-{number}-devices",
        state="Reserved",
        since=clock.format_ago(900 + 60 * number),
        node=node,
        pods=(f"train-{number}",),
        waits_for="" if is_ready else "drawbar.dev/ready",
    )


def row(clock, number, enclosure, device_class, model_name, name, state="Free", **fields):
    """Return a device of rack-1; a device in use is on a worker, for a claim."""
    is_used = state != "Free"
    worker = number % (WORKERS - 1) + 1
    node = f"worker-{worker:02}" if is_used else ""
    users = (claim(clock, number, node=node, is_ready=state == "Ready"),) if is_used else ()
    if state in ("Releasing", "Released"):
        users = ()
    facts = {
        "id": f"{enclosure}/{name}",
        "serial": f"S6EVNX0T{number:06}",
        "since": clock.format_ago(40 * number + 3) if is_used else "",
        "node": node,
        "host": f"host-{worker}" if is_used else "",
        "port": f"p{number // (WORKERS - 1) % 4 + 1}" if is_used else "",
        "slot": str(number % 4 + 1) if state == "Ready" else "",
        "health": "Healthy" if state == "Ready" else "",
        "attachment": f"rack-1.{name}" if is_used else "",
        "claims": users,
    }
    device = tree.Device(
        pool=f"rack-1/{enclosure}",
        name=name,
        device_class=device_class,
        model=model_name,
        state=state,
        published=True,
        **facts | fields,
    )
    return device_rows.describe_row(device, fabric="rack-1", enclosure=enclosure)


def rack(clock, states):
    """Return the devices of rack-1; `states` has state and fields by number of the device."""
    listed, number = [], 0
    for enclosure, device_class, model_name, count in ENCLOSURES:
        for index in range(1, count + 1):
            state, fields = states.get(number, ("Free", {}))
            name = f"{device_class.removesuffix('-memory')}-{index}"
            listed.append(row(clock, number, enclosure, device_class, model_name, name, state, **fields))
            number += 1
    for worker in (1, 2):
        node = f"worker-{worker:02}"
        device = tree.Device(
            pool=node,
            name="nvme-0000-41-00-0",
            device_class="nvme",
            model="Intel P5800X",
            state="InUse" if worker == 1 else "Free",
            since=clock.format_ago(7200) if worker == 1 else "",
            node=node,
            published=True,
            claims=(claim(clock, 90, node=node),) if worker == 1 else (),
        )
        listed.append(device_rows.describe_row(device))
    return {each.key: each for each in listed}


def hosts():
    """Return the hosts of rack-1."""
    return tuple(model.Host(host=f"host-{n}", node=f"worker-{n:02}") for n in range(1, WORKERS + 1))


def event(clock, seconds, type_, reason, note, number):
    """Return an Event on a claim and its pod."""
    return model.Event(
        at=clock.format_ago(seconds),
        type=type_,
        reason=reason,
        note=note,
        about=(
            model.Regarding(kind="ResourceClaim", namespace="team-a", name=f"train-{number}-devices"),
            model.Regarding(kind="Pod", namespace="team-a", name=f"train-{number}"),
        ),
    )


READY = ("Ready", {})


def make_healthy_page():
    """Return a page on which nothing is wrong; one device is being attached."""
    clock = Clock()
    states = dict.fromkeys((0, 1, 2, 3, 8, 9, 10, 12, 20, 21, 26), READY)
    states[4] = ("Attached", {"waits_for": "the node, to see the device", "since": clock.format_ago(3)})
    return model.Page(
        about=ABOUT,
        rows=rack(clock, states),
        fabrics=(
            model.Fabric(
                name="rack-1",
                state="Connected",
                since=clock.format_ago(86400 * 3),
                message="",
                adapter="redfish",
                hosts=hosts(),
                host_count=WORKERS,
            ),
        ),
        events=(
            event(clock, 3, "Normal", "DeviceAttaching", "attaches gpu-5 to node worker-05", 4),
            event(clock, 64, "Normal", "DevicesReady", "gpu-4 is ready on node worker-04", 3),
        ),
    )


LINK = "the link of port p3 did not come up within 30 s"


def make_broken_page():
    """Return a page with a degraded and an unreachable fabric, failed devices, pending claims and taints."""
    clock = Clock()
    states = dict.fromkeys((0, 1, 2, 8, 9, 12, 13, 20, 26), READY)
    states[1] = ("Ready", {"health": "Unhealthy", "health_message": "the link has 4 of 16 lanes"})
    states[3] = (
        "Pending",
        {"waits_for": "the fabric manager, to attach the device", "since": clock.format_ago(3)},
    )
    states[4] = ("Attached", {"waits_for": "the node, to see the device", "since": clock.format_ago(9)})
    states[5] = ("Failed", {"waits_for": LINK, "since": clock.format_ago(95), "taints": (PROBATION,)})
    states[6] = ("Free", {"taints": (DRAIN,)})
    states[14] = (
        "Releasing",
        {"waits_for": "the node, to erase the device (61 %)", "since": clock.format_ago(120)},
    )
    states[22] = (
        "Allocated",
        {"waits_for": "the controller, to begin the attach", "since": clock.format_ago(1)},
    )
    degraded = model.Problem(
        type="Degraded",
        reason="Troubles",
        since=clock.format_ago(310),
        message=f"host host-6 is avoided until 12:04:31: {LINK}",
    )
    lost = model.Problem(
        type="Connected",
        reason="Unreachable",
        since=clock.format_ago(4210),
        message="https://rack-2.example:8443 has not answered for 4210 s",
    )
    reasons = (
        ("team-a", "train-31-devices", "train-31", "0/6 nodes are available: 6 cannot allocate all claims"),
        ("team-b", "render-with-a-rather-long-name-7f9c4-devices-x2kqp", "render-7", claim_entries.UNTRIED),
        ("team-c", "infer-2-devices", "", claim_entries.UNUSED),
    )
    return model.Page(
        about=ABOUT,
        rows=rack(clock, states),
        fabrics=(
            model.Fabric(
                name="rack-1",
                state="Degraded",
                since=degraded.since,
                message=degraded.message,
                problems=(degraded,),
                adapter="redfish",
                hosts=hosts(),
                host_count=WORKERS,
            ),
            model.Fabric(
                name="rack-2",
                state="Unreachable",
                since=lost.since,
                message=lost.message,
                problems=(lost,),
                adapter="grpc",
            ),
        ),
        claims=tuple(
            tree.Claim(
                namespace=namespace,
                name=name,
                state="Pending",
                since=clock.format_ago(42 + 300 * index),
                node="",
                pods=(pod,) if pod else (),
                waits_for=reason,
                severity="warning" if pod else "note",
            )
            for index, (namespace, name, pod, reason) in enumerate(reasons)
        ),
        waiting=2,
        unused=1,
        events=(
            event(clock, 1, "Normal", "DeviceAttaching", "attaches cxl-3 to node worker-03", 22),
            event(clock, 95, "Warning", "FabricError", f"LinkDown: gpu-6 at host-1: {LINK}", 5),
            event(clock, 120, "Normal", "DevicesReady", "gpu-3 is ready on node worker-03", 2),
        ),
        unread=(
            "devicetaintrules cannot be read: 403 Forbidden; ask for the right to list and watch devicetaintrules",
        ),
    )


def make_large_page(devices=15000, nodes=5000):
    """Return a page of a large cluster, with some trouble in it."""
    clock = Clock()
    listed = []
    for number in range(devices):
        state, fields = ("Ready", {}) if number % 3 else ("Free", {})
        if number % 997 == 500:
            state, fields = "Failed", {"waits_for": LINK}
        elif number % 1499 == 700:
            state, fields = "Attached", {"waits_for": "the node, to see the device"}
        worker = number % nodes
        node = f"node-{worker:05}" if state != "Free" else ""
        users = (claim(clock, number, node=node),) if state == "Ready" else ()
        enclosure = f"chassis-{number // 64 + 1}"
        listed.append(
            row(
                clock,
                number,
                enclosure,
                "gpu" if number % 5 else "nvme",
                "H200" if number % 5 else "PM1743",
                f"gpu-{number:05}",
                state,
                **{"node": node, "host": f"host-{worker}" if node else "", "claims": users} | fields,
            )
        )
    return model.Page(
        about=ABOUT,
        rows={each.key: each for each in listed},
        fabrics=(
            model.Fabric(
                name="rack-1",
                state="Connected",
                since=clock.format_ago(86400),
                message="",
                adapter="redfish",
                hosts=tuple(model.Host(host=f"host-{n}", node=f"node-{n:05}") for n in range(nodes)),
                host_count=nodes,
            ),
        ),
    )


def make_empty_page():
    """Return the page of a cluster without fabrics."""
    return model.Page(about=ABOUT)
