"""How a tool is described to a model.

The tools themselves live in codegrep.sandbox; their schemas are data and stay here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolSchema:
    """A tool as the model is told about it.

    Attributes:
        name: as it is called.
        description: one sentence.
        parameters: JSON schema of the arguments by name, in the order they are shown.
        required: names that must be given.
    """

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]

    @classmethod
    def of(cls, function: Mapping[str, Any]) -> ToolSchema:
        """From the form that `function` gives."""
        inner = function["function"]
        parameters = inner["parameters"]
        return cls(
            inner["name"], inner["description"], dict(parameters["properties"]), tuple(parameters.get("required", ()))
        )

    @property
    def signature(self) -> str:
        """`name(required, [optional])`, for the short prompt."""
        names = [p if p in self.required else f"[{p}]" for p in self.parameters]
        return f"{self.name}({', '.join(names)})"

    @property
    def function(self) -> dict[str, Any]:
        """The form that chat templates and OpenAI-compatible endpoints take."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": {name: dict(schema) for name, schema in self.parameters.items()},
                    "required": list(self.required),
                },
            },
        }


def schemas_of(tools: Sequence[str]) -> tuple[ToolSchema, ...]:
    """Schemas of the named tools of the protocol; KeyError for any other name."""
    return tuple(SCHEMAS[name] for name in tools)


# Names and arguments are ours; the paper prints no schemas.
SCHEMAS: Mapping[str, ToolSchema] = {
    schema.name: schema
    for schema in (
        ToolSchema(
            "grep",
            "Search file contents with a regular expression; returns path:line: text.",
            {
                "pattern": {"type": "string", "description": "regular expression"},
                "path": {"type": "string", "description": "folder or file to search, default the whole repository"},
                "include": {"type": "string", "description": "glob that file names must match"},
                "ignore_case": {"type": "boolean", "description": "ignore upper and lower case, default false"},
            },
            ("pattern",),
        ),
        ToolSchema(
            "search",
            "Find code by what it is about; returns path:first-last line: head of functions, best first.",
            {
                "query": {"type": "string", "description": "what the code is about, in words or names"},
                "k": {"type": "integer", "description": "number of results"},
                "path": {"type": "string", "description": "folder, file or glob, default the whole repository"},
                "pattern": {"type": "string", "description": "regular expression that a result must match"},
            },
            ("query",),
        ),
        ToolSchema(
            "glob",
            "List the paths that match a glob pattern such as src/**/*.py.",
            {
                "pattern": {"type": "string", "description": "glob pattern"},
                "path": {"type": "string", "description": "folder to list, default the whole repository"},
            },
            ("pattern",),
        ),
        ToolSchema(
            "read",
            "Read lines of a file.",
            {
                "path": {"type": "string", "description": "file to read"},
                "start": {"type": "integer", "description": "first line, default 1"},
                "end": {"type": "integer", "description": "last line"},
            },
            ("path",),
        ),
    )
}
