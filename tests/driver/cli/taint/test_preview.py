"""What a preview counts, and how pods are divided into batches."""

import hypothesis
import pytest
from hypothesis import strategies

from drawbar.driver.api import claims, meta, slices, taintrules
from drawbar.driver.cli.taint import observed, preview

TAINT = slices.Taint(key="example.com/recall", value="yes", effect="NoExecute")
DRIVER = "a.dev"


def make_slice(*devices, pool="p", generation=1, driver=DRIVER):
    return slices.ResourceSlice(
        metadata=meta.ObjectMeta(name=f"{driver}-{pool}-{generation}"),
        spec=slices.SliceSpec(
            driver=driver,
            pool=slices.Pool(name=pool, generation=generation, resource_slice_count=1),
            devices=tuple(slices.Device(name=name) for name in devices),
        ),
    )


def claim(name, device, *pods, namespace="default", tolerations=(), annotations=None, pool="p"):
    result = observed.Result(driver=DRIVER, pool=pool, device=device, tolerations=tuple(tolerations))
    return observed.Claim(
        metadata=meta.ObjectMeta(name=name, namespace=namespace, annotations=annotations or {}),
        status=observed.ClaimStatus(
            allocation=observed.Allocation(devices=observed.Devices(results=(result,))),
            reserved_for=tuple(claims.Consumer(resource="pods", name=pod, uid=f"uid-{pod}") for pod in pods),
        ),
    )


def preview_taint(listed=(), allocated=(), **selector):
    snapshot = observed.Snapshot(slices=tuple(listed), claims=tuple(allocated))
    return preview.preview(taintrules.DeviceSelector(**selector), TAINT, snapshot)


def tolerates(**fields):
    return observed.Toleration(**({"key": TAINT.key, "operator": "Exists", "effect": "NoExecute"} | fields))


def test_devices_claims_and_pods_are_counted_by_namespace():
    result = preview_taint(
        [make_slice("d1", "d2"), make_slice("d1", pool="q")],
        [
            claim("c1", "d1", "one", "two"),
            claim("c2", "d2", "three", namespace="team"),
            claim("c3", "d1", "four", pool="q"),
        ],
        pool="p",
    )
    assert [device.name for device in result.published] == ["d1", "d2"]
    assert result.cluster_devices == 3
    assert not result.selects_all
    assert result.namespaces == ("default", "team")
    assert [(pod.namespace, pod.name) for pod in result.evicted] == [
        ("default", "one"),
        ("default", "two"),
        ("team", "three"),
    ]


def test_only_the_newest_generation_of_a_pool_counts_as_published_and_an_allocated_device_counts_as_selected():
    result = preview_taint(
        [make_slice("old"), make_slice("new", generation=2)], [claim("c", "old", "pod")], driver=DRIVER
    )
    assert [device.name for device in result.published] == ["new"]
    assert [device.name for device in result.allocated] == ["old"]
    assert len(result.evicted) == 1


def test_no_selector_selects_nothing():
    snapshot = observed.Snapshot(slices=(make_slice("d1"),), claims=())
    assert preview.preview(None, TAINT, snapshot).published == ()


@pytest.mark.parametrize(
    ("toleration", "fate"),
    [
        pytest.param(tolerates(), preview.Fate.TOLERATES, id="forever"),
        pytest.param(tolerates(toleration_seconds=30), preview.Fate.LATER, id="for a time"),
        pytest.param(tolerates(toleration_seconds=0), preview.Fate.EVICTED, id="for no time"),
        pytest.param(tolerates(key=""), preview.Fate.TOLERATES, id="every key"),
        pytest.param(tolerates(effect=""), preview.Fate.EVICTED, id="every effect, which does not count"),
        pytest.param(tolerates(effect="NoSchedule"), preview.Fate.EVICTED, id="another effect"),
        pytest.param(tolerates(key="example.com/other"), preview.Fate.EVICTED, id="another key"),
        pytest.param(tolerates(operator="Equal", value="yes"), preview.Fate.TOLERATES, id="the value"),
        pytest.param(tolerates(operator="Equal", value="no"), preview.Fate.EVICTED, id="another value"),
    ],
)
def test_the_tolerations_of_an_allocation_decide_the_fate_of_its_pods(toleration, fate):
    result = preview_taint(
        [make_slice("d1")], [claim("c", "d1", "pod", tolerations=[toleration])], device="d1"
    )
    assert [pod.fate for pod in result.pods] == [fate]


def test_a_pod_goes_as_soon_as_one_of_its_devices_makes_it():
    patient = [tolerates(toleration_seconds=30)]
    result = preview_taint(
        [make_slice("d1", "d2")],
        [claim("c1", "d1", "pod", tolerations=patient), claim("c2", "d2", "pod")],
        driver=DRIVER,
    )
    assert [(pod.fate, len(pod.devices), pod.claims) for pod in result.pods] == [
        (preview.Fate.EVICTED, 2, ("c1", "c2"))
    ]


def test_pods_with_extended_resources_stay():
    annotations = {observed.EXTENDED_RESOURCE: "true"}
    result = preview_taint(
        [make_slice("d1")], [claim("c", "d1", "pod", annotations=annotations)], device="d1"
    )
    assert result.evicted == ()
    assert [pod.fate for pod in result.pods] == [preview.Fate.EXTENDED]


def test_the_taints_of_drivers_are_listed_in_both_forms():
    taint = slices.Taint(key="a.dev/hot", effect="None")
    spec = make_slice("d1").spec
    tainted = (
        slices.ResourceSlice(metadata=meta.ObjectMeta(name="s"), spec=spec),
        slices.ResourceSlice(
            metadata=meta.ObjectMeta(name="t"),
            spec=slices.SliceSpec(
                driver=DRIVER, pool=spec.pool, taints=(slices.SliceTaint(device="d1", taint=taint),)
            ),
        ),
        slices.ResourceSlice(
            metadata=meta.ObjectMeta(name="u"),
            spec=slices.SliceSpec(
                driver=DRIVER, pool=spec.pool, devices=(slices.Device(name="d2", taints=(taint,)),)
            ),
        ),
    )
    assert [(device.name, entry.key) for device, entry in preview.taints(tainted)] == [
        ("d1", "a.dev/hot"),
        ("d2", "a.dev/hot"),
    ]


@hypothesis.given(
    users=strategies.dictionaries(
        strategies.sampled_from("abcdefgh"), strategies.sets(strategies.integers(0, 12)), max_size=8
    ),
    size=strategies.integers(1, 5),
)
def test_each_pod_is_in_one_batch_that_has_a_device_of_it_and_no_batch_is_larger_than_it_must_be(users, size):
    allocated = [
        claim(f"c-{device}", device, *(f"pod-{number}" for number in sorted(pods)))
        for device, pods in users.items()
    ]
    pods = preview_taint([], allocated, driver=DRIVER).evicted
    divided = preview.batches(pods, size)
    assert sorted(uid for batch in divided for uid in batch.pods) == sorted(pod.uid for pod in pods)
    devices = [device for batch in divided for device in batch.devices]
    assert sorted(devices) == sorted({device for pod in pods for device in pod.devices})
    gone = set()
    for batch in divided:
        reached = {pod.uid for pod in pods if set(pod.devices) & set(batch.devices)}
        assert batch.pods == reached - gone, "no pod goes before its batch"
        gone |= reached
        assert (
            len(batch.pods) <= size
            or len([d for d in batch.devices if {p.uid for p in pods if d in p.devices} & batch.pods]) == 1
        )
