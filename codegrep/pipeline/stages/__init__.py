"""The stages of an experiment, in the order in which they run.

A stage is a module with `inputs(context)`, what decides its result, and `run(context, artifact)`, which makes it. To
add one: write the module and a line below.
"""

STAGES = {
    "prepare": "codegrep.pipeline.stages.prepare",
    "label": "codegrep.labels.stage",
    "warm_start": "codegrep.pipeline.stages.warm_start",
    "train": "codegrep.pipeline.stages.train",
    "evaluate": "codegrep.pipeline.stages.evaluate",
    "report": "codegrep.pipeline.stages.report",
}
"""Name -> module, imported only by a run."""
