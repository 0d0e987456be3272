"""The files that describe a claim's devices to its containers (KEP-5304)."""

import json

import msgspec
import pytest

from drawbar.driver.api import claims, meta
from drawbar.driver.kube import kinds
from drawbar.driver.node import errors
from drawbar.driver.node.preparation import metadata, records

DRIVER = "drawbar.dev"
ROOT = "/var/run/kubernetes.io/dra-device-attributes"
TEMPLATE = {claims.POD_CLAIM_ANNOTATION: "gpu"}


def device(name="d1", *, requests=("disk",), network=None):
    return records.PreparedDevice(pool="p", device=name, cdi_id=name, requests=requests, network=network)


def claim(*results, name="c1", annotations=None):
    listed = tuple(
        claims.AllocationResult(request=request, driver=DRIVER, pool="p", device=device)
        for request, device in results
    )
    return claims.PodClaim(
        metadata=meta.ObjectMeta(
            name=name, namespace="default", uid="u1", annotations=annotations or {"secret": "x"}
        ),
        status=claims.ClaimStatus(
            allocation=claims.Allocation(devices=claims.DeviceAllocation(results=listed))
        ),
    )


def describe_devices(*devices, **values):
    return [metadata.DescribedDevice(record=record, values=values) for record in devices]


def test_a_file_names_claim_request_and_devices_with_their_attributes():
    network = records.Network(interface_name="net0", hardware_address="02:00:00:00:00:01")
    listed = describe_devices(device(network=network), model="X", numaNode=1, fast=True) + describe_devices(
        device("d2", requests=("disk", "other"))
    )
    by_request = metadata.documents(
        claim(("disk/large", "d1"), ("disk/large", "d2"), ("other", "d2"), annotations=TEMPLATE),
        DRIVER,
        listed,
    )
    second = {"driver": DRIVER, "pool": "p", "name": "d2"}
    assert by_request["disk"] == {
        "kind": "DeviceMetadata",
        "metadata": {"name": "c1", "namespace": "default", "uid": "u1"},
        "podClaimName": "gpu",
        "requests": [
            {
                "name": "disk/large",
                "devices": [
                    {
                        "driver": DRIVER,
                        "pool": "p",
                        "name": "d1",
                        "attributes": {
                            "fast": {"bool": True},
                            "model": {"string": "X"},
                            "numaNode": {"int": 1},
                        },
                        "networkData": {"interfaceName": "net0", "hardwareAddress": "02:00:00:00:00:01"},
                    },
                    second,
                ],
            }
        ],
    }
    assert by_request["other"]["requests"] == [{"name": "other", "devices": [second]}]


@pytest.mark.parametrize(
    ("annotations", "folder"), [(None, "resourceclaims/c1"), (TEMPLATE, "resourceclaimtemplates/gpu")]
)
def test_the_first_device_of_a_request_brings_its_file(tmp_path, annotations, folder):
    files = metadata.Files(tmp_path, DRIVER, enabled=True)
    first, second = metadata.mount(
        [device(), device("d2", requests=("disk", "other"))], claim(annotations=annotations), files
    )
    assert [(mount.host_path, mount.container_path) for mount in (*first.mounts, *second.mounts)] == [
        (
            str(tmp_path / "metadata" / "u1" / f"{request}.json"),
            f"{ROOT}/{folder}/{request}/{DRIVER}-metadata.json",
        )
        for request in ("disk", "other")
    ]


@pytest.mark.parametrize(
    ("name", "request_name"),
    [("../../etc", "disk"), ("c1", "../x"), ("c1", "a/b"), ("c1", ".."), ("c1", "Ä")],
)
def test_no_name_leads_out_of_its_directory(tmp_path, name, request_name):
    files = metadata.Files(tmp_path, DRIVER, enabled=True)
    with pytest.raises(errors.PrepareError, match="which no file can have"):
        files.mounts(claim(name=name), (request_name,))
    called = claim(annotations={claims.POD_CLAIM_ANNOTATION: name})
    with pytest.raises(errors.PrepareError, match="which no file can have"):
        files.mounts(called, (request_name,))


def generation(file):
    (number,) = {json.loads(line)["metadata"]["generation"] for line in file.read_text().splitlines()}
    return number


def test_a_file_has_each_version_and_the_newest_first(tmp_path):
    files = metadata.Files(tmp_path, DRIVER, enabled=True)
    files.write(claim(("disk", "d1")), describe_devices(device(), model="X"))
    beta, alpha = map(json.loads, (tmp_path / "metadata" / "u1" / "disk.json").read_text().splitlines())
    assert beta.pop("apiVersion") == "metadata.resource.k8s.io/v1beta1"
    assert alpha.pop("apiVersion") == "metadata.resource.k8s.io/v1alpha1"
    assert beta == alpha
    assert beta["requests"][0]["devices"][0]["attributes"] == {"model": {"string": "X"}}


def test_a_file_of_the_release_before_gets_the_newer_version_and_goes_on_counting(tmp_path):
    files = metadata.Files(tmp_path, DRIVER, enabled=True)
    file = tmp_path / "metadata" / "u1" / "disk.json"
    files.write(claim(("disk", "d1")), describe_devices(device(), model="X"))
    alpha = file.read_text().splitlines()[1]
    file.unlink()
    file.write_text(alpha.replace('"generation":1', '"generation":4') + "\n")
    files.write(claim(("disk", "d1")), describe_devices(device(), model="X"))
    assert generation(file) == 5


