"""model.dtype=auto follows the machine: bfloat16 only where something multiplies it."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegrep.compose import compose_overrides, load
from codegrep.engines import cpu
from codegrep.engines.cpu import has_native_bfloat16, resolve_dtype


@pytest.mark.parametrize(
    ("native", "use_gpu", "expected"),
    [(True, False, "bfloat16"), (False, False, "float32"), (False, True, "bfloat16"), (True, True, "bfloat16")],
)
def test_auto_takes_bfloat16_where_it_is_multiplied(
    native: bool, use_gpu: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "has_native_bfloat16", lambda: native)
    assert resolve_dtype("auto", use_gpu=use_gpu, all_weights=False) == expected
    assert resolve_dtype("auto", use_gpu=use_gpu, all_weights=True) == "float32"


@pytest.mark.parametrize("name", ["bfloat16", "float32"])
@pytest.mark.parametrize("use_gpu", [True, False])
def test_a_named_dtype_stays(name: str, use_gpu: bool) -> None:
    assert resolve_dtype(name, use_gpu=use_gpu, all_weights=False) == name


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flags\t\t: fpu sse2 avx2 avx512f", False),
        ("flags\t\t: fpu avx512f avx512_bf16", True),
        ("flags\t\t: fpu avx512f amx_bf16 amx_tile", True),
        ("Features\t: fp asimd bf16", True),
        ("model name\t: bf16 processor", False),
    ],
)
def test_the_cpu_says_what_it_multiplies(line: str, expected: bool, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\n{line}\n")
    assert has_native_bfloat16(file) is expected


def test_without_a_list_of_flags_bfloat16_is_not_assumed(tmp_path: Path) -> None:
    assert has_native_bfloat16(tmp_path / "cpuinfo") is False


@pytest.mark.parametrize("native", [True, False])
def test_the_laptop_scale_follows_the_cpu(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "has_native_bfloat16", lambda: native)
    config = load(compose_overrides(["scale=laptop"]))
    assert config.model.dtype == ("bfloat16" if native else "float32")
