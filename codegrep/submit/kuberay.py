"""KubeRay: a RayJob, which brings its own Ray cluster up, runs the experiment on it and takes it down again."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from codegrep.config import SubmitConfig
from codegrep.errors import CodegrepError, ConfigError, InfrastructureError
from codegrep.runtime.resources import Bundle, Node, Request, place
from codegrep.submit import programs
from codegrep.submit.job import ClusterJob
from codegrep.submit.jobs_api import UNKNOWN, exit_code, say

PATIENCE_SECONDS = 600.0
_AGAIN_SECONDS = 5.0


class KubeRay:
    """A Target. conf/cluster/kuberay.yaml explains the options."""

    def __init__(self, settings: SubmitConfig) -> None:
        self._settings = settings
        self._options = settings.options
        self._namespace = str(self._options["namespace"])

    def render(self, job: ClusterJob) -> str:
        """Return the manifest as YAML."""
        return yaml.safe_dump(self.manifest(job), sort_keys=False, width=100)

    def manifest(self, job: ClusterJob) -> dict[str, Any]:
        """Return the RayJob.

        Workers come in two groups: pods with GPUs hold trainers and engines, pods without them hold sandboxes and
        searches. The head runs the driver alone. All mount the shared storage at the same path.
        """
        options = self._options
        rules = [
            *_rules("SUCCEEDED", options["keep_succeeded_seconds"]),
            *_rules("FAILED", options["keep_failed_seconds"]),
            # Never submitted at all, for example since no node could be had.
            {"condition": {"jobDeploymentStatus": "Failed", "ttlSeconds": int(options["keep_failed_seconds"])}}
            | {"policy": "DeleteCluster"},
        ]
        return {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {
                "name": job.id,
                "namespace": self._namespace,
                "labels": {"app.kubernetes.io/name": "codegrep", "app.kubernetes.io/managed-by": "codegrep"},
            },
            "spec": {
                "jobId": job.id,
                "entrypoint": job.entrypoint,
                "submissionMode": "K8sJobMode",
                # An experiment is continued by a new submission of the same command, not by a blind repetition.
                "backoffLimit": 0,
                "submitterConfig": {"backoffLimit": 0},
                "deletionStrategy": {"deletionRules": rules},
                "rayClusterSpec": {
                    "rayVersion": str(options["ray_version"]),
                    "authOptions": {"mode": "token"},
                    "headGroupSpec": {
                        "rayStartParams": {"num-cpus": "0"},
                        "template": self._pod("ray-head", options["head"]),
                    },
                    "workerGroupSpecs": self._groups(job),
                },
            },
        }

    def submit(self, job: ClusterJob) -> None:
        """Create the RayJob. kubectl refuses a name that is taken and fields that the operator does not know."""
        programs.run([*self._kubectl(), "create", "--validate=strict", "-f", "-"], stdin=self.render(job))

    def follow(self, job_id: str) -> int:
        """Print the job's log until it ends; return its exit code."""
        asked = time.monotonic()
        shown = False
        while True:
            try:
                status = self._status(job_id)
                asked = time.monotonic()
            except CodegrepError as error:
                if "NotFound" in str(error) or time.monotonic() - asked > PATIENCE_SECONDS:
                    say(f"{job_id} cannot be asked about: {error}")
                    return UNKNOWN
                time.sleep(_AGAIN_SECONDS)
                continue
            ended, code = outcome(status)
            if not shown and (status.get("jobStatus") == "RUNNING" or ended):
                shown = True
                programs.follow([*self._kubectl(), "logs", "--follow", f"job/{job_id}"])
                continue
            if ended:
                if code:
                    say(f"{job_id} {_words(status)}")
                return code
            time.sleep(_AGAIN_SECONDS)

    def status(self, job_id: str) -> str:
        """Return the job's state in one line."""
        return _words(self._status(job_id))

    def stop(self, job_id: str) -> str:
        """Delete the RayJob with its cluster; what it wrote to the shared storage stays."""
        programs.run([*self._kubectl(), "delete", "rayjob", job_id, "--wait=false"])
        return "deleted with its cluster"

    def _kubectl(self) -> list[str]:
        context = self._options.get("context")
        return ["kubectl", "--namespace", self._namespace, *(["--context", str(context)] if context else [])]

    def _status(self, job_id: str) -> dict[str, Any]:
        text = programs.run([*self._kubectl(), "get", "rayjob", job_id, "-o", "json"])
        try:
            return dict(json.loads(text).get("status") or {})
        except ValueError:
            raise InfrastructureError("kubectl answered with something that is no JSON") from None

    def _groups(self, job: ClusterJob) -> list[dict[str, Any]]:
        groups = []
        bundles = job.request.bundles
        for name, asked in (("gpu", [b for b in bundles if b.gpus]), ("cpu", [b for b in bundles if not b.gpus])):
            pod = self._options[f"{name}_pod"]
            pods = pods_for(asked, pod)
            if not pods:
                continue
            groups.append(
                {
                    "groupName": name,
                    "replicas": pods,
                    "minReplicas": pods,
                    "maxReplicas": pods,
                    "rayStartParams": {"num-cpus": str(int(pod["cpus"])), "num-gpus": str(int(pod.get("gpus", 0)))},
                    "template": self._pod("ray-worker", pod),
                }
            )
        return groups

    def _pod(self, container: str, pod: Mapping[str, Any]) -> dict[str, Any]:
        options = self._options
        resources: dict[str, Any] = {"cpu": str(pod["cpus"]), "memory": str(pod["memory"])}
        if pod.get("gpus"):
            resources[str(options["gpu_resource"])] = str(int(pod["gpus"]))
        mounts = [
            {"name": "storage", "mountPath": str(options["storage"]["path"])},
            {"name": "shm", "mountPath": "/dev/shm"},  # Ray's object store
        ]
        spec: dict[str, Any] = {
            "containers": [
                {
                    "name": container,
                    "image": str(options["image"]),
                    "resources": {"requests": dict(resources), "limits": dict(resources)},
                    "env": self._env(),
                    "volumeMounts": mounts,
                    # Repositories are data of others; nothing in a pod needs to become more than it is.
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
            "automountServiceAccountToken": False,
            "volumes": [
                {"name": "storage", "persistentVolumeClaim": {"claimName": str(options["storage"]["claim"])}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(pod["shm"])}},
            ],
        }
        for key in ("nodeSelector", "tolerations"):
            if pod.get(key):
                spec[key] = copy.deepcopy(pod[key])
        return {"spec": spec}

    def _env(self) -> list[dict[str, Any]]:
        plain: list[dict[str, Any]] = [{"name": k, "value": str(v)} for k, v in sorted(self._settings.env.items())]
        for name, reference in sorted(self._settings.secrets.items()):
            secret, _, key = reference.partition("/")
            if not secret or not key:
                raise ConfigError(
                    f"cluster.submit.secrets.{name}='{reference}' names no Kubernetes secret", "Write it as secret/key"
                )
            plain.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
        return plain


def pods_for(bundles: Sequence[Bundle], pod: Mapping[str, Any]) -> int:
    """Return how many pods of a size hold the bundles, none split over two.

    Raises:
        ConfigError: one bundle alone is larger than a pod.
    """
    size = Bundle(float(pod.get("gpus", 0)), float(pod["cpus"]))
    for bundle in bundles:
        if not bundle.fits(size):
            raise ConfigError(
                f"a worker asks for {bundle}, a pod has {size}",
                "Make the pods of cluster.submit.options larger, or train.cpus_per_worker smaller",
            )
    request = Request(tuple(bundles))
    counts = range(len(bundles) + 1)
    return next(count for count in counts if place(request, [Node(str(n), size) for n in range(count)]) is not None)


def outcome(status: Mapping[str, Any]) -> tuple[bool, int]:
    """Return whether a RayJob has ended, and its exit code: the driver's where KubeRay's message tells it."""
    job, deployment = str(status.get("jobStatus", "")), str(status.get("jobDeploymentStatus", ""))
    if deployment in ("Failed", "ValidationFailed") and job != "SUCCEEDED":
        return True, _driver_code(status, job or "FAILED")
    if job in ("SUCCEEDED", "FAILED", "STOPPED"):
        return True, _driver_code(status, job)
    return False, 0


def _driver_code(status: Mapping[str, Any], job: str) -> int:
    found = re.search(r"exit code (\d+)", str(status.get("message", "")))
    return exit_code(job, int(found[1]) if found else None)


def _rules(status: str, seconds: Any) -> list[dict[str, Any]]:
    """Delete workers, which cost most, at once; the head later, for its logs; the record last."""
    after = int(seconds)
    steps = (("DeleteWorkers", 0), ("DeleteCluster", after), ("DeleteSelf", after + 7 * 24 * 3600))
    return [{"condition": {"jobStatus": status, "ttlSeconds": ttl}, "policy": policy} for policy, ttl in steps]


def _words(status: Mapping[str, Any]) -> str:
    job, deployment = status.get("jobStatus") or "not started", status.get("jobDeploymentStatus") or "new"
    message = str(status.get("message") or "").strip().splitlines()
    return f"{job} ({deployment})" + (f": {message[0][:300]}" if message else "")
