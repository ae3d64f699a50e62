from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import codegrep

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def _requirements(*extras: str) -> list[Requirement]:
    project = PROJECT["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def _sh(*command: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


# --- pyproject.toml and constraints.txt -------------------------------------------------------------------------------


@pytest.mark.parametrize("requirement", _requirements("dev", "serve"), ids=lambda r: r.name)
def test_every_requirement_is_pinned_within_its_range(requirement: Requirement) -> None:
    pin = _pins()[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pin)


def test_the_pins_fit_what_vllm_asks_for() -> None:
    # Its metadata, noted from the release: with another pin the extra could not be installed under the constraints.
    pins = {name: Version(version) for name, version in _pins().items()}
    assert pins["torch"] == Version("2.13.0")
    assert Version("5.16.1") <= pins["transformers"] < Version("5.20")
    assert pins["numpy"] < Version("2.4")
    assert Version("0.133") <= pins["fastapi"] < Version("0.137")
    assert pins["setuptools"] == Version("78.1.1")


def test_pins_name_no_build() -> None:
    """'2.13.0+cpu' is on few indexes; '2.13.0' accepts it and every other build."""
    assert [f"{name}=={version}" for name, version in _pins().items() if "+" in version] == []


def test_extras_are_there() -> None:
    assert set(PROJECT["project"]["optional-dependencies"]) == {
        "cpu-engine",
        "gpu-engine",
        "team-server",
        "serve",
        "s3",
        "dev",
    }


def test_no_version_that_is_known_not_to_install() -> None:
    by_name = {r.name: r for r in _requirements()}
    assert not by_name["mlflow"].specifier.contains("3.18.0")
    assert not by_name["omegaconf"].specifier.contains("2.4.0")


def test_mlflow_is_the_library_from_the_repository_root() -> None:
    done = _sh(sys.executable, "-c", "import mlflow; print(mlflow.__version__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("3.")
    assert not (ROOT / "mlflow" / "__init__.py").exists()


def test_a_wheel_holds_the_package_and_the_configuration(tmp_path: Path) -> None:
    try:  # by its metadata: importing it here fails when something has imported distutils before
        if Version(version("setuptools")) < Version("77"):
            pytest.skip("setuptools is older than 77")
    except PackageNotFoundError:
        pytest.skip("setuptools is not installed")
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tree)
    for name in ("codegrep", "conf", "hydra_plugins", "mlflow", "ray_jobs", "tests"):
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = "import setuptools.build_meta as b; print(b.build_wheel('dist'))"
    done = _sh(sys.executable, "-c", build, cwd=tree)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = (tree / "dist").glob("*.whl")
    assert wheel.name.startswith(f"codegrep-{codegrep.__version__}-")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert tops == {"codegrep", "hydra_plugins", f"codegrep-{codegrep.__version__}.dist-info"}
    kept = {f"codegrep/{p.relative_to(ROOT)}" for p in (ROOT / "conf").rglob("*.yaml")}
    assert kept <= names
    assert {"codegrep/ray_jobs/slurm.sh", "hydra_plugins/codegrep_ray/__init__.py"} <= names
    modules = {str(p.relative_to(ROOT)) for p in (ROOT / "codegrep").rglob("*.py")}
    assert modules <= names
    assert {f"codegrep/tracking/templates/{p.name}" for p in (ROOT / "codegrep/tracking/templates").iterdir()} <= names
    # and it is found there
    where = "import codegrep.compose as c; print(c.CONF)"
    done = _sh(sys.executable, "-c", where, cwd=tmp_path, PYTHONPATH=str(tmp_path / "installed"))
    assert done.stdout.strip() == str(tmp_path / "installed" / "codegrep" / "conf"), done.stderr
    roles = "from codegrep.issues.roles import known_roles; print(known_roles().of('psf/requests').name)"
    done = _sh(sys.executable, "-c", roles, cwd=tmp_path, PYTHONPATH=str(tmp_path / "installed"))
    assert done.stdout.strip() == "held_out_1", done.stderr


# --- make, setup.sh, CI -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["scripts/setup.sh", "scripts/lock.sh", ".ci/run"])
def test_scripts_parse_and_are_executable(script: str) -> None:
    shell = "bash" if script == ".ci/run" else "sh"
    done = _sh(shell, "-n", script)
    assert done.returncode == 0, done.stderr
    assert (ROOT / script).stat().st_mode & stat.S_IXUSR


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", ["help", "demo", "test", "lint", "format", "mlflow", "cpu-engine", "lock", "clean"])
def test_make_knows_its_targets(target: str) -> None:
    done = _sh("make", "-n", target, MAKEFLAGS="")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_demo_is_the_documented_command() -> None:
    assert "-m codegrep +experiment=v3 scale=laptop data=demo" in _sh("make", "-n", "demo", MAKEFLAGS="").stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What setup.sh needs of the checkout, so that it can be tried without touching this one."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def _program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def _setup(checkout: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return _sh("sh", "scripts/setup.sh", cwd=checkout, **{"VENV": ".venv", "PYTHON": "", **env})


def _only(checkout: Path, *names: str) -> str:
    """A PATH that holds these programs of the machine and no others."""
    folder = checkout / "only"
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    return str(folder)


BASICS = ("sh", "dirname", "cat", "cksum", "sed", "awk", "df", "grep", "tail", "tee", "rm", "uname")


def test_setup_says_that_python_is_missing(checkout: Path) -> None:
    done = _setup(checkout, PATH=_only(checkout, *BASICS, "git"))
    assert done.returncode == 1
    assert "Python 3.11, 3.12 or 3.13 is missing" in done.stderr and "Install it" in done.stderr


def test_setup_says_that_git_is_missing(checkout: Path) -> None:
    done = _setup(checkout, PATH=_only(checkout, *BASICS))
    assert done.returncode == 1 and "git is missing" in done.stderr


def test_setup_refuses_an_interpreter_that_is_too_old_or_absent(checkout: Path) -> None:
    _program(checkout / "bin", "old", "exit 1")
    done = _setup(checkout, PYTHON=str(checkout / "bin" / "old"))
    assert done.returncode == 1 and "is not Python 3.11, 3.12 or 3.13" in done.stderr
    done = _setup(checkout, PYTHON="/no/such/python")
    assert done.returncode == 1 and "there is no interpreter /no/such/python" in done.stderr


def test_setup_says_that_the_venv_module_is_missing(checkout: Path) -> None:
    _program(checkout / "bin", "half", f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')
    done = _setup(checkout, PYTHON=str(checkout / "bin" / "half"))
    assert done.returncode == 1 and "venv module is missing" in done.stderr and "python3-venv" in done.stderr
    assert not (checkout / ".venv").exists()


def test_setup_says_that_the_disk_is_too_small(checkout: Path) -> None:
    _program(checkout / "bin", "df", "echo head; echo '/dev/x 100 90 1048576 90% /'")
    done = _setup(checkout, PYTHON=sys.executable, PATH=f"{checkout / 'bin'}:{os.environ['PATH']}")
    assert done.returncode == 1 and "only 1 GiB are free" in done.stderr
    assert not (checkout / ".venv").exists()


def test_setup_never_removes_a_folder_that_is_no_environment(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "mine").write_text("x")
    done = _setup(checkout, PYTHON=sys.executable)
    assert done.returncode == 1 and "is not a virtual environment" in done.stderr
    assert (checkout / ".venv" / "mine").exists()


def test_setup_says_that_the_package_index_cannot_be_reached(checkout: Path) -> None:
    env = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    env |= {"PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    done = _setup(checkout, PYTHON=sys.executable, **env)
    assert done.returncode == 1 and "the package index cannot be reached" in done.stderr, done.stderr
    assert not (checkout / ".venv" / ".installed").exists()


def test_setup_returns_at_once_when_nothing_changed(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").symlink_to(sys.executable)
    stamp = _sh("sh", "-c", "cat pyproject.toml constraints.txt | cksum", cwd=checkout).stdout
    (checkout / ".venv" / ".installed").write_text(stamp)
    done = _setup(checkout, PATH=_only(checkout, *BASICS, "git"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with (checkout / "constraints.txt").open("a") as constraints:
        constraints.write("# changed\n")
    done = _setup(checkout, PATH=str(checkout / "only"))
    assert done.returncode == 1  # goes on to look for an interpreter


def test_ci_needs_no_input_and_tells_the_truth() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    assert "exec </dev/null" in text
    assert """make test ARGS='-m "not slow or ci"' || failed""" in text and re.search(r"make lint \|\| failed", text)


def test_models_and_outputs_are_not_committed() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    done = _sh("git", "ls-files", "models", "outputs", ".venv", "*.egg-info", "mlflow.db")
    assert done.stdout == ""
