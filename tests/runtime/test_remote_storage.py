"""A second place for artifacts and checkpoints: a folder, and an S3-compatible server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegrep.errors import ConfigError, InfrastructureError
from codegrep.runtime.artifacts import ArtifactStore
from codegrep.runtime.remote_storage import Storage


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    if request.param == "folder":
        yield Storage(str(tmp_path / "storage"))
        return
    pytest.importorskip("s3fs", reason="the extra s3 is not installed")
    server = pytest.importorskip("moto.server", reason="moto, a local S3 server, is not installed")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"b{uuid.uuid4().hex}"  # moto keeps its buckets for the life of the process
    s3fs.S3FileSystem().mkdir(bucket)
    yield Storage(f"s3://{bucket}/some/where")
    running.stop()


def made(store: ArtifactStore) -> Path:
    artifact = store.open("train", {"x": 1})
    (artifact.folder / "adapter").mkdir()
    (artifact.folder / "adapter" / "weights").write_bytes(b"\0\1" * 5000)
    (artifact.folder / "training").mkdir()
    (artifact.folder / "training" / "large").write_text("a checkpoint")
    artifact.finish({"steps": 3})
    return artifact.folder


def test_a_finished_artifact_is_found_on_another_machine(storage: Storage, tmp_path: Path) -> None:
    folder = made(ArtifactStore(tmp_path / "one", storage))
    other = ArtifactStore(tmp_path / "two", storage).open("train", {"x": 1})
    assert other.complete and other.summary == {"steps": 3}
    assert (other.folder / "adapter" / "weights").read_bytes() == (folder / "adapter" / "weights").read_bytes()
    assert not (other.folder / "training").exists(), "checkpoints have their own place"
    assert not [path for path in (tmp_path / "two").iterdir() if path.name.startswith(".")]


def test_another_artifact_is_not_there(storage: Storage, tmp_path: Path) -> None:
    made(ArtifactStore(tmp_path / "one", storage))
    assert not ArtifactStore(tmp_path / "two", storage).open("train", {"x": 2}).complete


def test_half_an_upload_is_no_artifact(storage: Storage, tmp_path: Path) -> None:
    folder = made(ArtifactStore(tmp_path / "one"))
    filesystem, root = storage._open()
    filesystem.makedirs(f"{root}/artifacts/{folder.name}/adapter", exist_ok=True)
    filesystem.put_file(str(folder / "adapter" / "weights"), f"{root}/artifacts/{folder.name}/adapter/weights")
    assert not ArtifactStore(tmp_path / "two", storage).open("train", {"x": 1}).complete
    storage.push(folder)
    assert ArtifactStore(tmp_path / "two", storage).open("train", {"x": 1}).complete


def test_pyarrow_reads_what_ray_train_wrote(storage: Storage) -> None:
    path, filesystem = storage.checkpoints("train-abc")
    filesystem.create_dir(f"{path}/checkpoint_1", recursive=True)
    with filesystem.open_output_stream(f"{path}/checkpoint_1/state") as out:
        out.write(b"state")
    with filesystem.open_input_stream(f"{path}/checkpoint_1/state") as file:
        assert file.read() == b"state"


def test_a_login_in_the_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="login"):
        Storage("s3://key:secret@bucket/path").pull(tmp_path / "x")


def test_an_unknown_kind_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.storage=nowhere://x"):
        Storage("nowhere://x").pull(tmp_path / "x")


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    folder = made(ArtifactStore(tmp_path / "one"))
    with pytest.raises(InfrastructureError, match="cannot be"):
        Storage(str(blocked / "inside")).push(folder)
