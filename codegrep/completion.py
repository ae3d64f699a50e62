"""`codegrep completion SHELL`: a script that completes commands, experiments, groups, choices and keys."""

from __future__ import annotations

import argparse
import shlex

from codegrep.cli import COMMANDS
from codegrep.conf_folder import CONF
from codegrep.config.reading import known_keys
from codegrep.usage import groups

# `=` breaks words in bash: what stands before it is cut off the proposals again.
_BASH = """_codegrep() {{
    local line="${{COMP_LINE:0:COMP_POINT}}"
    local word="${{line##* }}" proposal
    COMPREPLY=()
    while IFS= read -r proposal; do
        [[ "$word" == *=* && "$COMP_WORDBREAKS" == *=* ]] && proposal="${{proposal#"${{word%=*}}="}}"
        [[ "$proposal" == *= ]] && compopt -o nospace
        COMPREPLY+=("$proposal")
    done < <(compgen -W {words} -- "$word")
}}
complete -o default -F _codegrep codegrep
"""
_ZSH = """#compdef codegrep
_codegrep() {{
    local -a proposals=({words})
    compadd -S '' -- ${{(M)proposals:#*=}}
    compadd -- ${{proposals:#*=}}
    _files
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}
compdef _codegrep codegrep
"""
_FISH = "complete -c codegrep -a {words}\n"
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def main(argv: list[str]) -> int:
    """Print the script of a shell; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="codegrep completion",
        description="Print a script that completes commands, experiments, groups, choices and keys of `codegrep`.",
        epilog='bash, zsh: eval "$(codegrep completion bash)"; fish: codegrep completion fish | source',
    )
    parser.add_argument("shell", choices=sorted(_SCRIPTS))
    shell = parser.parse_args(argv).shell
    words = proposals()
    written = " ".join(map(shlex.quote, words)) if shell == "zsh" else shlex.quote(" ".join(words))
    print(_SCRIPTS[shell].format(words=written), end="")
    return 0


def proposals() -> list[str]:
    """Return every word that is proposed; one that ends in `=` takes a value."""
    words = [*COMMANDS]
    for group in ("experiment", "sweep"):
        words += [f"+{group}={path.stem}" for path in sorted((CONF / group).glob("*.yaml"))]
    for group, choices in groups(CONF).items():
        words += [f"{group}={choice}" for choice in choices]
    return words + [f"{key}=" for key in known_keys() if "<" not in key and key not in groups(CONF)]
