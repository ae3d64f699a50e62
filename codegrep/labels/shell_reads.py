"""Files that a shell command prints: cat, sed -n, head and the like. Off by default, as in the paper."""

from __future__ import annotations

import posixpath
import re
import shlex

#: Commands that print a file. Which of them count is a configuration key.
SHELL_READERS = ("cat", "head", "tail", "sed", "nl", "less", "more")

_PARTS = re.compile(r"&&|\|\||;|\n|\|(?!\|)")
#: A longer command is a program, often with a file in a here-document. `shlex` takes time with the square of a length.
MAX_COMMAND_CHARS = 4000
_WITH_VALUE = {"head": {"-n", "-c"}, "tail": {"-n", "-c"}, "nl": {"-b", "-s", "-w", "-v"}, "sed": {"-e", "-f"}}


def files_read(command: str, readers: tuple[str, ...] = SHELL_READERS) -> tuple[str, ...]:
    """Paths that the command prints, as written, relative ones below the folder that an earlier `cd` of it names.

    Nothing is run or expanded: words with globs, variables or redirections are no files.
    """
    if len(command) > MAX_COMMAND_CHARS or "<<" in command:
        return ()
    folder = ""
    found: list[str] = []
    piped = False
    for part, separator in _pieces(command):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:
            words = []
        if words and words[0] == "cd" and len(words) == 2:
            folder = words[1] if words[1].startswith("/") else posixpath.join(folder, words[1])
        elif words and words[0] in readers and not piped and not any(">" in word for word in words):
            found += [posixpath.join(folder, word) for word in _operands(words)]
        piped = separator == "|"
    return tuple(dict.fromkeys(found))


def _pieces(command: str) -> list[tuple[str, str]]:
    """Return the simple commands, each with the separator behind it; one inside quotes makes it unreadable."""
    pieces, at, seen = [], 0, 0
    quote, escaped = "", False
    for match in _PARTS.finditer(command):
        for char in command[seen : match.start()]:
            if escaped:
                escaped = False
            elif char == "\\" and quote != "'":
                escaped = True
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
        seen = match.start()
        if not quote:
            pieces.append((command[at : match.start()], match[0]))
            at = seen = match.end()
            escaped = False
    pieces.append((command[at:], ""))
    return pieces


def _operands(words: list[str]) -> list[str]:
    command, rest = words[0], words[1:]
    takes = _WITH_VALUE.get(command, set())
    operands: list[str] = []
    scripted = False
    skip = False
    for word in rest:
        if skip:
            skip = False
        elif word in takes:
            skip = True
            scripted = scripted or command == "sed"
        elif word.startswith("-") or (command in ("head", "tail") and word.startswith("+")):
            if command == "sed" and (word.startswith("-i") or word == "--in-place"):
                return []  # an edit, not a read
        else:
            operands.append(word)
    if command == "sed" and not scripted:
        operands = operands[1:]
    return [word for word in operands if word and not re.search(r"[*?$`{}\[\]<>~]", word)]
