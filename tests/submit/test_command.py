"""Jobs for clusters: what is sent, how it is rendered, and that no secret and no false success gets through."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from codegrep.errors import ConfigError, InfrastructureError
from codegrep.runtime.resources import Bundle
from codegrep.submit import jobs_api
from codegrep.submit import kuberay as kuberay_module
from codegrep.submit.command import main, target_of
from codegrep.submit.job import check_id, job_id, make_job
from codegrep.submit.jobs_api import JobsAPI, exit_code, use_token
from codegrep.submit.kuberay import outcome, pods_for
from codegrep.submit.slurm import parse_state
from codegrep.submit.upload import Upload, excluded, upload_of
from tests.sweeps.composed import PATHS, composed

ROOT = Path(__file__).parents[2]
KUBERAY = (
    "+experiment=v3",
    "scale=paper",
    *PATHS,
    "cluster=kuberay",
    "outputs=/mnt/codegrep/outputs",
    "cluster.submit.options.image=registry.example/codegrep:1",
    "cluster.submit.options.storage.claim=codegrep",
    "sandbox.actors=8",
)
SLURM = (
    *("+experiment=v3", "scale=paper", *PATHS, "cluster=slurm", "outputs=/shared/outputs"),
    *("cluster.submit.options.folder=/shared/code grep", "cluster.submit.options.logs=/shared/logs"),
)


def rendered(*overrides: str) -> str:
    config = composed(*overrides)
    return target_of(config).render(make_job(config, overrides))


def manifest(*overrides: str) -> dict[str, Any]:
    return yaml.safe_load(rendered(*KUBERAY, *overrides))


# --- what is refused before anything is sent


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("cluster=ray_job",), "outputs=outputs means nothing on the cluster"),
        (("cluster=local",), "no place to submit to"),
        (("cluster=ray_job", "outputs=s3://bucket/x"), "means nothing on the cluster"),
        (("cluster=ray_job", "outputs=/o", "+cluster.submit.env.HF_TOKEN=abc"), "looks like a secret"),
        (("cluster=ray_job", "outputs=/o", "+cluster.submit.env.AWS_SECRET_ACCESS_KEY=x"), "looks like a secret"),
        (("cluster=ray_job", "outputs=/o", "+cluster.submit.env.A-B=x"), "no name of a variable"),
        (("cluster=ray_job", "outputs=/o", "cluster.submit.max_upload_mib=0.01"), "would be sent"),
    ],
)
def test_a_job_that_cannot_run_there_is_refused(overrides: tuple[str, ...], words: str) -> None:
    from codegrep.errors import CodegrepError

    with pytest.raises(CodegrepError, match=words):
        main(["+experiment=v3", *overrides])


def test_ids_are_unique_and_allowed_everywhere() -> None:
    made = {job_id("V3 with a very long name, and odd: characters/in it") for _ in range(200)}
    assert len(made) == 200
    for name in made:
        assert len(name) <= 47 and name.islower() and check_id(name) == name
    with pytest.raises(ConfigError):
        check_id("--help")


# --- the upload


def test_the_checkout_that_is_sent_holds_code_and_configuration_only() -> None:
    upload = upload_of(ROOT)
    names = {name for name, _ in upload.files}
    assert {"codegrep/__main__.py", "conf/config.yaml", "hydra_plugins/codegrep_ray/__init__.py"} <= names
    assert not [n for n in names if n.startswith(("models", "outputs", "tests", ".git", "docs"))]
    assert upload.bytes < 16 * 2**20  # 8.5 MB of it are the word vectors of the index
    with upload.copied() as folder:
        assert {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} == names


def test_secrets_and_excluded_files_stay_here(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    package = tmp_path / "codegrep"
    (package / "deep" / "data").mkdir(parents=True)
    for name in ("a.py", ".env", "server.pem", "big.bin", "deep/data/x.bin", "deep/b.py"):
        (package / name).write_text("x")
    (package / "link.py").symlink_to("/etc/passwd")
    names = {name for name, _ in upload_of(tmp_path, ["*.bin"]).files}
    assert names == {"codegrep/a.py", "codegrep/deep/b.py"}
    assert excluded("codegrep/deep/data/x", ["codegrep/deep"]) and not excluded("codegrep/deeper", ["codegrep/deep"])


def test_what_is_too_large_is_named() -> None:
    upload = Upload(ROOT, (("a", 2**20), ("models/w.bin", 80 * 2**20)))
    with pytest.raises(ConfigError, match=r"81.0 MiB would be sent.*models/w.bin \(80.0 MiB\).*excludes"):
        upload.check(50)
    upload.check(82)


# --- the Jobs API


def test_the_request_names_everything_and_no_secret() -> None:
    text = rendered(
        "+experiment=v3", "cluster=ray_job", "outputs=/o", "+cluster.submit.secrets.MLFLOW_TRACKING_TOKEN=''"
    )
    request = yaml.safe_load(text)
    assert request["entrypoint"].startswith("python -m codegrep +experiment=v3 cluster=ray_job outputs=/o")
    assert request["runtime_env"]["env_vars"] == {"CODEGREP_REQUIRED_VARIABLES": "MLFLOW_TRACKING_TOKEN"}
    assert "MiB" in request["runtime_env"]["working_dir"]


@pytest.mark.parametrize(
    ("status", "driver", "code"),
    [
        ("SUCCEEDED", 0, 0),
        ("FAILED", 2, 2),
        ("FAILED", None, 1),
        ("FAILED", 0, 1),
        ("FAILED", -9, 137),
        ("STOPPED", None, 130),
    ],
)
def test_only_success_gives_zero(status: str, driver: int | None, code: int) -> None:
    assert exit_code(status, driver) == code


def test_switching_authentication_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ConfigError, match="token authentication"):
        use_token()


# --- KubeRay


def test_the_manifest_of_the_papers_scale() -> None:
    made = manifest()
    spec = made["spec"]
    assert made["kind"] == "RayJob" and made["metadata"]["name"] == spec["jobId"]
    assert spec["backoffLimit"] == 0 and spec["submitterConfig"]["backoffLimit"] == 0
    cluster = spec["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    gpu, cpu = cluster["workerGroupSpecs"]
    assert (gpu["groupName"], gpu["replicas"], gpu["rayStartParams"]["num-gpus"]) == ("gpu", 1, "8")
    assert gpu["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert (cpu["groupName"], cpu["replicas"], cpu["rayStartParams"]["num-gpus"]) == ("cpu", 1, "0")
    for pod in (cluster["headGroupSpec"], gpu, cpu):
        mounts = pod["template"]["spec"]["containers"][0]["volumeMounts"]
        assert {"name": "storage", "mountPath": "/mnt/codegrep"} in mounts
    policies = [rule["policy"] for rule in spec["deletionStrategy"]["deletionRules"]]
    assert policies.count("DeleteWorkers") == 2 and policies.count("DeleteCluster") == 3
    assert "shutdownAfterJobFinishes" not in spec  # the operator refuses both together


def test_secrets_are_references() -> None:
    made = manifest("+cluster.submit.secrets.MLFLOW_TRACKING_TOKEN=mlflow/token")
    env = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
    assert env == [{"name": "MLFLOW_TRACKING_TOKEN", "valueFrom": {"secretKeyRef": {"name": "mlflow", "key": "token"}}}]
    with pytest.raises(ConfigError, match="secret/key"):
        manifest("+cluster.submit.secrets.MLFLOW_TRACKING_TOKEN=plain")


@pytest.mark.skipif(
    "CODEGREP_RAYJOB_CRD" not in os.environ, reason="CODEGREP_RAYJOB_CRD names no file with KubeRay's CRD"
)
def test_the_manifest_against_kuberays_own_schema() -> None:
    """The CRD of a KubeRay release: helm-chart/kuberay-operator/crds/ray.io_rayjobs.yaml of its repository."""
    import jsonschema

    text = Path(os.environ["CODEGREP_RAYJOB_CRD"]).read_text(encoding="utf-8")
    crd = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # more than a megabyte
    (version,) = [v for v in crd["spec"]["versions"] if v["name"] == "v1"]
    schema = closed(version["schema"]["openAPIV3Schema"])
    jsonschema.validate(manifest("+cluster.submit.secrets.MLFLOW_TRACKING_TOKEN=mlflow/token"), schema)
    wrong = manifest()
    wrong["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicaz"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


def closed(schema: Any) -> Any:
    """The schema with unknown fields refused, which the API server would drop in silence."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", "metadata" in made["properties"] and "kind" in made["properties"])
    if made.pop("x-kubernetes-int-or-string", False):
        made.pop("anyOf", None)
        made["type"] = ["integer", "string"]
    return made


