#!/bin/sh
# Back up the records and logins of a team's server. Files lie in the object store: copy that with its own tools.
#
#     MLFLOW_BACKEND_STORE_URI=… MLFLOW_AUTH_DATABASE_URI=… mlflow/team/backup.sh FOLDER
#     restore into empty databases:  pg_restore --no-owner --dbname=postgresql://… FOLDER/records.dump   (and logins.dump)
#
# The server may go on: each dump is one consistent moment of its database. Take the databases first and the object store
# after them: then every file that a record names is in the copy.
set -eu
umask 077

folder=${1:?give a folder for the backup}
: "${MLFLOW_BACKEND_STORE_URI:?is not set}" "${MLFLOW_AUTH_DATABASE_URI:?is not set}"
command -v pg_dump >/dev/null || { echo "pg_dump is missing: install PostgreSQL's client programs." >&2; exit 2; }
mkdir -p "$folder"

dump() { # NAME URI; the URI goes through the environment, since arguments are shown in the list of processes
    PGSERVICEFILE=$(mktemp)
    export PGSERVICEFILE
    trap 'rm -f "$PGSERVICEFILE"' EXIT
    uri=$2 python3 - >"$PGSERVICEFILE" <<'PY'
import os
from urllib.parse import parse_qsl, unquote, urlsplit

parts = urlsplit(os.environ["uri"])
fields = {"host": parts.hostname, "port": parts.port, "user": parts.username, "password": parts.password}
print("[backup]")
for name, value in fields.items():
    if value is not None:
        print(f"{name}={unquote(str(value))}")
for name, value in parse_qsl(parts.query):  # sslmode and the like; host too, where it is the folder of a socket
    print(f"{name}={value}")
print(f"dbname={unquote(parts.path.lstrip('/'))}")
PY
    PGSERVICE=backup pg_dump --format=custom --file="$folder/$1.part"
    mv "$folder/$1.part" "$folder/$1"
    rm -f "$PGSERVICEFILE"
}

dump records.dump "$MLFLOW_BACKEND_STORE_URI"
dump logins.dump "$MLFLOW_AUTH_DATABASE_URI"
echo "Records and logins are in $folder. Copy the object store ($(echo "${MLFLOW_ARTIFACTS_DESTINATION:-its bucket}")) now."
