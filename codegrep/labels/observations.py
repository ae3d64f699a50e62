"""What a tool's answer to a read says: a file's text, a directory, or a failure."""

from __future__ import annotations

import re

#: So much of an observation decides; the rest is the file's own text.
HEAD = 240

_LISTING = re.compile(r"\s*Here(?:'|’)s the files and directories up to \d+ levels? deep", re.ASCII)
_SHOWN = re.compile(r"\s*Here(?:'|’)s the result of running `cat -n`", re.ASCII)
_FAILED = re.compile(
    r"""\s*(?:\[?ERROR\b | Error[:\s] | Invalid\s`\w+` | Traceback\s\( | \[Errno\s | Exception: | usage:\s
    | <returncode>(?!0<)-?\d+ | An\serror\soccurred | Execution\stimed\sout | The\spath\s\S+\sdoes\snot\sexist
    | (?:cat|sed|head|tail|nl|less|more|bash|sh|/bin/\w+):\s[^\n]*:\s
        (?:No\ssuch\sfile|Is\sa\sdirectory|Permission\sdenied|command\snot\sfound|not\sfound|cannot\sopen))""",
    re.VERBOSE,
)
_SHELL_FAILURE = re.compile(
    r"^(?:cat|sed|head|tail|nl|less|more): .*?(?:No such file or directory|Is a directory|Permission denied)",
    re.MULTILINE,
)


def read_failure(head: str) -> str:
    """Return "" for a shown file, else the reason why the read gives no target.

    Args:
        head: the first characters of the observation, HEAD at most.
    """
    if _SHOWN.match(head):
        return ""
    if _LISTING.match(head):
        return "directory"
    if _FAILED.match(head) or _SHELL_FAILURE.search(head):
        return "failed read"
    return ""
