"""Stage 1: issues, their split, the repositories they need, and the worktrees they will be searched in."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from codegrep.errors import CodegrepError, DataError, DiskError, InfrastructureError, RepositoryError
from codegrep.issues import Issue
from codegrep.issues.entities import gold_entities
from codegrep.issues.git import Repo, blob, holds, open_repository
from codegrep.issues.jsonl import read_issues, write_issues
from codegrep.issues.load import build_source, load_issues
from codegrep.issues.repositories import list_repositories
from codegrep.issues.roles import Role, kept_out, known_roles
from codegrep.issues.source import RepositoryLocation, StatefulSource
from codegrep.issues.splits import Split, check_leaks, make_split
from codegrep.pipeline import needed_gold
from codegrep.pipeline.context import Context
from codegrep.runtime.artifacts import Artifact, from_outputs
from codegrep.sandbox.repositories import BareClone, Repositories

_PLACES = "repositories.json"


@dataclass(frozen=True)
class Prepared:
    """What the stage leaves: issues by side. roles: by repository, of those that conf/roles.yaml has one for."""

    train: tuple[Issue, ...]
    held_out: tuple[Issue, ...]
    fingerprint: str
    validation: tuple[Issue, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)


def inputs(context: Context) -> dict[str, Any]:
    """The data configuration, and the state of what its sources read."""
    data = context.config.data
    wanted = asdict(data)
    del wanted["max_missing_gold"]  # it changes no issue
    if not data.gold_entities:
        del wanted["gold_entities"]  # so that artifacts from before there was a choice stay good
    state: dict[str, Any] = {}
    for name, settings in data.sources.items():
        source = build_source(name, settings)
        if isinstance(source, StatefulSource):
            state[name] = source.state()
        else:
            named = {value for value in settings.args.values() if isinstance(value, str)}
            state |= {value: found for value in named if (found := _state(Path(value)))}
    wanted = from_outputs(wanted, context.config.outputs)
    return {"data": wanted, "state": state, "roles": known_roles().digest}


def _state(path: Path) -> dict[str, str]:
    """Size and time of a file, the newest commit of each repository in a folder; empty for what is no path."""
    path = path.expanduser()
    if path.is_file():
        stat = path.stat()
        return {"file": f"{stat.st_size} bytes of {int(stat.st_mtime)}"}
    if not path.is_dir():
        return {}
    heads = {}
    for repo, folder in list_repositories(path).items():
        try:
            with open_repository(folder) as opened:
                heads[repo] = opened.git.rev_parse("HEAD")
        except CodegrepError:
            heads[repo] = ""  # no commit yet, or broken: the source says so
    return heads


def run(context: Context, artifact: Artifact) -> dict[str, Any]:
    """Load, check against the repositories, split, check for leaks, write."""
    config = context.config
    loaded = load_issues(config.data)
    dropped: Counter[str] = Counter(loaded.skipped)
    broken = [asdict(b) for b in loaded.broken]
    stop = threading.Event()
    root, seconds = context.places.sandbox / "bare", config.sandbox.clone_timeout
    repositories = Repositories(root, clone_timeout=seconds, stop=stop)
    by_repo: dict[str, list[Issue]] = defaultdict(list)
    for issue in loaded.issues:
        by_repo[issue.repo].append(issue)
    kept: list[Issue] = []
    with context.progress("repositories", len(by_repo)) as advance, _threads(2, stop) as pool:

        def check(repo: str) -> tuple[str, list[Issue], Counter[str], list[dict[str, Any]]]:
            where = loaded.repositories.get(repo)
            return repo, *_usable(repositories, repo, by_repo[repo], where, config.data.gold_entities)

        for repo, usable, reasons, failures in pool.map(check, sorted(by_repo)):
            kept.extend(usable)
            dropped.update(reasons)
            broken.extend(failures)
            advance(note=repo)
    if not kept:
        reasons_text = "; ".join(f"{n} {reason}" for reason, n in dropped.most_common(5)) or "the sources are empty"
        first = f"; first: {broken[0]['reason']}" if broken else ""
        raise DataError(f"no usable issue is left ({reasons_text}{first})", "Check data.sources in the configuration")
    roles = _roles(context, repositories, sorted({issue.repo for issue in kept}), stop)
    split = make_split(kept, config.data.split, loaded.train_only, roles, loaded.removed_by_role)
    check_leaks(split, kept)
    for role, counts in split.record["removed_by_role"].items():
        dropped[kept_out(role)] = sum(counts.values())  # those that the sources have counted among them
    if shared := split.record["removed_shared_messages"]:
        dropped["message of a held-out or validation issue"] = shared
    by_id = {issue.instance_id: issue for issue in kept}
    needed_gold.check(config, [by_id[i] for i in split.train])
    chosen = [by_id[i] for i in (*split.train, *split.validation, *split.held_out)]
    write_issues(artifact.folder / "issues.jsonl", chosen)
    (artifact.folder / "split.json").write_text(split.to_json(), encoding="utf-8")
    artifact.write_json(_PLACES, {repo: _place(location) for repo, location in loaded.repositories.items()})
    artifact.write_json("dropped.json", {"counts": dict(dropped), "rows": broken[:1000]})
    summary = {
        "issues": len(chosen),
        "train": len(split.train),
        "validation": len(split.validation),
        "held_out": len(split.held_out),
        "repositories": len(by_repo),
        "dropped": sum(dropped.values()),
        "split": split.fingerprint,
    }
    _tell(context, summary, dropped, broken, artifact)
    return summary


def already(context: Context, artifact: Artifact) -> None:
    """Check again for this run's reward, and log what the stage said, so that every MLflow run is whole."""
    needed_gold.check(context.config, load(artifact).train)
    _find_again(context, artifact)
    _log(context, artifact.summary, artifact)


