"""Draw the pictures of the documentation: ``python docs/pictures/draw.py`` writes the SVG files beside this one.

Each picture is a function that returns SVG text. Colours follow the reader's light or dark scheme, and every picture has a
background of its own, so that it is readable on any page.
"""

import html
from pathlib import Path

FOLDER = Path(__file__).parent
STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de; }
  .box { fill: #f6f8fa; stroke: #57606a; }
  .ours { fill: #ddf4ff; stroke: #0969da; }
  .device { fill: #ffffff; stroke: #57606a; }
  .taken { fill: #1f883d; stroke: #1a7f37; }
  text { fill: #1f2328; font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 14px; }
  .note { paint-order: stroke; stroke: #ffffff; stroke-width: 5px; }
  .title { font-weight: 600; }
  .small { font-size: 12px; fill: #57606a; }
  .on { fill: #ffffff; font-weight: 600; }
  .line { stroke: #57606a; fill: none; stroke-width: 1.5; }
  .way { stroke: #1f883d; fill: none; stroke-width: 4; }
  .life { stroke: #8c959f; stroke-dasharray: 4 4; }
  .tip { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #30363d; }
    .box { fill: #161b22; stroke: #8b949e; }
    .ours { fill: #0c2d4d; stroke: #58a6ff; }
    .device { fill: #0d1117; stroke: #8b949e; }
    .taken { fill: #238636; stroke: #3fb950; }
    text { fill: #e6edf3; }
    .small { fill: #9da7b3; }
    .note { stroke: #0d1117; }
    .line { stroke: #9da7b3; }
    .way { stroke: #3fb950; }
    .life { stroke: #6e7681; }
    .tip { fill: #9da7b3; }
  }
"""
STEP = 46
"""Height of a step of a sequence, in pixels."""


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    """Return a whole picture with its title, for readers who cannot see it."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{html.escape(title)}">\n<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f'<rect class="page" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10"/>\n{body}\n</svg>\n'
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """Return one line of text."""
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>'


def box(x: int, y: int, width: int, height: int, title: str, *lines: str, kind: str = "box") -> str:
    """Return a box with a title and lines below it, in the middle of the box."""
    top = y + height / 2 - 9 * len(lines) + 5
    rows = [text(x + width / 2, top, title, "on" if kind == "taken" else "title")]
    rows += [text(x + width / 2, top + 18 * (n + 1), line, "small") for n, line in enumerate(lines)]
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>' + "".join(rows)


def frame(x: int, y: int, width: int, height: int, title: str) -> str:
    """Return a large box with its title at the top, for other boxes in it."""
    return f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>' + text(
        x + width / 2, y + 22, title, "title"
    )


def arrow(x1: int, y1: int, x2: int, y2: int, label: str = "", *, both: bool = False) -> str:
    """Return a straight arrow with its label above the middle."""
    start = ' marker-start="url(#tip)"' if both else ""
    line = f'<line class="line" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" marker-end="url(#tip)"{start}/>'
    return line + (text((x1 + x2) / 2, (y1 + y2) / 2 - 7, label, "small") if label else "")


def way(points: str) -> str:
    """Return the thick line of an attached device."""
    return f'<polyline class="way" points="{points}"/>'


def sequence(title: str, actors: list[str], steps: list[tuple[str, str, str]]) -> str:
    """Return a sequence diagram. A step names who acts, on whom, and what happens; on itself it is a note."""
    gap, margin = 178, 96
    width = margin * 2 + gap * (len(actors) - 1)
    height = 96 + STEP * len(steps)
    places = {actor: margin + gap * n for n, actor in enumerate(actors)}
    parts = []
    for actor, x in places.items():
        parts.append(f'<line class="life" x1="{x}" y1="58" x2="{x}" y2="{height - 18}"/>')
        ours = "ours" if actor in {"controller", "node daemon"} else "box"
        parts.append(box(x - 74, 18, 148, 40, actor, kind=ours))
    for number, (actor, other, words) in enumerate(steps, 1):
        y = 66 + STEP * number
        label = f"{number}. {words}"
        if actor == other:
            left = places[actor] < width / 2
            x = places[actor] + (10 if left else -10)
            parts.append(f'<circle class="tip" cx="{places[actor]}" cy="{y - 5}" r="4"/>')
            parts.append(text(x, y, label, "note", "start" if left else "end"))
            continue
        x1, x2 = places[actor], places[other]
        parts.append(arrow(x1, y, x2, y))
        parts.append(text((x1 + x2) / 2, y - 7, label, "note"))
    return svg(width, height, title, parts)


def idea() -> str:
    """A chassis of devices, a switch, three nodes, and a pod with a GPU."""
    parts = [
        frame(24, 24, 210, 300, "chassis"),
        frame(310, 74, 120, 200, "switch"),
        frame(506, 24, 330, 300, "nodes"),
    ]
    for n, name in enumerate(["GPU", "GPU", "FPGA", "NVMe disk", "CXL memory", "NIC"]):
        parts.append(box(54, 58 + 43 * n, 150, 34, name, kind="taken" if n == 1 else "device"))
    for n in range(3):
        y = 60 + 86 * n
        parts.append(box(530, y, 282, 74, "", kind="device"))
        parts.append(text(548, y + 26, f"worker-{n + 1}", "title", "start"))
    parts.append(box(680, 158, 112, 50, "pod", "claims 1 GPU", kind="ours"))
    parts.append(way("204,118 330,118 370,183 680,183"))
    parts += [
        f'<line class="line" x1="204" y1="{y}" x2="310" y2="{min(max(y, 90), 260)}"/>'
        for y in (75, 161, 204, 247, 290)
    ]
    parts += [f'<line class="line" x1="430" y1="{y}" x2="530" y2="{z}"/>' for y, z in ((120, 97), (230, 269))]
    parts.append(
        text(430, 352, "A pod claims a GPU. Drawbar has the fabric connect one to the pod's node,", "")
    )
    parts.append(text(430, 374, "and gives it back to the chassis when the claim ends.", ""))
    return svg(
        860,
        396,
        "A chassis with devices, a switch, three nodes, and a pod that has a GPU of the chassis",
        parts,
    )


def context() -> str:
    """The four daemons of Drawbar and everything they talk to."""
    parts = [frame(24, 24, 300, 330, "control plane"), frame(536, 24, 300, 330, "each node of the fabric")]
    parts.append(box(344, 150, 172, 80, "API server", "claims, slices,", "DeviceAttachments"))
    parts.append(box(48, 60, 252, 62, "controller", "pools, attach, detach", kind="ours"))
    parts.append(box(48, 148, 252, 48, "scheduler", "allocates, waits, binds"))
    parts.append(box(48, 216, 252, 52, "webhook (optional)", "checks parameters", kind="ours"))
    parts.append(box(48, 284, 252, 52, "health monitor (optional)", "taints devices by alerts", kind="ours"))
    parts.append(box(560, 60, 252, 62, "node daemon", "recognises, prepares, releases", kind="ours"))
    parts.append(box(560, 148, 252, 48, "kernel", "hot-plug, drivers, sysfs"))
    parts.append(box(560, 216, 252, 52, "kubelet", "Prepare and Unprepare"))
    parts.append(box(560, 284, 252, 52, "container runtime", "reads CDI files"))
    for y, z in ((100, 168), (172, 186), (242, 200), (310, 216)):
        parts.append(arrow(300, y, 344, z, both=True))
    parts.append(arrow(560, 100, 516, 172, both=True))
    parts.append(arrow(560, 242, 516, 206, both=True))
    parts.append(arrow(660, 148, 660, 124, both=True))
    parts.append(
        '<polyline class="line" points="812,91 824,91 824,242 814,242" marker-end="url(#tip)" marker-start="url(#tip)"/>'
    )
    parts.append(box(48, 392, 252, 60, "fabric manager", "Redfish, or gRPC by a sidecar"))
    parts.append(box(344, 392, 172, 60, "you", "kubectl, drawbar verbs"))
    parts.append(box(560, 392, 252, 60, "device", "moves from chassis to node"))
    parts.append(
        '<polyline class="line" points="48,91 36,91 36,422 46,422" marker-end="url(#tip)" marker-start="url(#tip)"/>'
    )
    parts.append(arrow(430, 392, 430, 232, both=True))
    parts.append('<polyline class="line" points="174,452 174,476 686,476 686,454" marker-end="url(#tip)"/>')
    parts.append(text(430, 470, "connects", "small"))
    return svg(
        860, 496, "The four daemons of Drawbar, the API server, a node, the fabric manager and you", parts
    )


def attach() -> str:
    """From the claim to the running container."""
    actors = ["fabric manager", "controller", "API server", "scheduler", "node daemon", "kubelet"]
    return sequence(
        "How a pod gets a device",
        actors,
        [
            ("controller", "API server", "publish pools"),
            ("scheduler", "API server", "allocate device, node"),
            ("controller", "API server", "DeviceAttachment"),
            ("controller", "fabric manager", "attach"),
            ("controller", "API server", "condition attached"),
            ("node daemon", "node daemon", "card arrives; driver is bound"),
            ("node daemon", "API server", "condition visible"),
            ("scheduler", "kubelet", "bind the pod"),
            ("kubelet", "node daemon", "Prepare"),
            ("node daemon", "kubelet", "CDI devices"),
        ],
    )


def release() -> str:
    """From the end of the claim to a free device."""
    return sequence(
        "How a device comes back",
        ["fabric manager", "controller", "API server", "node daemon", "kubelet"],
        [
            ("kubelet", "node daemon", "Unprepare"),
            ("controller", "API server", "delete attachment"),
            ("node daemon", "node daemon", "nobody uses it; drain hook if somebody does"),
            ("node daemon", "node daemon", "erase, unbind, reset, switch the slot off"),
            ("node daemon", "API server", "Released"),
            ("controller", "fabric manager", "detach"),
            ("fabric manager", "controller", "device is free"),
            ("controller", "API server", "remove finalizer"),
        ],
    )


def failure() -> str:
    """From a failed attach to another device."""
    return sequence(
        "What happens when an attach fails",
        ["fabric manager", "controller", "API server", "scheduler"],
        [
            ("fabric manager", "controller", "attach failed"),
            ("controller", "API server", "record the reason"),
            ("controller", "API server", "taint the device"),
            ("controller", "API server", "fail the claims"),
            ("scheduler", "API server", "take another device"),
            ("controller", "fabric manager", "roll back"),
            ("controller", "API server", "untaint after 300 s"),
        ],
    )


PICTURES = {"idea": idea, "context": context, "attach": attach, "release": release, "failure": failure}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main()
