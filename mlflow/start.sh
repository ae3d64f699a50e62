#!/bin/sh
# Open the MLflow pages of an outputs folder on this machine, until Ctrl-C.
#
#     mlflow/start.sh [OUTPUTS] [PORT]        defaults: outputs 5000
#
# Only this machine can reach it: there is no login, and whoever reaches it can delete runs.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
outputs=${1:-$root/outputs}
port=${2:-5000}

if [ -x "$root/.venv/bin/python" ]; then
    python=$root/.venv/bin/python
else
    python=$(command -v python3 || command -v python) || { echo "No Python found. Run 'make venv' first." >&2; exit 2; }
fi
if ! "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("mlflow.server") is None)' 2>/dev/null; then
    echo "MLflow is not installed for $python. Run 'make venv' first." >&2
    exit 2
fi
if [ ! -f "$outputs/mlflow.db" ]; then
    echo "There is no mlflow.db in $outputs: no run has been made there yet, or it is another folder." >&2
    exit 2
fi
outputs=$(cd "$outputs" && pwd)

export MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=true
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false # background jobs of other MLflow features: eight processes for nothing
export PYTHONWARNINGS="${PYTHONWARNINGS:+$PYTHONWARNINGS,}ignore:starlette.middleware.wsgi" # said by every worker

# The page of the experiment with the newest run, once the port is known to be free.
page=$("$python" - "$outputs/mlflow.db" "$port" <<'PYTHON'
import socket
import sqlite3
import sys
from contextlib import closing

database, port = sys.argv[1], int(sys.argv[2])
with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        sys.exit(f"Port {port} is in use. Stop what listens there, or choose another: make mlflow PORT={port + 1}")
with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as store:
    newest = store.execute("SELECT experiment_id FROM runs ORDER BY start_time DESC LIMIT 1").fetchone()
print(f"http://127.0.0.1:{port}/" + (f"#/experiments/{newest[0]}/runs" if newest else ""))
PYTHON
) || exit 2
echo "MLflow: $page   (runs of $outputs; Ctrl-C ends it)"

"$python" -m mlflow server \
    --backend-store-uri "sqlite:///$outputs/mlflow.db" \
    --default-artifact-root "$outputs/mlflow-artifacts" \
    --host 127.0.0.1 --port "$port" --workers 1 &
server=$!
# Ctrl-C is a normal end, without the server's traceback.
trap 'kill "$server" 2>/dev/null; wait "$server"; exit 0' INT TERM
wait "$server"
