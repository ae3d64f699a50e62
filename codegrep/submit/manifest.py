"""What must hold of a RayJob before Kubernetes sees it: the fields that are used here, as the CRD ray.io/v1 and the
rules of its operator have them. An unknown field is a mistake, since the API server would drop it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from codegrep.errors import ConfigError

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# The operator appends to the name for pods and services, and refuses longer ones.
_MAX_NAME = 47
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
_POLICIES = {"DeleteWorkers": 0, "DeleteCluster": 1, "DeleteSelf": 2, "DeleteNone": -1}
_SHAPE: dict[str, dict[str, type | tuple[type, ...]]] = {
    "": {"apiVersion": str, "kind": str, "metadata": dict, "spec": dict},
    "spec": {
        "jobId": str,
        "entrypoint": str,
        "submissionMode": str,
        "backoffLimit": int,
        "submitterConfig": dict,
        "deletionStrategy": dict,
        "rayClusterSpec": dict,
    },
    "rayClusterSpec": {"rayVersion": str, "authOptions": dict, "headGroupSpec": dict, "workerGroupSpecs": list},
    "headGroupSpec": {"rayStartParams": dict, "template": dict},
    "workerGroupSpecs[]": {
        "groupName": str,
        "replicas": int,
        "minReplicas": int,
        "maxReplicas": int,
        "rayStartParams": dict,
        "template": dict,
    },
}


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Check structure, names, quantities and deletion rules.

    Raises:
        ConfigError: the first thing that is wrong.
    """
    _shape("", manifest)
    _need(manifest["apiVersion"] == "ray.io/v1" and manifest["kind"] == "RayJob", "it is no RayJob of ray.io/v1")
    name = manifest["metadata"]["name"]
    _need(bool(_NAME.fullmatch(name)) and len(name) <= _MAX_NAME, f"metadata.name '{name}' is not allowed")
    spec = manifest["spec"]
    _shape("spec", spec)
    _need(spec["backoffLimit"] == 0, "spec.backoffLimit is not 0: a failed run would be repeated blindly")
    _need(spec["submissionMode"] in ("K8sJobMode", "HTTPMode", "SidecarMode"), "spec.submissionMode is unknown")
    _deletion(spec["deletionStrategy"])
    cluster = spec["rayClusterSpec"]
    _shape("rayClusterSpec", cluster)
    _need(cluster["authOptions"].get("mode") == "token", "token authentication is off")
    _shape("headGroupSpec", cluster["headGroupSpec"])
    _start_params("headGroupSpec", cluster["headGroupSpec"])
    _pod("headGroupSpec", cluster["headGroupSpec"]["template"])
    groups = cluster["workerGroupSpecs"]
    names = [group.get("groupName") for group in groups]
    _need(len(set(names)) == len(names), f"workerGroupSpecs: names {names} are not distinct")
    for group in groups:
        where = f"workerGroupSpecs '{group.get('groupName')}'"
        _shape("workerGroupSpecs[]", group, where)
        _need(bool(_NAME.fullmatch(group["groupName"])), f"{where}: its name is not allowed")
        sizes = group["minReplicas"], group["replicas"], group["maxReplicas"]
        _need(0 <= sizes[0] <= sizes[1] <= sizes[2], f"{where}: replicas {sizes} are out of order")
        _start_params(where, group)
        _pod(where, group["template"])


def _need(ok: bool, what: str) -> None:
    if not ok:
        raise ConfigError(f"the RayJob cannot be submitted: {what}", "Check cluster.submit.options")


def _shape(key: str, part: Mapping[str, Any], where: str = "") -> None:
    shape, where = _SHAPE[key], where or key or "the manifest"
    unknown = sorted(set(part) - set(shape))
    _need(not unknown, f"{where} has unknown fields {unknown}")
    for name, kind in shape.items():
        _need(name in part, f"{where} lacks {name}")
        _need(isinstance(part[name], kind) and not isinstance(part[name], bool), f"{where}.{name} has a wrong type")


def _deletion(strategy: Mapping[str, Any]) -> None:
    rules: Sequence[Mapping[str, Any]] = strategy.get("deletionRules") or []
    _need(
        set(strategy) == {"deletionRules"} and bool(rules), "deletionStrategy has no deletionRules, or more than those"
    )
    seen: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for rule in rules:
        _need(set(rule) == {"condition", "policy"} and rule["policy"] in _POLICIES, f"deletion rule {rule} is odd")
        condition = rule["condition"]
        kinds = set(condition) & {"jobStatus", "jobDeploymentStatus"}
        _need(len(kinds) == 1, "a deletion rule needs one of jobStatus and jobDeploymentStatus")
        kind = kinds.pop()
        allowed = {"jobStatus": ("SUCCEEDED", "FAILED"), "jobDeploymentStatus": ("Failed",)}[kind]
        _need(condition[kind] in allowed, f"a deletion rule waits for {kind}={condition[kind]}, which never comes")
        ttl = condition.get("ttlSeconds", 0)
        _need(isinstance(ttl, int) and ttl >= 0, "ttlSeconds of a deletion rule is no number of seconds")
        seen.setdefault((kind, condition[kind]), []).append((_POLICIES[rule["policy"]], ttl))
    for steps in seen.values():
        _need(len({policy for policy, _ in steps}) == len(steps), "two deletion rules do the same")
        ttls = [ttl for _, ttl in sorted(steps)]
        _need(ttls == sorted(ttls), "a deletion rule that takes more comes before one that takes less")


def _start_params(where: str, group: Mapping[str, Any]) -> None:
    wrong = {k: v for k, v in group["rayStartParams"].items() if not isinstance(v, str)}
    _need(not wrong, f"{where}.rayStartParams must be texts: {wrong}")


def _pod(where: str, template: Mapping[str, Any]) -> None:
    spec = template.get("spec", {})
    containers = spec.get("containers") or []
    _need(len(containers) >= 1, f"{where} has no container")
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    for container in containers:
        _need(bool(container.get("image")), f"{where} has no image")
        for mount in container.get("volumeMounts", []):
            _need(mount["name"] in volumes, f"{where} mounts '{mount['name']}', which is no volume of it")
        for kind in ("requests", "limits"):
            for name, value in container.get("resources", {}).get(kind, {}).items():
                good = isinstance(value, str) and bool(_QUANTITY.fullmatch(value))
                _need(good, f"{where}: {name}={value} is no quantity")
        for variable in container.get("env", []):
            given = {"value", "valueFrom"} & set(variable)
            _need(len(given) == 1, f"{where}: variable {variable.get('name')} needs a value or a reference")
    claimed = [v for v in spec.get("volumes", []) if v.get("persistentVolumeClaim", {}).get("claimName")]
    _need(bool(claimed), f"{where} mounts no shared storage")