def _find_again(context: Context, artifact: Artifact) -> None:
    """Note where repositories are here, when they were moved, or the artifact comes from another machine's storage."""
    places = artifact.read_json(_PLACES)
    gone = [repo for repo, place in places.items() if place["local"] and not Path(place["local"]).exists()]
    if not gone:
        return
    try:
        found = load_issues(context.config.data).repositories
    except CodegrepError:
        found = {}
    clones = Repositories(context.places.sandbox / "bare", clone_timeout=context.config.sandbox.clone_timeout)
    for repo in gone:
        if repo in found:
            places[repo] = _place(found[repo])
        elif _cloned(clones, repo):
            del places[repo]  # nothing needs its origin any more
    artifact.write_json(_PLACES, places)


def _cloned(clones: Repositories, repo: str) -> bool:
    try:
        clones.open(repo)
    except RepositoryError:
        return False
    return True


def _place(location: RepositoryLocation) -> dict[str, Any]:
    return {"local": location.local, "url": location.url}


def load(artifact: Artifact) -> Prepared:
    """Read the stage's issues back."""
    split = Split.from_json((artifact.folder / "split.json").read_text(encoding="utf-8"))
    by_id = {issue.instance_id: issue for issue in read_issues(artifact.folder / "issues.jsonl")}
    train, held_out, validation = (
        tuple(by_id[i] for i in side) for side in (split.train, split.held_out, split.validation)
    )
    return Prepared(train, held_out, artifact.fingerprint, validation, split.record.get("roles", {}))


def locations(artifact: Artifact) -> dict[str, RepositoryLocation]:
    """Where the clones came from, for a node that lacks one."""
    return {
        repo: RepositoryLocation(Path(place["local"]) if place["local"] else None, place["url"])
        for repo, place in artifact.read_json(_PLACES).items()
    }


