"""`python -m codegrep +experiment=v3` runs an experiment, `python -m codegrep NAME …` a command of codegrep/cli.py."""

from __future__ import annotations

import sys
from pathlib import Path

from codegrep import __version__, cli
from codegrep.conf_folder import CONF
from codegrep.ending import end
from codegrep.usage import usage

# Options of Hydra that take the next word as their value.
_WITH_VALUE = frozenset(
    {"--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"}
)


def main() -> None:
    """Entry point of `python -m codegrep` and of the console script."""
    if len(sys.argv) > 1 and not Path(CONF).is_dir():
        print(f"codegrep: the configuration folder is missing beside the package ({CONF})", file=sys.stderr)
        sys.exit(2)
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    command = cli.named(first)
    try:
        if sys.argv[1:] in (["--help"], ["-h"]):
            print(usage(CONF), flush=True)
            return
        if sys.argv[1:] in (["--version"], ["-V"]):
            print(f"codegrep {__version__}")
            return
        if command is not None:
            sys.exit(cli.run(command, sys.argv[2:]))
        cli.refuse_bare_word(first, [path.stem for path in (CONF / "experiment").glob("*.yaml")])
        from codegrep import app  # Hydra: half a second

        sys.argv[1:] = options_first(sys.argv[1:])
        app.start()
    except (Exception, KeyboardInterrupt) as error:
        end(error, composing=command is None)


def options_first(words: list[str]) -> list[str]:
    """Put options before overrides: argparse takes no override after an option that follows one."""
    options: list[str] = []
    overrides: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _WITH_VALUE:
            options += [word, *[value for value in [next(rest, None)] if value is not None]]
        else:
            (options if word.startswith("-") else overrides).append(word)
    return options + overrides


if __name__ == "__main__":
    main()
