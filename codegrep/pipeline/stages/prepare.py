"""Stage 1: issues, their split, the repositories they need, and the worktrees they will be searched in."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from codegrep.config import Config
from codegrep.errors import CodegrepError, DataError, DiskError, InfrastructureError, RepositoryError, disk_error
from codegrep.issues import Issue
from codegrep.issues.entities import gold_entities
from codegrep.issues.git import Repo, blob, holds, open_repository
from codegrep.issues.jsonl import write_issues
from codegrep.issues.load import build_source, load_issues
from codegrep.issues.repositories import list_repositories
from codegrep.issues.roles import Role, kept_out, known_roles
from codegrep.issues.source import RepositoryLocation, StatefulSource
from codegrep.issues.splits import check_leaks, make_split
from codegrep.pipeline import needed_gold
from codegrep.pipeline.prepared import ISSUES, PLACES, SPLIT, existing, load
from codegrep.runtime.artifacts import Artifact, Places, from_outputs
from codegrep.runtime.progress import Progress
from codegrep.sandbox.repositories import Repositories
from codegrep.tracking.run import Tracker

_LISTED_ROWS = 20_000  # of what was left out


def inputs(config: Config) -> dict[str, Any]:
    """Return the data configuration, and the state of what its sources read."""
    data = config.data
    settings_of_data = asdict(data)
    del settings_of_data["max_missing_gold"]  # it changes no issue
    state: dict[str, Any] = {}
    for name, settings in data.sources.items():
        source = build_source(name, settings)
        if isinstance(source, StatefulSource):
            state[name] = source.state()
        else:
            texts = {value for value in settings.args.values() if isinstance(value, str)}
            state |= {text: state_of_path for text in texts if (state_of_path := _state(Path(text)))}
    return {"data": from_outputs(settings_of_data, config.outputs), "state": state, "roles": known_roles().digest}


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


def run(config: Config, places: Places, artifact: Artifact, tracker: Tracker, progress: Progress) -> dict[str, Any]:
    """Load the issues, check them against their repositories, split them, check for leaks, write them."""
    loaded = load_issues(config.data)
    dropped: Counter[str] = Counter(loaded.skipped)
    broken = [asdict(row) for row in loaded.broken]
    stop = threading.Event()
    repositories = Repositories(places.clones, clone_timeout=config.sandbox.clone_timeout, stop=stop)
    by_repo: dict[str, list[Issue]] = defaultdict(list)
    for issue in loaded.issues:
        by_repo[issue.repo].append(issue)
    usable: list[Issue] = []
    with progress.bar("repositories", len(by_repo)) as advance, _threads(2, stop) as pool:

        def check(repo: str) -> tuple[str, _Checked]:
            location = loaded.repositories.get(repo)
            return repo, _check(repositories, repo, by_repo[repo], location, config.data.gold_entities)

        for repo, checked in pool.map(check, sorted(by_repo)):
            usable.extend(checked.usable)
            dropped.update(checked.reasons)
            broken.extend(checked.rows)
            advance(note=repo)
    if not usable:
        reasons_text = "; ".join(f"{n} {reason}" for reason, n in dropped.most_common(5)) or "the sources are empty"
        first = f"; first: {broken[0]['reason']}" if broken else ""
        raise DataError(f"no usable issue is left ({reasons_text}{first})", "Check data.sources in the configuration")
    roles = _roles(progress, repositories, sorted({issue.repo for issue in usable}), stop)
    split = make_split(usable, config.data.split, loaded.train_only, roles, loaded.removed_by_role)
    check_leaks(split, usable)
    for role, counts in split.record["removed_by_role"].items():
        dropped[kept_out(role)] = sum(counts.values())  # those that the sources have counted among them
    if shared := split.record["removed_shared_messages"]:
        dropped["message of a held-out or validation issue"] = shared
    by_id = {issue.instance_id: issue for issue in usable}
    needed_gold.check(config, [by_id[i] for i in split.train])
    sides = {side: [by_id[i] for i in getattr(split, side)] for side in ("train", "validation", "held_out")}
    write_issues(artifact.folder / ISSUES, sides)
    (artifact.folder / SPLIT).write_text(split.to_json(), encoding="utf-8")
    artifact.write_json(PLACES, {repo: _place(location) for repo, location in loaded.repositories.items()})
    rows = [*broken, *map(asdict, loaded.left_out[:_LISTED_ROWS])]
    artifact.write_json("dropped.json", {"counts": dict(dropped), "rows": rows[:_LISTED_ROWS]})
    summary = {
        "issues": sum(map(len, sides.values())),
        **{side: len(issues) for side, issues in sides.items()},
        "repositories": len(by_repo),
        "dropped": sum(dropped.values()),
        "split": split.fingerprint,
    }
    _say(progress, summary, dropped, broken, artifact)
    _log(tracker, summary, artifact)
    return summary


def already(config: Config, places: Places, artifact: Artifact, tracker: Tracker) -> None:
    """Check again for this run's reward, and log what the stage said, so that every MLflow run is whole."""
    needed_gold.check(config, load(artifact).train)
    _find_again(config, places, artifact)
    _log(tracker, artifact.summary, artifact)


