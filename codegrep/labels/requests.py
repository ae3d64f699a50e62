"""Which calls ask to read a file, and which create one: the rules that every miner shares."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from codegrep.labels.arguments import read_arguments
from codegrep.labels.shell_reads import files_read
from codegrep.labels.workspace_paths import PathRules

#: Editors of OpenHands V0, V1 and of SWE-agent; the paper takes calls with command == "view".
EDITORS = ("str_replace_editor", "file_editor", "str_replace_based_edit_tool")
SHELLS = ("execute_bash", "terminal", "bash")

_PLAIN_VIEW = re.compile(r'\{"command": "view", "path": "([^"\\]+)"(?:, "view_range": \[-?\d{1,9}, -?\d{1,9}\])?\}')
_PLAIN_CREATE = re.compile(r'\{"command": "create", "path": "([^"\\]*)", "file_text": "')
#: So much of a create call shows its path where the arguments are plain.
CREATE_HEAD = 600


@dataclass(frozen=True)
class ReadRules:
    """What counts as a read.

    Attributes:
        editors: tools with a `view` command.
        shells: tools that run a shell command.
        shell_readers: shell commands that count as reads; () leaves the shell out, as the paper does.
        drop_created: leave out files that the agent itself had created before it read them: they are in no commit.
        think: tool whose argument `thought` holds reasoning.
    """

    editors: tuple[str, ...] = EDITORS
    shells: tuple[str, ...] = SHELLS
    shell_readers: tuple[str, ...] = ()
    drop_created: bool = True
    think: str = "think"
    paths: PathRules = field(default_factory=PathRules)


@dataclass(frozen=True)
class Request:
    """A call that asks to read: the paths as written (empty where they could not be read), and what was odd."""

    paths: tuple[str, ...]
    oddities: tuple[str, ...] = ()


#: How a plain call's arguments begin. A text that begins so names its command there, and the rest need not be searched.
COMMAND = '{"command": "'
VIEW, CREATE = COMMAND + "view", COMMAND + 'create"'


def view_request(arguments: str) -> Request | None:
    """Return the request of an editor call; None where it is no view. One whose command cannot be read may be one."""
    if plain := _PLAIN_VIEW.fullmatch(arguments):
        return Request((plain[1],))
    if arguments.startswith(COMMAND) and not arguments.startswith(VIEW):
        return None
    if "view" not in arguments:
        return None
    parsed = read_arguments(arguments)
    if parsed.text("command") == "view":
        return Request((parsed.text("path"),) if parsed.text("path") else (), parsed.oddities)
    return None if isinstance(parsed.values.get("command"), str) else Request((), parsed.oddities)


def shell_request(arguments: str, readers: tuple[str, ...]) -> Request | None:
    """Return a shell call's request; None where it prints no file. An unreadable command may print one."""
    if not any(reader in arguments for reader in readers):
        return None
    parsed = read_arguments(arguments, known=("command", "is_input", "timeout", "security_risk"))
    if not isinstance(parsed.values.get("command"), str):
        return Request((), parsed.oddities)
    paths = files_read(parsed.text("command"), readers)
    return Request(paths, parsed.oddities) if paths else None


def created_path(arguments: str) -> str:
    """Return the path that an editor call creates; "" where it creates none."""
    if plain := _PLAIN_CREATE.match(arguments):
        return plain[1]
    if arguments.startswith(COMMAND) and not arguments.startswith(CREATE):
        return ""
    if '"create' not in arguments and "'create" not in arguments:
        return ""
    parsed = read_arguments(arguments)
    return parsed.text("path") if parsed.text("command") == "create" else ""


def created_path_of_head(head: str) -> str | None:
    """Return the same from the first CREATE_HEAD characters; None where they do not suffice."""
    plain = _PLAIN_CREATE.match(head)
    return None if plain is None else plain[1]


def thought_of(arguments: str) -> str:
    """Return the text of a `think` call."""
    return read_arguments(arguments).text("thought")
