"""`python -m codegrep plan …`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields, replace
from pathlib import Path

from codegrep.compose import compose_overrides, load
from codegrep.runtime.resources import request_of
from codegrep.submit.plan.costs import Costs, with_measured
from codegrep.submit.plan.estimate import Limit, Line, Plan, Size, first_to_break, plan
from codegrep.submit.plan.shapes import shape_of

_SIZES = {
    "repositories": "repositories of the data",
    "issues": "issues of the data",
    "held-out": "held-out issues",
    "nodes": "nodes of the cluster",
    "cores": "CPU cores of all nodes",
    "gpus": "GPUs of all nodes",
    "memory-gib": "memory of all nodes, GiB",
    "disk-gib": "disk of all nodes, GiB",
}


def main(argv: list[str]) -> int:
    """Print a plan; 0, also when something would break, since that is an answer."""
    parser = argparse.ArgumentParser(
        prog="python -m codegrep plan",
        description="What a run needs: hours, cores, disk, network; what it assumes; what would break first.",
        epilog="python -m codegrep plan +experiment=v3 scale=paper --times 10",
    )
    parser.add_argument("overrides", nargs="*", help="as for a run")
    parser.add_argument("--times", type=float, default=1.0, help="so many times the data and the rollouts of a step")
    parser.add_argument("--costs", type=Path, help="unit costs measured on this machine (scripts/bench/unit_costs.py)")
    parser.add_argument("--rollout-tokens", type=float, help="share of agent.max_completion_tokens that is sampled")
    parser.add_argument("--json", action="store_true", help="for programs")
    defaults = Size()
    for name, meaning in _SIZES.items():
        default = getattr(defaults, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{meaning} (default {default:g})")
    arguments = parser.parse_intermixed_args(argv)
    config = load(compose_overrides(arguments.overrides), fill_missing=True)
    costs = with_measured(Costs(), arguments.costs) if arguments.costs else Costs()
    if arguments.rollout_tokens is not None:
        given = replace(costs.rollout_tokens, value=arguments.rollout_tokens, source="given")
        costs = replace(costs, rollout_tokens=given)
    size = Size(**{f.name: getattr(arguments, f.name) for f in fields(Size)})
    made = plan(config, shape_of(config), costs, size)
    if arguments.json:
        lines = {title: [asdict(line) for line in lines] for title, lines in made.stages.items()}
        limits = [{**asdict(limit), "headroom": limit.headroom} for limit in made.limits]
        print(json.dumps({"size": asdict(size), "stages": lines, "limits": limits, "costs": asdict(costs)}))
        return 0
    times = "" if size.times == 1 else f", {size.times:g} times the data and the rollouts of a step"
    print(f"Plan: {config.name}, scale {config.scale.name}, model {config.model.path}{times}")
    print(f"Asks Ray for: {request_of(config)}\n")
    print("\n".join(_text(made, costs)))
    return 0


def _text(made: Plan, costs: Costs) -> list[str]:
    out = []
    for title, lines in made.stages.items():
        out += [title, *(_line(line) for line in lines), ""]
    out += ["What can run out (have / need; below 1 it breaks, the first line first)"]
    out += [_limit(limit) for limit in made.limits]
    broken = first_to_break(made.limits)
    if broken is None:
        tight = made.limits[0]
        out += ["", f"Nothing breaks. The tightest is: {tight.what}."]
    else:
        out += ["", f"Breaks first: {broken.what}. What helps: {broken.remedy}."]
    out += ["", "Unit costs (* measured by this project)"]
    for field in fields(costs):
        cost = getattr(costs, field.name)
        mark = "*" if cost.measured else " "
        out.append(f"{mark} {field.name:<24}{_number(cost.value):>12} {cost.unit:<46} {cost.source}")
    return out


def _line(line: Line) -> str:
    return f"  {line.what:<38}{_number(line.value):>12} {line.unit:<11} {line.formula}"


def _limit(limit: Limit) -> str:
    mark = "!" if limit.headroom < 1 else " "
    numbers = f"{_number(limit.have)} / {_number(limit.need)} {limit.unit}"
    return f"{mark} {_number(limit.headroom):>9}  {limit.what}: {numbers}"


def _number(value: float) -> str:
    if value == float("inf"):
        return "∞"
    if value and (abs(value) >= 1e7 or abs(value) < 1e-3):
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