def _find_again(config: Config, places: Places, artifact: Artifact) -> None:
    """Note where repositories are here, when they were moved, or the artifact comes from another machine's storage."""
    noted = artifact.read_json(PLACES)
    gone = [repo for repo, place in noted.items() if place["local"] and not Path(place["local"]).exists()]
    if not gone:
        return
    try:
        of_sources = load_issues(config.data).repositories
    except CodegrepError:
        of_sources = {}
    clones = Repositories(places.clones, clone_timeout=config.sandbox.clone_timeout)
    for repo in gone:
        if repo in of_sources:
            noted[repo] = _place(of_sources[repo])
        elif _cloned(clones, repo):
            del noted[repo]  # nothing needs its origin any more
    artifact.write_json(PLACES, noted)


def _cloned(clones: Repositories, repo: str) -> bool:
    try:
        clones.open(repo)
    except RepositoryError:
        return False
    return True


def _place(location: RepositoryLocation) -> dict[str, Any]:
    return {"local": location.local, "url": location.url}


@contextmanager
def _threads(count: int, stop: threading.Event) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool. An error or Ctrl-C sets `stop` and drops what waits: closing would wait for every thread."""
    with ThreadPoolExecutor(count) as pool:
        try:
            yield pool
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@dataclass
class _Checked:
    """The issues of one repository whose commit and gold files are there, with counts and rows of the others."""

    usable: list[Issue] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def drop(self, issue: Issue, reason: str, detail: str) -> None:
        self.reasons[reason] += 1
        self.rows.append({"where": issue.instance_id, "reason": detail})


def _check(
    repositories: Repositories,
    repo: str,
    issues: Sequence[Issue],
    location: RepositoryLocation | None,
    entities: bool,
) -> _Checked:
    checked = _Checked()
    try:
        clone = repositories.ensure(repo, location)
    except (DiskError, InfrastructureError):
        raise  # the machine's fault: the issues are good, and the next attempt finds them
    except CodegrepError as error:
        if full := disk_error(error):
            raise full from error
        for issue in issues:
            checked.drop(issue, "repository cannot be cloned", str(error))
        return checked
    there = existing(clone, {i.base_commit for i in issues})
    reachable = []
    for issue in issues:
        try:
            if issue.base_commit not in there:
                repositories.fetch_commit(clone, issue.base_commit)
        except RepositoryError as error:
            checked.drop(issue, "missing commit", str(error))
            continue
        reachable.append(issue)
    files = existing(clone, {f"{i.base_commit}:{path}" for i in reachable for path in i.gold_files})
    for issue in reachable:
        missing = [path for path in issue.gold_files if f"{issue.base_commit}:{path}" not in files]
        if missing:
            detail = f"{', '.join(missing[:3])} at {issue.base_commit[:12]}"
            checked.drop(issue, "gold file missing at the base commit", detail)
            continue
        checked.usable.append(issue)
    if entities:
        with open_repository(clone.path) as opened:
            checked.usable[:] = [_with_entities(opened, issue) for issue in checked.usable]
    return checked


def _roles(
    progress: Progress, repositories: Repositories, repos: Sequence[str], stop: threading.Event
) -> dict[str, Role]:
    """Return roles by name and by first commits, of the repositories that have one; their clones are here."""
    with _threads(2, stop) as pool:
        roots = dict(zip(repos, pool.map(lambda repo: repositories.roots(repositories.open(repo)), repos), strict=True))
    if shallow := [repo for repo in repos if not roots[repo]]:
        progress.say(f"  shallow clones, of which nobody can tell whose forks they are: {', '.join(shallow[:5])}")
    roles = {repo: known_roles().of(repo, roots[repo]) for repo in repos}
    return {repo: role for repo, role in roles.items() if role is not None}


def _with_entities(clone: Repo, issue: Issue) -> Issue:
    def read(path: str) -> str | None:
        name = f"{issue.base_commit}:{path}"
        return blob(clone, name).decode("utf-8", "replace") if holds(clone, name) else None

    return replace(issue, gold_entities=gold_entities(issue.gold_files, issue.gold_ranges, read))


def _say(
    progress: Progress,
    summary: dict[str, Any],
    dropped: Counter[str],
    broken: Sequence[dict[str, Any]],
    artifact: Artifact,
) -> None:
    progress.say(
        f"  {summary['train']} issues for training, {summary['held_out']} held out, "
        + (f"{summary['validation']} for validation, " if summary["validation"] else "")
        + f"{summary['repositories']} repositories; {summary['dropped']} rows left out"
    )
    for reason, number in dropped.most_common(8):
        progress.say(f"    {number:6d}  {reason}")
    for row in broken[:3]:
        progress.say(f"    e.g. {row['where']}: {row['reason']}")
    progress.say(f"  Issues, and what was left out and why: {artifact.folder}")


def _log(tracker: Tracker, summary: dict[str, Any], artifact: Artifact) -> None:
    numbers = ("train", "held_out", "repositories", "dropped")
    tracker.metrics({f"data/{k}": float(summary[k]) for k in numbers}, step=0)
    tracker.tags({"data.fingerprint": artifact.fingerprint[:12], "data.split": str(summary["split"])[:12]})
    for name in (SPLIT, "dropped.json"):
        tracker.artifact(artifact.folder / name, "data")
