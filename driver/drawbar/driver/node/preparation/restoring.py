"""The decision of a starting daemon about the claims of the last instance. It changes nothing itself.

A readable record counts: the claim holds its devices. Its CDI file is written again if its devices are present. A CDI file
without a record is removed, because records are written first. A `started` record with a CDI file becomes `completed`,
because that file is written last. A `started` record without a CDI file stays, because no container got the devices;
`sweeping` drops it once its claim is gone.

A reboot ends every container. So every record of an earlier boot becomes `started`: it holds its devices until the kubelet
prepares or unprepares them. Its CDI file is removed, because a device may have to be made ready again; the next Prepare
writes it. So a claim with a CDI file was prepared in this boot.

If a record was lost, the CDI file lists the claim's devices, and the attachments explain them. A claim without such an
explanation becomes `unexplained`: its devices are refused until `sweeping` has read the claim. If the claim is gone by then,
its CDI file is removed.
"""

import logging
from collections.abc import Mapping

import msgspec

from drawbar.cdi import spec
from drawbar.driver.node import edits, errors
from drawbar.driver.node.preparation import lookup, records

log = logging.getLogger(__name__)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The state that the last instance left.

    Attributes:
        claims: the recorded claims.
        files: the names of the CDI devices, by claim UID.
        unrecorded: the UIDs of the claims with a CDI file and a lost record.
    """

    claims: records.Claims
    files: Mapping[str, tuple[str, ...]]
    unrecorded: frozenset[str]


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The record and the CDI files to write at a start.

    Attributes:
        claims: the claims to record.
        specs: the CDI files to write again, by claim UID.
        ended: the UIDs of the recorded claims whose CDI file is removed.
    """

    claims: records.Claims
    specs: Mapping[str, spec.Spec]
    ended: frozenset[str] = frozenset()


def decide(left: Found, finder: lookup.Finder, *, boot_id: str) -> Restored:
    """Return the record and the CDI files from now on."""
    claims: dict[str, records.PreparedClaim] = {}
    specs: dict[str, spec.Spec] = {}
    ended: set[str] = set()
    for uid, recorded in left.claims.items():
        rebooted = recorded.boot_id not in ("", boot_id)
        if rebooted and recorded.state == records.UNEXPLAINED:
            # It was kept for a container, which the reboot has ended.
            continue
        claims[uid] = claim = _keep_over_reboot(recorded) if rebooted else _keep_over_restart(recorded, left)
        if rebooted:
            ended.add(uid)
        # The kubelet had no answer about a `started` claim, so it prepares the claim again.
        elif claim.state not in (records.STARTED, records.UNEXPLAINED):
            _write_again(claim, finder, specs)
    for uid in left.unrecorded:
        claims[uid] = claim = _explain(uid, left.files[uid], finder)
        if claim.state != records.UNEXPLAINED:
            _write_again(claim, finder, specs)
    now = {uid: msgspec.structs.replace(claim, boot_id=boot_id) for uid, claim in claims.items()}
    return Restored(claims=now, specs=specs, ended=frozenset(ended))


def _keep_over_restart(claim: records.PreparedClaim, left: Found) -> records.PreparedClaim:
    is_completed = claim.state == records.STARTED and claim.uid in left.files
    return claim.in_state(records.COMPLETED) if is_completed else claim


def _keep_over_reboot(claim: records.PreparedClaim) -> records.PreparedClaim:
    return claim.in_state(records.STARTED)


def _explain(uid: str, names: tuple[str, ...], finder: lookup.Finder) -> records.PreparedClaim:
    """Return the record of a claim with these devices in its CDI file, as far as attachments explain them."""
    devices = {name.removeprefix(f"{uid}-"): name for name in names}
    attached = {attachment.spec.device: attachment for attachment in finder.find_attachments(uid)}
    claim = next(
        (attachment.spec.claim for attachment in attached.values() if attachment.spec.claim is not None), None
    )
    # The parameters of a claim that has to be read are not in the attachments, for example.
    complete = claim is not None and claim.devices > 0 and devices.keys() <= attached.keys()
    if not complete:
        log.warning("only its CDI file names a claim; refusing its devices", extra={"uid": uid})
    held = []
    for device in sorted(devices.keys() | attached.keys()):
        attachment = attached.get(device)
        reference = attachment.spec.claim if attachment is not None else None
        held.append(
            records.PreparedDevice(
                pool=attachment.spec.pool if attachment is not None else "",
                device=device,
                cdi_id=f"{edits.kind(finder.driver)}={devices.get(device, f'{uid}-{device}')}",
                requests=reference.requests if reference is not None else (),
                serial=attachment.identity.serial if attachment is not None else "",
                share_id=attachment.spec.share_id if attachment is not None else None,
                composite=attachment.spec.allocated
                if attachment is not None and attachment.spec.allocated != device
                else "",
            )
        )
    return records.PreparedClaim(
        namespace=claim.namespace if claim is not None else "",
        name=claim.name if claim is not None else "",
        uid=uid,
        devices=tuple(held),
        state=records.COMPLETED if complete else records.UNEXPLAINED,
    )


def _write_again(claim: records.PreparedClaim, finder: lookup.Finder, specs: dict[str, spec.Spec]) -> None:
    """Add the claim's CDI file to `specs`, if all its devices are present and ready."""
    devices: dict[str, spec.Device] = {}
    # In the order of `preparer`.
    for held in sorted(claim.devices, key=lambda device: not device.admin):
        try:
            content = finder.find_prepared(held, claim.uid)
        except errors.PrepareError as error:
            log.warning(
                "cannot write the CDI file again: %s", error, extra={"claim": claim.name, "uid": claim.uid}
            )
            return
        devices[content.name] = content
    if devices:
        specs[claim.uid] = spec.Spec(kind=edits.kind(finder.driver), devices=tuple(devices.values()))
