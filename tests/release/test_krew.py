"""The manifest of the plugin keeps the rules of krew, and names the archives that are there.

The rules are those of krew v0.5.0: internal/index/validation, cmd/validate-krew-manifest (which its index runs), and the guide
"Writing Krew plugin manifests".
"""

import hashlib
import io
import re
import tarfile

import krew
import pytest
import yaml

URL = "https://forge.example.com/drawbar/releases/download/v0.1.0"
HOMEPAGE = "https://forge.example.com/drawbar"
SHORT_DESCRIPTION_CHARACTERS = 50
LICENCES = {
    f"{name}{ending}" for name in ("license", "licenses", "copying") for ending in ("", ".txt", ".md")
} - {"copying.md"}
PLATFORMS = {
    *((system, arch) for system in ("windows", "linux", "darwin") for arch in ("386", "amd64", "arm64")),
    *(("linux", "arm"), ("linux", "ppc64le")),
}


def archive(folder, arch, files=krew.FILES, version="0.1.0"):
    """Write an archive with these files by mode; return it."""
    path = folder / f"kubectl-drawbar_{version}_linux_{arch}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, mode in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(arch), mode
            tar.addfile(member, io.BytesIO(arch.encode()))
    return path


@pytest.fixture
def archives(tmp_path):
    """Return by processor the archives of a release, all in one folder."""
    return {arch: archive(tmp_path, arch) for arch in krew.ARCHITECTURES}


@pytest.fixture
def text(archives, tmp_path):
    """Return the manifest of these archives."""
    assert archives
    return krew.manifest("v0.1.0", tmp_path, url=URL, homepage=HOMEPAGE)


def test_the_manifest_names_each_archive_by_its_address_and_sum(text, archives):
    platforms = yaml.safe_load(text)["spec"]["platforms"]
    assert {platform["uri"]: platform["sha256"] for platform in platforms} == {
        f"{URL}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in archives.values()
    }
    for platform in platforms:
        assert f"_linux_{platform['selector']['matchLabels']['arch']}.tar.gz" in platform["uri"]


def test_the_manifest_is_one_that_krew_takes(text):
    plugin = yaml.safe_load(text)
    assert plugin["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert plugin["kind"] == "Plugin"
    # The file's name too: release.yaml writes drawbar.yaml.
    assert plugin["metadata"] == {"name": "drawbar"}
    assert re.fullmatch(r"[\w-]+", plugin["metadata"]["name"])
    spec = plugin["spec"]
    # Unknown fields are refused.
    assert spec.keys() == {
        *("version", "homepage", "shortDescription", "description", "caveats", "platforms")
    }
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= SHORT_DESCRIPTION_CHARACTERS
    assert not {"\r", "\n"} & set(spec["shortDescription"])
    assert "kubectl" not in spec["shortDescription"].lower()
    assert spec["platforms"]
    for platform in spec["platforms"]:
        assert platform.keys() <= {"uri", "sha256", "bin", "files", "selector"}
        assert re.fullmatch(r"[a-f0-9]{64}", platform["sha256"])
        assert platform["uri"].startswith("https://")
        assert platform["uri"].endswith((".zip", ".tar.gz"))
        assert platform.get("files") != []
        assert platform["selector"]["matchLabels"].keys() == {"os", "arch"}


def test_each_platform_is_one_of_krew_and_no_machine_matches_two(text):
    labels = [
        tuple(platform["selector"]["matchLabels"][key] for key in ("os", "arch"))
        for platform in yaml.safe_load(text)["spec"]["platforms"]
    ]
    assert labels == [("linux", "amd64"), ("linux", "arm64")]
    assert set(labels) <= PLATFORMS
    assert len(set(labels)) == len(labels)


def test_the_program_and_a_licence_are_in_the_archive_that_is_unpacked_whole(text, archives):
    for platform, path in zip(yaml.safe_load(text)["spec"]["platforms"], archives.values(), strict=True):
        assert "files" not in platform
        with tarfile.open(path) as tar:
            names = set(tar.getnames())
            assert tar.getmember(platform["bin"]).mode & 0o111
        assert {name.lower() for name in names} & LICENCES


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"kubectl-drawbar": 0o755}, id="no licence"),
        pytest.param({"LICENSE": 0o644}, id="no program"),
        pytest.param({"kubectl-drawbar": 0o644, "LICENSE": 0o644}, id="a program that cannot be run"),
        pytest.param({"./kubectl-drawbar": 0o755, "LICENSE": 0o644}, id="a program in another place"),
        pytest.param({**krew.FILES, "setup": 0o755}, id="something else"),
    ],
)
def test_an_archive_that_krew_could_not_install_is_refused(archives, tmp_path, files):
    path = archive(tmp_path, "arm64", files)
    assert path in archives.values()
    with pytest.raises(krew.ManifestError, match=rf"{re.escape(str(path))} has .*make it with"):
        krew.manifest("v0.1.0", tmp_path, url=URL, homepage=HOMEPAGE)


@pytest.mark.parametrize("damage", ["missing", "no archive"])
def test_without_the_archive_of_each_processor_there_is_no_manifest(archives, tmp_path, damage, capsys):
    archives["amd64"].unlink()
    if damage == "no archive":
        archives["amd64"].write_bytes(b"<html>")
    words = ["v0.1.0", str(tmp_path), "--url", URL, "--homepage", HOMEPAGE]
    assert krew.main(words) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {archives['amd64']} cannot be read (")


def test_the_command_prints_the_manifest(archives, tmp_path, capsys, text):
    assert archives
    assert krew.main(["v0.1.0", str(tmp_path), "--url", f"{URL}/", "--homepage", HOMEPAGE]) == 0
    assert capsys.readouterr().out == text
    assert "$" not in text
