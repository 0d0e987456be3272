"""A configuration file is strict, and each mistake is one sentence."""

import pytest

from drawbar.driver import errors
from drawbar.driver.cli.fabric import sources

MINIMAL = "adapter: grpc\nendpoint: unix:/x\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("adapter: grpc\n", "endpoint is missing"),
        (MINIMAL + "parametres: {}\n", "parametres is not a setting; did you mean parameters?"),
        (MINIMAL + "tls: {verfy: false}\n", "tls.verfy is not a setting; did you mean verify?"),
        (MINIMAL + "timeoutSeconds: soon\n", "timeoutSeconds: expected `int`, got `str`; correct it"),
        (MINIMAL + "timeoutSeconds: 0\n", "timeoutSeconds is out of range"),
        (MINIMAL + "tls: {verify: 1}\n", "tls: expected `bool`, got `int` at `tls.verify`"),
        (MINIMAL + "adapter: qemu\n", "line 3: the key adapter appears twice"),
        (MINIMAL + "policy: {models: [{model: A, most: 1}]}\n", "policy.models[0].most is not a setting"),
        (MINIMAL + "credentialsSecretRef: {name: a}\n", "credentialsSecretRef needs a cluster"),
        (MINIMAL + "credentialFiles: {pasword: a}\n", "cannot read"),
        (MINIMAL + "password: SECRET\n", "write it into a file"),
        ("kind: Fabric\nspec: {}\n", "write only the content of its spec"),
        ("adapter: [SECRET", "line 1 is not YAML"),
        ("[1]", "holds no keys"),
        ("", "holds no keys"),
        ("\x00", "not YAML"),
        ("a: &a [*a]", "adapter is missing"),
        ("? [1, 2]\n: 3\n", "not YAML"),
    ],
)
def test_a_mistake_is_a_sentence_without_values(tmp_path, content, sentence):
    path = tmp_path / "fabric.yaml"
    path.write_text(content)
    with pytest.raises(errors.UsageError) as caught:
        sources.from_file(path)
    assert sentence in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_all_mistakes_come_at_once(tmp_path):
    path = tmp_path / "fabric.yaml"
    path.write_text("adapter: 1\nmaintenence: []\n")
    with pytest.raises(errors.UsageError) as caught:
        sources.from_file(path)
    assert len(str(caught.value).splitlines()) == 3


def test_files_of_credentials_are_read_from_the_folder_of_the_configuration(tmp_path):
    (tmp_path / "secret").write_text("not-to-be-shown\n")
    path = tmp_path / "fabric.yaml"
    path.write_text(MINIMAL + "credentialFiles: {token: secret}\n")
    source = sources.from_file(path)
    assert source.credentials.token == "not-to-be-shown"
    assert "not-to-be-shown" not in repr(source)


def test_a_file_that_is_not_there_or_too_large_is_a_sentence(tmp_path):
    with pytest.raises(errors.UsageError, match="No such file"):
        sources.from_file(tmp_path / "none")
    (tmp_path / "large").write_bytes(b"#" * (sources.LIMIT_BYTES + 1))
    with pytest.raises(errors.UsageError, match="has more than"):
        sources.from_file(tmp_path / "large")
