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
echo "MLflow: http://127.0.0.1:$port   (runs of $outputs; Ctrl-C ends it)"
exec "$python" -m mlflow server \
    --backend-store-uri "sqlite:///$outputs/mlflow.db" \
    --default-artifact-root "$outputs/mlflow-artifacts" \
    --host 127.0.0.1 --port "$port" --workers 1
