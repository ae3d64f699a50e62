"""conf/cluster: where a run computes, and how it gets there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class SubmitConfig:
    """cluster.submit: how a run reaches a cluster that it is not started on (cluster.submit).

    Attributes:
        kind: dotted name of the target's class.
        address: of the cluster's dashboard, for the Jobs API.
        upload: send the checkout along; False where the cluster's image holds it.
        max_upload_mib: more than this is not sent. excludes: patterns (of .gitignore's kind) that stay here.
        env: variables for the job, plain: they are shown in dashboards.
        secrets: variable -> reference; never a value. "" means that the cluster's own environment has it; for
            Kubernetes it is "secret/key".
        options: what the target alone knows; its conf/cluster file explains them.
    """

    kind: str
    address: str = ""
    upload: bool = True
    max_upload_mib: float = 50.0
    excludes: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class ClusterConfig:
    """conf/cluster.

    Attributes:
        address: None starts a local Ray sized to this machine; "auto" or host:port joins one.
        num_cpus: for a local Ray; None takes all.
        object_store_gib: for a local Ray.
        storage: fsspec address (s3://bucket/path) for finished artifacts and checkpoints; "" keeps them in `outputs`.
        submit: how `codegrep submit` brings the run there; None where it does not.
    """

    name: str
    address: str | None
    num_cpus: int | None
    object_store_gib: float
    storage: str = ""
    submit: SubmitConfig | None = None
