"""Packing two adapters and reading them back, also when somebody has been at the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codegrep.errors import ModelError
from codegrep.tracking.policy_package import BaseReference, model_checksum, read_package, write_package

BASE = BaseReference("provided:nano", None, "float32", 8192, "c" * 64)


def adapter(folder: Path, content: bytes = b"weights") -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(content)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 4, "base_model_name_or_path": "/home/me/model"}))
    (folder / "optimizer.pt").write_bytes(b"not taken along")
    return folder


def packed(tmp_path: Path):
    made = adapter(tmp_path / "a")
    return write_package(tmp_path / "model", BASE, warm_start=None, adapter=made, config={"seed": 1}, card="# c")


def test_two_adapters_there_and_back(tmp_path):
    warm, trained = adapter(tmp_path / "w", b"1"), adapter(tmp_path / "t", b"2")
    config = {"judge": {"api_key": "sk-1"}, "seed": 0}
    made = write_package(tmp_path / "model", BASE, warm_start=warm, adapter=trained, config=config, card="# card")
    assert made == read_package(tmp_path / "model")
    assert made.base == BASE and made.config == {"judge": {"api_key": "***"}, "seed": 0}
    assert (made.warm_start / "adapter_model.safetensors").read_bytes() == b"1"
    settings = json.loads((made.adapter / "adapter_config.json").read_text())
    assert settings == {"r": 4, "base_model_name_or_path": "provided:nano"}  # no path of the training machine
    assert not list((tmp_path / "model").rglob("*.pt")) and (tmp_path / "model" / "README.md").read_text() == "# card"


def test_the_digest_is_of_the_policy_and_not_of_its_place_or_card(tmp_path):
    one = packed(tmp_path / "1")
    elsewhere = BaseReference("/data/nano", None, "float32", 8192, "c" * 64)
    source = tmp_path / "1" / "a"
    other = write_package(tmp_path / "2" / "m", elsewhere, warm_start=None, adapter=one.adapter, config={}, card="")
    assert other.digest != one.digest  # the settings name the base, and are part of the policy's files
    again = write_package(tmp_path / "3" / "m", BASE, warm_start=None, adapter=source, config={"seed": 2}, card="x")
    assert again.digest == one.digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "policy.json").unlink(), "has no policy.json"),
        (lambda f: (f / "policy.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "policy.json").write_text("[]"), "cannot be read"),
        (lambda f: (f / "adapter" / "adapter_model.safetensors").write_bytes(b"other"), "SHA-256 differs"),
        (lambda f: (f / "adapter" / "adapter_model.safetensors").unlink(), "missing or does not belong"),
        (lambda f: edit(f, lambda m: m["files"].update({"../secret": "0" * 64})), "missing or does not belong"),
        (lambda f: edit(f, lambda m: m["files"].update({"adapter/code.py": "0" * 64})), "missing or does not belong"),
        (lambda f: edit(f, lambda m: m.update(format=99)), "format 99"),
        (lambda f: edit(f, lambda m: m["base"].update(extra=1)), "cannot be read"),
        (lambda f: edit(f, lambda m: m["base"].update(dtype="int8")), "not described"),
        (lambda f: edit(f, lambda m: m.update(files={})), "no whole adapter"),
    ],
)
def test_a_folder_that_is_not_what_was_logged_is_refused(tmp_path, change, message):
    folder = packed(tmp_path).folder
    change(folder)
    with pytest.raises(ModelError, match=message):
        read_package(folder)


def edit(folder: Path, change) -> None:
    manifest = json.loads((folder / "policy.json").read_text())
    change(manifest)
    (folder / "policy.json").write_text(json.dumps(manifest))


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    folder = packed(tmp_path).folder
    weights = folder / "adapter" / "adapter_model.safetensors"
    (tmp_path / "elsewhere").write_bytes(weights.read_bytes())
    weights.unlink()
    weights.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="does not belong"):
        read_package(folder)


def test_an_adapter_that_is_not_whole_is_not_packed(tmp_path):
    made = adapter(tmp_path / "a")
    (made / "adapter_config.json").unlink()
    with pytest.raises(ModelError, match="no whole adapter"):
        write_package(tmp_path / "m", BASE, warm_start=None, adapter=made, config={}, card="")
    with pytest.raises(ModelError, match="no adapter to pack"):
        write_package(tmp_path / "m", BASE, warm_start=None, adapter=None, config={}, card="")


def test_the_checksum_tells_models_apart(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"a" * 3_000_000)
    first = model_checksum(folder)
    (folder / "model.safetensors").write_bytes(b"a" * 2_999_999 + b"b")
    assert model_checksum(folder) != first
