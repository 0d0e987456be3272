"""Fabrics whose manager asks for credentials: one Secret each, followed by its name, and shown nowhere."""

import base64
import json
import logging

import aiohttp
import pytest

from drawbar.driver import logs
from drawbar.driver.api import core, meta
from drawbar.driver.controller import settings
from drawbar.driver.controller.fabrics import credentials
from drawbar.driver.kube import client, config, errors, kinds

TOKEN = "s3cret-t0ken"
OTHER = "an0ther-t0ken"
SECRET = {"credentialsSecretRef": {"name": "fabric-credentials"}}
PEM = "-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n"


def encode_secret(values):
    return {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}


async def put_secret(cluster, *, name="fabric-credentials", **values):
    """Write the Secret of a Fabric; it names the endpoint of the world's own fabric."""
    if values:
        values = {"origins": f"unix:{cluster.path / 'f.sock'}\n"} | values
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encode_secret(values)}
    try:
        await cluster.api.create(kinds.SECRET, body, namespace="drawbar", into=dict)
    except errors.AlreadyExists:
        await cluster.api.replace(kinds.SECRET, name, body, namespace="drawbar", into=dict)


# --- what stands in a Secret ---


def parse_secret(**values):
    return credentials.parse(encode_secret(values))


def test_every_key_has_one_meaning_and_the_end_of_a_files_line_none():
    parsed, problems = parse_secret(username="admin", password="hunter2\n", token="t\r\n")
    assert problems == ()
    assert (parsed.username, parsed.password, parsed.token) == ("admin", "hunter2", "t")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tokn": "hunter2"}, "the key tokn is unknown"),
        ({"token": ""}, "token is empty"),
        ({"token": "hun\nter2"}, "cannot be printed"),
        ({"username": "hunter2"}, "a username and no password"),
        ({"tls.crt": PEM}, "a certificate and no key"),
        ({"tls.crt": PEM, "tls.key": PEM}, "are no PEM, do not belong together"),
        ({"ca.crt": "hunter2"}, "the authority is not a PEM certificate"),
        ({"ca.crt": PEM}, "the authority is not a PEM certificate"),
    ],
)
def test_a_wrong_secret_is_reported_by_key_and_never_by_value(values, words):
    _, problems = parse_secret(**values)
    assert words in "; ".join(problems)
    assert "hunter2" not in str(problems)


def test_bytes_that_are_no_text_are_reported():
    data = {"token": base64.b64encode(b"\xff\xfe").decode(), "password": "no base64!"}
    secret = core.Secret(metadata=meta.ObjectMeta(name="s", namespace="ns"), data=data)
    _, problems = credentials.parse(secret.data)
    assert sorted(problems) == ["password is not UTF-8 text", "token is not UTF-8 text"]
    assert repr(secret) == "Secret(ns/s)"


# --- a Fabric with a Secret ---


async def test_credentials_are_used_and_a_new_token_needs_no_restart(controller_world, until):
    async with controller_world(token=TOKEN) as cluster:
        await put_secret(cluster, token=TOKEN)
        cluster.start()
        await cluster.make_fabric(**SECRET)
        await cluster.wait_for_slices()
        await cluster.condition("Connected", reason="Connected")
        # The manager changes first; what is connected is refused by and by.
        cluster.fabric.door.token = OTHER
        cluster.fabric.console.resync()
        refused = await cluster.condition("Connected", reason="Unauthenticated")
        assert "does not know this token" in refused["message"]
        await put_secret(cluster, token=OTHER)
        await cluster.condition("Connected", reason="Connected")
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")


async def test_refused_credentials_are_retried_and_blame_no_device(served_world, until):
    refused = {"effect": "refuse", "method": "attach", "code": "PERMISSION_DENIED", "times": 2}
    async with served_world(faults=[refused]) as cluster:
        await cluster.allocate("gpu-0")
        device_conditions = await until(cluster.device_conditions, lambda value: value.get("gpu-0"))
        assert device_conditions == {"gpu-0": {"attached": "Attached"}}
        assert not any("taints" in device for spec in await cluster.slices() for device in spec["devices"])