@pytest.mark.parametrize(
    "damage", [b"", b"{", b'{"metadata": 1}', b'{"metadata": {"generation": "x"}}', b"[]"]
)
def test_a_file_is_written_again_only_with_another_content_and_a_higher_generation(tmp_path, damage):
    files = metadata.Files(tmp_path, DRIVER, enabled=True)
    file = tmp_path / "metadata" / "u1" / "disk.json"
    files.write(claim(("disk", "d1")), describe_devices(device(), model="X"))
    assert (generation(file), file.stat().st_mode & 0o777) == (1, 0o444)
    before = file.stat()
    files.write(claim(("disk", "d1")), describe_devices(device(), model="X"))
    assert file.stat().st_ino == before.st_ino
    files.write(claim(("disk", "d1")), describe_devices(device(), model="Y"))
    assert generation(file) == 2
    file.chmod(0o644)
    file.write_bytes(damage)
    files.write(claim(("disk", "d1")), describe_devices(device(), model="Y"))
    assert generation(file) == 1


def test_failures_to_write_or_remove_are_reported(tmp_path):
    (tmp_path / "metadata").write_text("")
    files = metadata.Files(tmp_path, DRIVER, enabled=True)
    with pytest.raises(errors.PrepareError, match="read-write"):
        files.write(claim(("disk", "d1")), describe_devices(device()))
    with pytest.raises(errors.PrepareError, match="cannot remove"):
        files.remove("u1")
    files.remove("../..")
    assert files.owners() == frozenset()


async def prepare_claim(world, **annotations):
    """Prepare a claim with d1 where files are wanted; return its name."""
    world.described = True
    await world.restart_preparer()
    name = await world.claim()
    if annotations:
        await world.patch(kinds.CLAIM, name.name, {"metadata": {"annotations": annotations}})
    world.attached = [world.make_full_attachment("d1", name.uid)]
    await world.preparer.prepare(name)
    return name


def mounts(world, uid):
    file = json.loads((world.cdi_dir / f"{DRIVER}-{uid}.json").read_text())
    return [mount for entry in file["devices"] for mount in entry["containerEdits"].get("mounts", [])]


async def test_a_container_gets_the_file_of_its_request(world):
    name = await prepare_claim(world, **TEMPLATE)
    (mount,) = mounts(world, name.uid)
    assert mount["containerPath"] == f"{ROOT}/resourceclaimtemplates/gpu/disk/{DRIVER}-metadata.json"
    assert "ro" in mount["options"]
    file = world.folder / "metadata" / name.uid / "disk.json"
    assert mount["hostPath"] == str(file)
    document = json.loads(file.read_text().splitlines()[0])
    assert document["metadata"] == {"name": "c1", "namespace": "default", "uid": name.uid, "generation": 1}
    ((entry,),) = [request["devices"] for request in document["requests"]]
    card = world.card(world.attached[0])
    assert entry["attributes"]["resource.kubernetes.io/pciBusID"] == {"string": card.address}
    assert entry["attributes"]["deviceID"] == {"string": world.attached[0].device_id}


async def test_the_file_stays_over_a_restart_and_goes_with_the_claim(world):
    name = await prepare_claim(world)
    before = mounts(world, name.uid)
    # Whoever turns it off keeps what containers have.
    world.described = False
    await world.restart_preparer()
    assert mounts(world, name.uid) == before
    assert (world.folder / "metadata" / name.uid / "disk.json").exists()
    await world.reboot()
    assert (world.folder / "metadata" / name.uid / "disk.json").exists()
    await world.preparer.unprepare(name)
    assert list((world.folder / "metadata").iterdir()) == []


async def test_files_of_no_record_go_at_a_start(world):
    name = await prepare_claim(world)
    (world.folder / "metadata" / "gone").mkdir()
    (world.folder / "metadata" / "gone" / "disk.json").write_text("{}")
    await world.restart_preparer()
    assert [path.name for path in (world.folder / "metadata").iterdir()] == [name.uid]


async def test_without_the_setting_no_claim_is_read_and_no_file_written(world):
    name = await world.claim()
    world.attached = [world.make_full_attachment("d1", name.uid)]
    await world.remove()
    await world.preparer.prepare(name)
    assert mounts(world, name.uid) == []
    assert not (world.folder / "metadata").exists()


async def test_a_claim_that_cannot_be_read_is_not_prepared_and_holds_nothing(world):
    world.described = True
    await world.restart_preparer()
    name = await world.claim()
    world.attached = [world.make_full_attachment("d1", name.uid)]
    await world.remove()
    with pytest.raises(errors.PrepareError, match="does not exist any more"):
        await world.preparer.prepare(name)
    assert world.preparer.holders.find("p", "d1") is None
    assert world.claims() == {}


async def test_an_older_version_reads_the_record(world):
    name = await prepare_claim(world)
    (held,) = world.claims()[name.uid]["devices"]
    assert records.parse(world.claims()[name.uid]).devices[0].mounts == (
        msgspec.convert(held["mounts"][0], records.Mount),
    )