POD = {"cpus": 16, "gpus": 4}


@given(st.lists(st.builds(Bundle, st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from([1.0, 4.0, 8.0])), max_size=12))
def test_pods_hold_what_is_asked_for(bundles: list[Bundle]) -> None:
    pods = pods_for(bundles, POD)
    assert pods * 16 >= sum(b.cpus for b in bundles) and pods * 4 >= sum(b.gpus for b in bundles)
    assert pods <= len(bundles)


def test_a_worker_larger_than_a_pod_is_refused() -> None:
    with pytest.raises(ConfigError, match="a worker asks for 32 CPU"):
        pods_for([Bundle(cpus=32)], POD)


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ({}, (False, 0)),
        ({"jobStatus": "RUNNING", "jobDeploymentStatus": "Running"}, (False, 0)),
        ({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}, (True, 0)),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "message": "failed with exit code 2, x"}, (True, 2)),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}, (True, 1)),
        ({"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"}, (True, 130)),
        ({"jobDeploymentStatus": "Failed", "reason": "SubmissionFailed"}, (True, 1)),
        ({"jobDeploymentStatus": "ValidationFailed"}, (True, 1)),
    ],
)
def test_what_a_rayjob_came_to(status: dict[str, str], ended: tuple[bool, int]) -> None:
    assert outcome(status) == ended


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that records what it is asked and answers from a file."""
    program = tmp_path / "kubectl"
    program.write_text(
        '#!/bin/sh\necho "$@" >> "$(dirname "$0")/asked"\n'
        'case "$*" in *create*) cat > "$(dirname "$0")/created" ;;\n'
        '*" get "*) cat "$(dirname "$0")/answer" ;; *logs*) echo "the log" ;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(kuberay_module, "_AGAIN_SECONDS", 0.01)
    return tmp_path


def test_a_rayjob_is_created_followed_and_its_failure_told(kubectl: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status = {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "message": "entrypoint failed with exit code 3"}
    (kubectl / "answer").write_text(json.dumps({"status": status}))
    assert main(list(KUBERAY)) == 3
    assert yaml.safe_load((kubectl / "created").read_text())["kind"] == "RayJob"
    out, err = capfd.readouterr()
    assert "the log" in out and "exit code 3" in err
    assert "create --validate=strict -f -" in (kubectl / "asked").read_text()


# --- SLURM


def test_the_batch_script_is_a_script(tmp_path: Path) -> None:
    script = rendered(*SLURM, "+cluster.submit.env.HF_HUB_OFFLINE=1", "+cluster.submit.secrets.WANDB_API_KEY=''")
    assert "@{" not in script and "#SBATCH --nodes=1" in script and "#SBATCH --gpus-per-node=8" in script
    assert "cd '/shared/code grep'" in script and "export HF_HUB_OFFLINE=1" in script
    assert "for name in WANDB_API_KEY; do" in script
    path = tmp_path / "job.sh"
    path.write_text(script)
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "RAY_AUTH_MODE=token" in script and "disabled" not in script


def test_a_directive_cannot_break_out() -> None:
    with pytest.raises(ConfigError, match="cannot stand in a batch script"):
        rendered(*SLURM, "+cluster.submit.options.sbatch={partition: 'gpu; rm -rf x'}")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", ("PENDING", 0)),
        ("RUNNING|0:0\n", ("RUNNING", 0)),
        ("COMPLETED|0:0\n", ("COMPLETED", 0)),
        ("FAILED|2:0\n", ("FAILED", 2)),
        ("FAILED|0:9\n", ("FAILED", 137)),
        ("CANCELLED by 1000|0:0\n", ("CANCELLED", 130)),
        ("TIMEOUT|0:0\n", ("TIMEOUT", 1)),
        ("NODE_FAIL|0:0\n", ("NODE_FAIL", 1)),
    ],
)
def test_what_a_batch_job_came_to(text: str, state: tuple[str, int]) -> None:
    assert parse_state(text) == state


# --- a cluster that has just started


@pytest.mark.parametrize(("refusals", "patience", "taken"), [(2, 60.0, True), (2, -1.0, False)])
def test_a_cluster_without_an_agent_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, refusals: int, patience: float, taken: bool
) -> None:
    asked: list[str] = []

    class Young:
        def submit_job(self, **request: Any) -> None:
            asked.append(request["submission_id"])
            if len(asked) <= refusals:
                raise RuntimeError("Request failed with status code 500: No available agent to submit job")

    monkeypatch.setattr(JobsAPI, "_client", lambda self: Young())
    monkeypatch.setattr(jobs_api, "_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(jobs_api, "YOUNG_SECONDS", patience)
    overrides = ("cluster=ray_job", "outputs=/shared/outputs", "cluster.submit.upload=false")
    config = composed(*overrides)
    assert config.cluster.submit is not None
    target, job = JobsAPI(config.cluster.submit), make_job(config, overrides)
    if taken:
        target.submit(job)
        assert asked == [job.id] * 3, "the id is the same, so the cluster cannot have it twice"
    else:
        with pytest.raises(InfrastructureError, match=r"did not take the job.*dashboard-agent-listen-port"):
            target.submit(job)