async def test_a_secret_that_is_missing_wrong_or_forbidden_is_reported_and_stops_no_other_fabric(
    controller_world, until
):
    async with controller_world(token=TOKEN) as cluster:
        cluster.start()
        await cluster.make_fabric(**SECRET)
        missing = await cluster.condition("Connected", reason="CredentialsMissing")
        assert "Secret drawbar/fabric-credentials does not exist" in missing["message"]
        await cluster.make_fabric("other", credentialsSecretRef={"name": "not-named-in-the-role"})
        forbidden = await cluster.condition("Connected", "other", reason="CredentialsForbidden")
        assert "resourceNames of Role drawbar/drawbar-fabric-credentials" in forbidden["message"]
        await put_secret(cluster)
        await until(
            lambda: cluster.fabric_condition("Connected"),
            lambda condition: "has no credentials" in condition.get("message", ""),
        )
        await put_secret(cluster, **{"tls.crt": PEM, "tls.key": PEM})
        wrong = await cluster.condition("Connected", reason="CredentialsInvalid")
        assert wrong["message"].startswith(
            "Secret drawbar/fabric-credentials: certificate and key are no PEM"
        )
        await put_secret(cluster, token=TOKEN)
        await cluster.condition("Connected", reason="Connected")
        # Whoever deletes it takes the permission back.
        await cluster.api.delete(kinds.SECRET, "fabric-credentials", namespace="drawbar")
        await cluster.condition("Connected", reason="CredentialsMissing")


async def test_the_controller_can_read_no_secret_but_those_of_its_role(controller_world):
    async with controller_world() as cluster:
        await put_secret(cluster, token=TOKEN)
        await put_secret(cluster, name="another", token=TOKEN)
        from_file = config.from_kubeconfig(cluster.path / "controller")
        async with client.connecting(from_file) as own:
            only = "metadata.name=fabric-credentials"
            secrets = await own.list_all(kinds.SECRET, namespace="drawbar", fields=only, into=dict)
            assert len(secrets.items) == 1
            for asked in (
                own.list_all(kinds.SECRET, namespace="drawbar", into=dict),
                own.list_all(kinds.SECRET, namespace="drawbar", fields="metadata.name=another", into=dict),
                own.list_all(kinds.SECRET, namespace="default", fields=only, into=dict),
                own.read(kinds.SECRET, "another", namespace="drawbar", into=dict),
            ):
                with pytest.raises(errors.Denied):
                    await asked


async def test_a_secret_quoted_by_manager_or_adapter_is_shown_nowhere(
    controller_world, until, caplog, tmp_path
):
    """The token is in the manager's refusals, in its failed operations, and in the adapter's error."""
    caplog.set_level(logging.DEBUG)
    quoting = {
        "effect": "fail",
        "method": "attach",
        "code": "FAILED_PRECONDITION",
        "message": f"not with {TOKEN}",
    }
    refusing = {"effect": "refuse", "method": "hosts", "message": f"{TOKEN} came too often", "times": 2}
    async with controller_world(token=TOKEN, faults=[quoting, refusing]) as cluster:
        await put_secret(cluster, token=TOKEN)
        cluster.start(http=settings.Http(address=f"unix:{tmp_path}/http.sock"))
        await cluster.make_fabric(**SECRET)
        await cluster.wait_for_slices()
        await cluster.allocate("gpu-0")
        await cluster.wait_until_failed("gpu-0")
        cluster.fabric.door.token, cluster.fabric.door.blabs = OTHER, True
        cluster.fabric.console.resync()
        condition = await cluster.condition("Connected", reason="Unauthenticated")
        assert "[redacted]" in condition["message"]
        everything = [
            (await cluster.api.list_all(kind, into=dict)).items
            for kind in (kinds.FABRIC, kinds.ATTACHMENT, kinds.CLAIM, kinds.SLICE, kinds.NODE, kinds.EVENT)
        ]
        metrics = await _metrics(tmp_path / "http.sock")
    lines = [logs._Json().format(record) for record in caplog.records if _is_ours(record)]
    assert "not with [redacted]" in json.dumps(everything), "the claim has the reason"
    for text in (json.dumps(everything), "\n".join(lines), metrics):
        assert TOKEN not in text
        assert base64.b64encode(TOKEN.encode()).decode() not in text
    assert lines


def _is_ours(record):
    return record.name.startswith("drawbar.driver") or record.name.startswith("drawbar.fabric")


async def _metrics(path):
    connector = aiohttp.UnixConnector(str(path))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get("http://drawbar/metrics") as answer,
    ):
        assert answer.status == 200
        return await answer.text()
