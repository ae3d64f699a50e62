"""The stages of an experiment, in the order in which they run.

A stage is a module with two functions, and a third where it is needed:

- `inputs`: what decides its result, as plain data for its artifact's fingerprint.
- `run`: makes the result in the artifact's folder; returns a summary.
- `already`: what a run has to say or log that finds the artifact complete.

Their parameters name what they take, and `codegrep.pipeline.run.Run` gives it: any public attribute of Run, `artifact`
(the stage's own), or the artifact of an earlier stage by the stage's name. A parameter with a default gets it where
the earlier stage has not run. To add a stage: write the module and a line below.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """Where a stage is and what has to be there before it runs.

    Attributes:
        module: imported only by a run.
        on_ray: it computes in Ray; a run that has nothing left to do for such stages never starts Ray.
        on_model: it uses model and engine, which are checked before anything starts.
        always: it is run again also where its artifact is complete.
    """

    module: str
    on_ray: bool = False
    on_model: bool = False
    always: bool = False


STAGES = {
    "prepare": Stage("codegrep.pipeline.stages.prepare"),
    "label": Stage("codegrep.labels.stage", on_ray=True),
    "warm_start": Stage("codegrep.pipeline.stages.warm_start", on_ray=True, on_model=True),
    "train": Stage("codegrep.pipeline.stages.train", on_ray=True, on_model=True),
    "evaluate": Stage("codegrep.pipeline.stages.evaluate", on_ray=True, on_model=True),
    "report": Stage("codegrep.pipeline.stages.report", always=True),
}
