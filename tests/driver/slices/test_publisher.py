"""What an API server keeps of a published device, found out without a write."""

import pytest

from drawbar.driver.api import meta, slices
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.slices import encoding, publisher
from drawbar.mocks import apiserver

GATES = {"DRADeviceBindingConditions": True, "DRADeviceTaints": True}


@pytest.mark.parametrize(
    ("profile", "gates", "form", "informs"),
    [
        ("1.34", GATES, encoding.Encoding.PER_DEVICE, False),
        ("1.36", None, encoding.Encoding.PER_DEVICE, True),
        ("kep-5055", None, encoding.Encoding.TAINT_SLICE, True),
    ],
)
async def test_the_probe_returns_the_form_of_taints_and_whether_a_taint_may_only_inform(
    tmp_path, profile, gates, form, informs
):
    async with apiserver.serving(profile=profile, gates=gates) as server:
        connection = config.from_kubeconfig(server.kubeconfig(tmp_path / "admin", "admin"))
        async with client.connecting(connection) as api:
            answer = await publisher.probe(api, "drawbar.dev")
            assert (answer.dropped, answer.form, answer.informs) == ((), form, informs)
            assert not (await api.list_all(kinds.SLICE, into=dict)).items


async def test_a_slice_kept_in_memory_gets_a_uid_and_ever_newer_versions():
    store = publisher.Memory()
    pool = slices.Pool(name="p", generation=1, resource_slice_count=1)
    wanted = slices.ResourceSlice(
        metadata=meta.ObjectMeta(name="s"), spec=slices.SliceSpec(driver="drawbar.dev", pool=pool)
    )
    first = await store.create(wanted)
    second = await store.replace(first)
    assert first.metadata.uid == second.metadata.uid != ""
    assert int(second.metadata.resource_version) > int(first.metadata.resource_version)
    assert (await store.find_kept_fields("drawbar.dev")).conditions
