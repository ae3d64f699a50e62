#!/bin/sh
# The MLflow server of a team: Postgres for the records, an object store (or a folder) for the files, logins on.
#
#     mlflow/team/serve.sh            until Ctrl-C; the same script is the entry point of the container
#
# Everything comes from the environment (mlflow/team/env.example explains each):
#     MLFLOW_BACKEND_STORE_URI     postgresql://user:password@host:5432/mlflow, or postgresql:///mlflow on this machine
#     MLFLOW_AUTH_DATABASE_URI     postgresql://user:password@host:5432/mlflow_auth      another database, for the logins
#     MLFLOW_ARTIFACTS_DESTINATION s3://bucket/path, or a folder
#     MLFLOW_AUTH_ADMIN_PASSWORD   12 characters and more; needed at the first start only
#     MLFLOW_FLASK_SERVER_SECRET_KEY   a long random text; the same for all server processes
#     MLFLOW_HOST (127.0.0.1)  MLFLOW_PORT (5000)  MLFLOW_WORKERS (2)  MLFLOW_ALLOWED_HOSTS (localhost and 127.0.0.1)
#     MLFLOW_DEFAULT_PERMISSION (EDIT)
set -eu

say() { echo "mlflow/team/serve.sh: $*" >&2; exit 2; }
for name in MLFLOW_BACKEND_STORE_URI MLFLOW_AUTH_DATABASE_URI MLFLOW_ARTIFACTS_DESTINATION MLFLOW_FLASK_SERVER_SECRET_KEY
do
    eval "value=\${$name:-}"
    [ -n "$value" ] || say "$name is not set. See mlflow/team/env.example."
done
[ "${#MLFLOW_FLASK_SERVER_SECRET_KEY}" -ge 16 ] || say "MLFLOW_FLASK_SERVER_SECRET_KEY is shorter than 16 characters."
if [ -n "${MLFLOW_AUTH_ADMIN_PASSWORD:-}" ] && [ "${#MLFLOW_AUTH_ADMIN_PASSWORD}" -lt 12 ]; then
    say "MLFLOW_AUTH_ADMIN_PASSWORD is shorter than 12 characters."
fi

root=$(cd "$(dirname "$0")/../.." && pwd)
if [ -n "${PYTHON:-}" ]; then python=$PYTHON
elif [ -x "$root/.venv/bin/python" ]; then python=$root/.venv/bin/python
else python=$(command -v python3 || command -v python) || say "No Python found."
fi
"$python" -c 'import mlflow.server, flask_wtf, psycopg' 2>/dev/null ||
    say "MLflow's server is not complete for $python: pip install -c constraints.txt 'mlflow[auth]' 'psycopg[binary]' boto3"

# The logins' configuration holds the database's password: a file of its own that only this user reads.
auth=$(mktemp "${TMPDIR:-/tmp}/mlflow-auth.XXXXXX")
trap 'rm -f "$auth"' EXIT
chmod 600 "$auth"
cat >"$auth" <<INI
[mlflow]
default_permission = ${MLFLOW_DEFAULT_PERMISSION:-EDIT}
database_uri = $(printf '%s' "$MLFLOW_AUTH_DATABASE_URI" | sed 's/%/%%/g')
admin_username = ${MLFLOW_AUTH_ADMIN_USERNAME:-admin}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
grant_default_workspace_access = true
# A training run sends several requests a second; without this every one of them hashes the password anew.
auth_cache_ttl_seconds = 60
INI
export MLFLOW_AUTH_CONFIG_PATH="$auth"
export MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=true
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false # background jobs of other MLflow features: eight processes for nothing
export PYTHONWARNINGS="${PYTHONWARNINGS:+$PYTHONWARNINGS,}ignore:starlette.middleware.wsgi" # said by every worker

# Both URIs stay in the environment, out of the list of processes.
"$python" -m mlflow server --app-name basic-auth \
    --serve-artifacts \
    --host "${MLFLOW_HOST:-127.0.0.1}" --port "${MLFLOW_PORT:-5000}" --workers "${MLFLOW_WORKERS:-2}" \
    --allowed-hosts "${MLFLOW_ALLOWED_HOSTS:-localhost,localhost:*,127.0.0.1,127.0.0.1:*}" &
server=$!
trap 'kill -TERM "$server" 2>/dev/null || true' INT TERM
status=0
wait "$server" || status=$?
# A signal ends the wait early: the server is given the time to close.
wait "$server" 2>/dev/null || true
exit "$status"
