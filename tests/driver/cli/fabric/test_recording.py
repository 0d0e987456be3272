"""`drawbar fabric record` as it is typed."""

import pytest

from drawbar.fabric.redfish import transcripts


@pytest.fixture
def output(tmp_path):
    return tmp_path / "transcript.json"


def test_a_transcript_is_written_for_its_owner_alone(drawbar_command, redfish_file, output):
    words = ("record", "--config", redfish_file, "--to", output)
    status, out, err = drawbar_command(*words, "--attach", "PCIe.gpu-1", "--host", "h1", "--yes")
    assert (status, err) == (0, "")
    assert str(output) in out
    assert output.stat().st_mode & 0o777 == 0o600
    transcript = transcripts.parse(output.read_bytes())
    assert {"GET", "POST", "DELETE"} <= {exchange.method for exchange in transcript.exchanges}
    assert "correct horse battery" not in output.read_text()
    before = output.read_bytes()
    status, _, err = drawbar_command(*words)
    assert status == 2
    assert "name a new file" in err
    assert output.read_bytes() == before


def test_a_refusal_of_the_manager_is_in_the_transcript(drawbar_command, redfish_file, output):
    (redfish_file.parent / "password").write_text("another wrong horse")
    status, out, _ = drawbar_command("record", "--config", redfish_file, "--to", output)
    assert status == 1
    assert "UNAUTHENTICATED" in out
    assert transcripts.parse(output.read_bytes()).exchanges[-1].status == 401
    assert "another wrong horse" not in output.read_text()


def test_only_redfish_is_recorded_and_a_change_needs_a_file(drawbar_command, grpc_file, cluster, output):
    status, _, err = drawbar_command("record", "--config", grpc_file, "--to", output)
    assert status == 2
    assert "only redfish" in err
    words = ("record", "rack-1", "--kubeconfig", cluster.kubeconfig, "--to", output)
    status, _, err = drawbar_command(*words, "--attach", "gpu-1", "--host", "host-1")
    assert status == 2
    assert "--config" in err
    assert not output.exists()