@contextmanager
def _threads(count: int, stop: threading.Event) -> Iterator[ThreadPoolExecutor]:
    """A pool whose closing would wait for every thread: an error or Ctrl-C sets `stop` first, and drops what waits."""
    with ThreadPoolExecutor(count) as pool:
        try:
            yield pool
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _usable(
    repositories: Repositories, repo: str, issues: Sequence[Issue], location: Any, entities: bool = False
) -> tuple[list[Issue], Counter[str], list[dict[str, Any]]]:
    """Issues of one repository whose commit and gold files are really there, with counts and rows of the others."""
    reasons: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []

    def drop(issue: Issue, reason: str, detail: str) -> None:
        reasons[reason] += 1
        failures.append({"where": issue.instance_id, "reason": detail})

    try:
        clone: BareClone = repositories.ensure(repo, location)
    except (DiskError, InfrastructureError):
        raise  # the machine's fault: the issues are good, and the next attempt finds them
    except CodegrepError as error:
        for issue in issues:
            drop(issue, "repository cannot be cloned", str(error))
        return [], reasons, failures
    kept = []
    there = existing(clone, {i.base_commit for i in issues})
    reachable = []
    for issue in issues:
        try:
            if issue.base_commit not in there:
                repositories.fetch_commit(clone, issue.base_commit)
        except RepositoryError as error:
            drop(issue, "missing commit", str(error))
            continue
        reachable.append(issue)
    files = existing(clone, {f"{i.base_commit}:{path}" for i in reachable for path in i.gold_files})
    for issue in reachable:
        missing = [path for path in issue.gold_files if f"{issue.base_commit}:{path}" not in files]
        if missing:
            drop(issue, "gold file missing at the base commit", f"{', '.join(missing[:3])} at {issue.base_commit[:12]}")
            continue
        kept.append(issue)
    if entities:
        with open_repository(clone.path) as opened:
            kept = [_with_entities(opened, issue) for issue in kept]
    return kept, reasons, failures


def _roles(
    context: Context, repositories: Repositories, repos: Sequence[str], stop: threading.Event
) -> dict[str, Role]:
    """Roles by name and by first commits, of the repositories that have one; their clones are here."""
    with _threads(2, stop) as pool:
        roots = dict(zip(repos, pool.map(lambda repo: repositories.roots(repositories.open(repo)), repos), strict=True))
    if shallow := [repo for repo in repos if not roots[repo]]:
        context.say(f"  shallow clones, of which nobody can tell whose forks they are: {', '.join(shallow[:5])}")
    found = {repo: known_roles().of(repo, roots[repo]) for repo in repos}
    return {repo: role for repo, role in found.items() if role is not None}


def _with_entities(clone: Repo, issue: Issue) -> Issue:
    def read(path: str) -> str | None:
        name = f"{issue.base_commit}:{path}"
        return blob(clone, name).decode("utf-8", "replace") if holds(clone, name) else None

    return replace(issue, gold_entities=gold_entities(issue.gold_files, issue.gold_ranges, read))


def existing(clone: BareClone, names: Collection[str]) -> set[str]:
    """Those of some object names ("commit", "commit:path") that the clone holds."""
    with open_repository(clone.path) as opened:
        return {name for name in names if holds(opened, name)}


def _tell(
    context: Context,
    summary: dict[str, Any],
    dropped: Counter[str],
    broken: Sequence[dict[str, Any]],
    artifact: Artifact,
) -> None:
    context.say(
        f"  {summary['train']} issues for training, {summary['held_out']} held out, "
        + (f"{summary['validation']} for validation, " if summary["validation"] else "")
        + f"{summary['repositories']} repositories; {summary['dropped']} rows left out"
    )
    for reason, number in dropped.most_common(8):
        context.say(f"    {number:6d}  {reason}")
    for row in broken[:3]:
        context.say(f"    e.g. {row['where']}: {row['reason']}")
    _log(context, summary, artifact)


def _log(context: Context, summary: dict[str, Any], artifact: Artifact) -> None:
    numbers = ("train", "held_out", "repositories", "dropped")
    context.tracker.metrics({f"data/{k}": float(summary[k]) for k in numbers}, step=0)
    context.tracker.tags({"data.fingerprint": artifact.fingerprint[:12], "data.split": str(summary["split"])[:12]})
    for name in ("split.json", "dropped.json"):
        context.tracker.artifact(artifact.folder / name, "data")
