"""What a start makes of what the last instance left, decided without touching anything.

Rules. A record that can be read is believed: it holds its devices, its CDI files are written again where the device is
still there, and a CDI file without a record goes, as records are written first. `started` with its CDI file is
completed, since the file is written last; without it no container was given the devices, so it stays `started`, and
`sweeping` drops it once its claim is gone.

A reboot ends every container. So every record is `started` again: it holds its devices, because the kubelet prepares
them anew or unprepares them, and its CDI files are written again where the very device is there.

Without a record the CDI files say who has devices. The attachments explain them; what they do not explain is
`unexplained`: its devices are refused until `sweeping` has asked the API server. If the claim is gone then, so is the file.
"""

import logging
from collections.abc import Mapping

from drawbar.cdi import spec
from drawbar.driver.node import edits, errors
from drawbar.driver.node.preparation import finding, ledger, records, store

log = logging.getLogger(__name__)

Claims = dict[str, records.PreparedClaim]


def decide(found: store.Found, finder: finding.Finder, *, boot_id: str) -> ledger.Restored:
    """The record and the files from now on."""
    before = found.content or records.Content()
    rebooted = before.boot_id not in ("", boot_id)
    if found.content is None:
        held = rebuilt(found.files, finder)
    else:
        held = after_reboot(before.claims) if rebooted else after_restart(before.claims, found.files)
    specs = {}
    for claim in held.values():
        if claim.state == records.UNEXPLAINED:
            continue
        if claim.state == records.STARTED and not rebooted:
            # Nobody was told that it is prepared; the kubelet asks again.
            continue
        content = _written_again(claim, finder)
        if content is not None:
            specs[claim.uid] = content
    return ledger.Restored(
        content=records.Content(boot_id=boot_id, claims=held, unknown=before.unknown),
        specs=specs,
        strays=frozenset(found.files.keys() - held.keys()),
    )


def after_restart(claims: Mapping[str, records.PreparedClaim], files: Mapping[str, object]) -> Claims:
    """The records of a process that ended, at whatever moment."""
    return {
        uid: claim.in_state(records.COMPLETED) if claim.state == records.STARTED and uid in files else claim
        for uid, claim in claims.items()
    }


def after_reboot(claims: Mapping[str, records.PreparedClaim]) -> Claims:
    """The records of before the reboot. What nobody explained was kept for a container, and that has ended."""
    return {
        uid: claim.in_state(records.STARTED)
        for uid, claim in claims.items()
        if claim.state != records.UNEXPLAINED
    }


def rebuilt(files: Mapping[str, tuple[str, ...]], finder: finding.Finder) -> Claims:
    """What the CDI files and the attachments tell when there is no record."""
    return {uid: _explained(uid, names, finder) for uid, names in files.items()}


def _explained(uid: str, names: tuple[str, ...], finder: finding.Finder) -> records.PreparedClaim:
    devices = {name.removeprefix(f"{uid}-"): name for name in names}
    known = {attachment.spec.device: attachment for attachment in finder.attached_for(uid)}
    claim = next((one.spec.claim for one in known.values() if one.spec.claim is not None), None)
    # Of a claim that the node has to read, the attachments do not know the parameters, for one.
    complete = claim is not None and claim.devices > 0 and devices.keys() <= known.keys()
    if not complete:
        log.warning("only its CDI file tells of a claim; refusing its devices", extra={"uid": uid})
    held = []
    for device in sorted(devices.keys() | known.keys()):
        attachment = known.get(device)
        reference = attachment.spec.claim if attachment is not None else None
        held.append(
            records.PreparedDevice(
                pool=attachment.spec.pool if attachment is not None else "",
                device=device,
                cdi_id=f"{edits.kind(finder.driver)}={devices.get(device, f'{uid}-{device}')}",
                requests=reference.requests if reference is not None else (),
                serial=attachment.spec.identity.serial if attachment is not None else "",
            )
        )
    return records.PreparedClaim(
        namespace=claim.namespace if claim is not None else "",
        name=claim.name if claim is not None else "",
        uid=uid,
        devices=tuple(held),
        state=records.COMPLETED if complete else records.UNEXPLAINED,
    )


def _written_again(claim: records.PreparedClaim, finder: finding.Finder) -> spec.Spec | None:
    devices: dict[str, spec.Device] = {}
    for held in claim.devices:
        try:
            content = finder.again(held, claim.uid)
        except errors.PrepareError as error:
            log.warning(
                "cannot write the CDI file again: %s", error, extra={"claim": claim.name, "uid": claim.uid}
            )
            return None
        devices[content.name] = content
    if not devices:
        return None
    return spec.Spec(kind=edits.kind(finder.driver), devices=tuple(devices.values()))
