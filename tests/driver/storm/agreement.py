"""The content of `drawbar status`, `drawbar ui` and `drawbar explain`, compared with the objects, in each state."""

import asyncio

import msgspec
from tests.scenes import colours, pages

from drawbar.driver.api import attachments, claims, fabrics, slices
from drawbar.driver.cli.status import building, observed, reading, tree
from drawbar.driver.cli.ui import device_rows, following, model
from drawbar.driver.kube import kinds

DRIVER = "drawbar.dev"
PATIENCE_SECONDS = 60


async def check(storm):
    """Compare the tree of all objects with the objects, key by key."""
    documents = {
        kind: await storm.list(kind) for kind in (kinds.FABRIC, kinds.SLICE, kinds.ATTACHMENT, kinds.CLAIM)
    }
    cluster = observed.Cluster(
        driver=DRIVER,
        fabrics=_decode(documents[kinds.FABRIC], fabrics.Fabric),
        slices=_decode(documents[kinds.SLICE], slices.ResourceSlice),
        attachments=_decode(documents[kinds.ATTACHMENT], attachments.DeviceAttachment),
        claims=_decode(documents[kinds.CLAIM], claims.ResourceClaim),
    )
    colours.check(cluster)
    shown = building.build(cluster)
    names = [device.name for device in shown.devices]
    assert len(names) == len(set(names)), f"a device is shown twice: {names}"
    by_name = dict(zip(names, shown.devices, strict=True))
    _check_slices(by_name, documents[kinds.SLICE])
    _check_attachments(by_name, documents[kinds.ATTACHMENT])
    _check_claims(by_name, documents[kinds.CLAIM], documents[kinds.ATTACHMENT])
    held = {
        name
        for attachment in documents[kinds.ATTACHMENT]
        for name in (attachment["spec"]["device"], *_find_composite(attachment))
    }
    used = {name for claim in documents[kinds.CLAIM] for result in _results(claim) for name in _names(result)}
    for device in by_name.values():
        assert (device.state == tree.FREE) == (device.name not in held | used), device


def _check_slices(by_name, documents):
    taints = {
        device["name"]: sorted(taint["key"] for taint in device.get("taints", ()))
        for document in documents
        for device in document["spec"].get("devices", ())
    }
    for name, keys in taints.items():
        assert by_name[name].published, f"{name} is in a slice"
        assert sorted(taint.key for taint in by_name[name].taints) == keys
    for name, device in by_name.items():
        assert device.published == (name in taints), device


def _check_attachments(by_name, documents):
    for document in documents:
        spec, conditions = document["spec"], _conditions(document)
        device = by_name[spec["device"]]
        expected = (document["metadata"]["name"], spec["nodeName"], spec["hostID"])
        assert (device.attachment, device.node, device.host) == expected
        is_here = conditions.get("Attached") == "True" and conditions.get("Visible") == "True"
        is_leaving = "deletionTimestamp" in document["metadata"]
        if device.state in ("Ready", "Held"):
            assert is_here, (device, document)
            assert not is_leaving, (device, document)
        if is_leaving:
            assert device.state in ("Releasing", "Released", "Failed"), (device, document)
        if device.state not in tree.SETTLED:
            assert device.waits_for or device.state == "Failed", device
    recorded = {document["metadata"]["name"] for document in documents}
    for device in by_name.values():
        assert not device.attachment or device.attachment in recorded, device


def _check_claims(by_name, documents, recorded):
    # A member of a composite shows the claims that have the composite.
    members = [
        (name, attachment["spec"]["device"])
        for attachment in recorded
        for name in _find_composite(attachment)
    ]
    expected = {
        (shown, claim["metadata"]["name"]): [
            consumer["name"] for consumer in claim["status"].get("reservedFor", ())
        ]
        for claim in documents
        for result in _results(claim)
        for name in _names(result)
        for shown in (name, *(member for whole, member in members if whole == name))
    }
    shown = {
        (device.name, claim.name): list(claim.pods) for device in by_name.values() for claim in device.claims
    }
    assert shown == expected


async def settle(storm):
    """Wait until the cluster as it was followed from the beginning, by watches, is the one that is read now."""
    wrong = {}
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                storm.wake.clear()
                whole = await reading.read(storm.api, reading.Target(), driver=DRIVER)
                storm.browser.take(following.page(pages.ABOUT, storm.followed, storm.shown))
                wrong = storm.browser.differences(whole)
                if _tree(storm.followed.cluster()) == _tree(whole) and not wrong:
                    return
                await storm.wake.wait()
    except TimeoutError:
        raise AssertionError(
            f"not the cluster as it is read now; the page, and what it should be: {wrong}"
        ) from None


class Browser:
    """The state of the page in a browser, which reads an update now and then, and never the whole page again."""

    def __init__(self):
        self._page = None
        self._rows, self._rest = {}, {}

    def take(self, page):
        """Receive what is sent to a browser that has not read for a while."""
        update = model.update(self._page, page)
        self._page = page
        if update is None:
            return
        sent = _convert_to_json(update)
        self._rows = {} if sent["isWhole"] else self._rows
        self._rows |= {
            f"{row['device']['pool']} {row['device']['name']}": row for row in sent.get("rows", ())
        }
        for key in sent.get("gone", ()):
            del self._rows[key]
        self._rest |= {
            name: sent[name] for name in ("fabrics", "claims", "unread") if sent.get(name) is not None
        }

    def differences(self, whole):
        """Return by key what the page shows and what it should show, where the two differ."""
        shown = _tree(whole)
        expected = _convert_to_json({row.key: row for row in device_rows.from_tree(shown)}) | {
            "fabrics": sorted([fabric.name, fabric.state, fabric.message] for fabric in shown.fabrics),
            "claims": sorted(
                claim.metadata.name for claim in whole.claims if claim.status.allocation is None
            ),
            "unread": [],
        }
        now = self._rows | {
            "fabrics": sorted(
                [entry["name"], entry["state"], entry["message"]] for entry in self._rest["fabrics"]
            ),
            "claims": sorted(claim["name"] for claim in self._rest["claims"]),
            "unread": self._rest["unread"],
        }
        return {
            key: (now.get(key), expected.get(key))
            for key in now.keys() | expected.keys()
            if now.get(key) != expected.get(key)
        }


def _convert_to_json(value):
    """Return a value as it arrives as JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _tree(cluster):
    """Return the tree of the same objects in order of name."""

    def sort_objects(objects):
        return tuple(sorted(objects, key=lambda item: (item.metadata.namespace, item.metadata.name)))

    return building.build(
        msgspec.structs.replace(
            cluster,
            fabrics=sort_objects(cluster.fabrics),
            slices=sort_objects(cluster.slices),
            attachments=sort_objects(cluster.attachments),
            claims=sort_objects(cluster.claims),
        )
    )


def _decode(documents, into):
    return tuple(msgspec.json.decode(msgspec.json.encode(document), type=into) for document in documents)


def _conditions(document):
    return {
        condition["type"]: condition["status"]
        for condition in document.get("status", {}).get("conditions", ())
    }


def _results(claim):
    return claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())


def _names(result):
    """Return the devices of an allocation result: the device itself and, if there is one, its share."""
    share = result.get("shareID")
    return (result["device"], *([f"share-{share}"] if share else []))


def _find_composite(attachment):
    """Return the attachment's composite in a list, or an empty list."""
    composite = attachment["spec"].get("composite")
    return [composite["name"]] if composite else []
