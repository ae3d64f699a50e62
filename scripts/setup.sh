#!/bin/sh
# Creates .venv and installs the project with its pinned dependencies. Safe to run twice: a second run ends at once.
#
#     sh scripts/setup.sh                  # what `make demo` and `make test` call
#     PYTHON=/path/to/python3.11 sh scripts/setup.sh
#
# PYTHON     the interpreter; default: the first of python3.11, python3.12, python3.13, python3 that fits
# VENV       the folder of the virtual environment; default .venv
# TORCH      cpu or default; default: cpu where there is no NVIDIA GPU and the package index has that build
set -eu

cd "$(dirname "$0")/.."
VENV=${VENV:-.venv}
STAMP=$VENV/.installed
LOG=$VENV/install.log

say() { printf '%s\n' "setup: $*"; }
stop() { # stop WHAT FIX
    printf '%s\n' "setup: $1" >&2
    printf '%s\n' "       $2" >&2
    exit 1
}

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null 2>&1 || stop "there is no interpreter $PYTHON" "Give another one: make demo PYTHON=python3.11"
        fits "$PYTHON" || stop "$PYTHON is not Python 3.11, 3.12 or 3.13" "Give another one: make demo PYTHON=python3.11"
        return
    fi
    for PYTHON in python3.11 python3.12 python3.13 python3; do
        if fits "$PYTHON"; then return; fi
    done
    stop "Python 3.11, 3.12 or 3.13 is missing" "Install it (Debian, Ubuntu: python3 and python3-venv), or name it: make demo PYTHON=/path/to/python3.11"
}

free_gib() { df -Pk . | awk 'NR == 2 { printf "%d", $4 / 1048576 }'; }

need_gib() { # need_gib GIB FOR
    if [ "$(free_gib)" -lt "$1" ]; then
        stop "only $(free_gib) GiB are free here, $2 needs about $1 GiB" "Free some space, or put the checkout on a larger disk"
    fi
}

fingerprint() { cat pyproject.toml constraints.txt | cksum; }

# Runs pip with its whole output in $LOG and one line of progress for every 25 packages. Leaves pip's exit code in $CODE.
pip_install() {
    { "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off "$@" \
        </dev/null 2>&1 && echo "pip ended with 0" || echo "pip ended with $?"; } | tee -a "$LOG" |
        awk '/^Collecting / { n++; if (n % 25 == 0) { print "setup:   " n " packages found"; fflush() } }
             /^Installing collected packages/ { print "setup:   unpacking"; fflush() }'
    CODE=$(sed -n 's/^pip ended with //p' "$LOG" | tail -n 1)
}

explain_pip() {
    if grep -qiE 'No space left' "$LOG"; then
        stop "the disk is full" "Free some space and run the same command again"
    elif grep -qiE 'Failed to establish|NewConnectionError|Name or service not known|Temporary failure in name|ConnectTimeout|Read timed out|ProxyError|SSLError' "$LOG"; then
        stop "the package index cannot be reached" "Check the network, or set pip's index or proxy (pip config, PIP_INDEX_URL), and run the same command again"
    elif grep -q 'from versions: none' "$LOG"; then # also what pip says when it gave up connecting without a word
        stop "the package index cannot be reached, or has no $(sed -n 's/.*satisfies the requirement \([^ ]*\) .*/\1/p' "$LOG" | tail -n 1)" \
            "Check the network and pip's index settings (pip config list), and run the same command again"
    fi
    grep -E '^ *(ERROR|error)' "$LOG" | tail -n 5 >&2 || true
    stop "pip could not install the dependencies (whole output: $LOG)" "If a package is not found, the index may be a partial mirror; run the same command again after a network failure"
}

command -v git >/dev/null 2>&1 || stop "git is missing" "Install it (Debian, Ubuntu: apt-get install git); the sandboxes of the agent are git worktrees"
[ -f constraints.txt ] || stop "constraints.txt is missing" "Check the checkout: git status"

if [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(fingerprint)" ] && fits "$VENV/bin/python"; then
    exit 0
fi

find_python
"$PYTHON" -c 'import venv, ensurepip' >/dev/null 2>&1 ||
    stop "$PYTHON cannot create virtual environments: its venv module is missing" "Install it (Debian, Ubuntu: apt-get install python3-venv), or name another interpreter: PYTHON=…"

if [ -d "$VENV" ] && ! fits "$VENV/bin/python"; then
    [ -f "$VENV/pyvenv.cfg" ] || stop "$VENV exists and is not a virtual environment" "Move it away, or choose another folder: VENV=…"
    say "$VENV has no usable interpreter any more and is made anew"
    rm -rf "$VENV"
fi
if [ ! -d "$VENV" ]; then
    need_gib 5 "the installation"
    say "creating $VENV with $("$PYTHON" -c 'import sys; print("Python", sys.version.split()[0])')"
    "$PYTHON" -m venv "$VENV" || { rm -rf "$VENV"; stop "$PYTHON could not create $VENV" "See the lines above (Debian, Ubuntu: apt-get install python3-venv)"; }
fi
: >"$LOG"

if [ "${TORCH:-}" != default ] && ! command -v nvidia-smi >/dev/null 2>&1 && [ "$(uname -s)" = Linux ]; then
    version=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' constraints.txt)
    say "installing torch $version"
    pip_install --no-deps "torch==$version+cpu"
    if [ "$CODE" != 0 ]; then
        if grep -q 'No matching distribution found for torch' "$LOG" && ! grep -q 'from versions: none' "$LOG"; then
            say "the package index has no CPU build of torch; taking the default one, which is several GB larger on Linux"
            need_gib 14 "the default build of torch with the rest"
        else
            explain_pip
        fi
    fi
fi
say "installing the dependencies (about 170 packages, a few minutes the first time)"
: >"$LOG"
pip_install -c constraints.txt -e '.[dev]'
[ "$CODE" = 0 ] || explain_pip
"$VENV/bin/python" -c 'import torch, ray, transformers, trl, peft, mlflow' 2>>"$LOG" ||
    stop "the installed packages do not load together (last lines of $LOG say why)" "Remove $VENV and run the same command again"
fingerprint >"$STAMP"
say "ready: $VENV"
