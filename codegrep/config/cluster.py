"""conf/cluster: where a run computes, and how it gets there."""

from __future__ import annotations

from typing import Any

from codegrep.config.setting import group, setting


@group
class SubmitConfig:
    """cluster.submit: how `codegrep submit` brings a run to a cluster."""

    kind: str = setting("dotted name of the target's class")
    address: str = setting("URL of the cluster's dashboard, for the Jobs API", default="")
    upload: bool = setting("send the checkout along; false where the cluster's image holds it", default=True)
    max_upload_mib: float = setting("MiB; a larger upload is refused", gt=0, default=50.0)
    excludes: list[str] = setting("patterns, as in .gitignore, that are not uploaded", default_factory=list)
    env: dict[str, str] = setting("environment of the job; dashboards show it", default_factory=dict)
    secrets: dict[str, str] = setting(
        "variable -> reference, never a value; '' is the cluster's own environment, secret/key is Kubernetes'",
        default_factory=dict,
    )
    options: dict[str, Any] = setting("options of the target; its YAML file explains them", default_factory=dict)


@group
class ClusterConfig:
    """conf/cluster."""

    name: str = setting("label")
    address: str | None = setting("null: a local Ray; auto or host:port: join a cluster")
    num_cpus: int | None = setting("CPUs of a local Ray; null: all", ge=1)
    object_store_gib: float = setting("object store of a local Ray, GiB; of no use where one is joined", ge=0)
    storage: str = setting(
        "fsspec address (s3://bucket/path) for finished artifacts and checkpoints; empty: `outputs`", default=""
    )
    submit: SubmitConfig | None = setting("see cluster.submit; null: not submitted", default=None)
