"""`python -m codegrep serve`: a resident search for coding agents, over MCP."""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
import sys
from pathlib import Path

import anyio

from codegrep.errors import ConfigError
from codegrep.index.search import INDEXES
from codegrep.serve.retriever import Retriever

_TOKEN = "CODEGREP_TOKEN"


def serve(argv: list[str]) -> int:
    """Serve until the client leaves (stdio) or the process is ended (HTTP).

    Raises:
        ConfigError: an option cannot be used, a package is missing, or the port is in use.
        RepositoryError: a folder does not exist or cannot be read.
    """
    options = _parser().parse_args(argv)
    token = os.environ.get(_TOKEN, "")
    if options.http and not token and not _is_loopback(options.host):
        raise ConfigError(
            f"--host {options.host} is reached from other machines, and there is no token",
            f"Set {_TOKEN} to a secret that clients send as a bearer token",
        )
    if options.model and options.retriever:
        raise ConfigError("both --model and --retriever are given", "Leave one out")
    try:
        from codegrep.serve.server import http_app, mcp_server
        from codegrep.serve.service import Bounds, Service
    except ModuleNotFoundError as error:
        raise ConfigError(f"the package {error.name} is missing", "pip install 'codegrep[serve]'") from None
    listening = _listen(options.host, options.port) if options.http else None
    retriever = Retriever.load(
        options.model or options.retriever or "hybrid",
        outputs=options.outputs,
        tracking_uri=options.uri,
        memory_mb=options.memory,
    )
    seconds = options.seconds or (300.0 if retriever.is_agent else 30.0)
    folders = [Path(folder).expanduser() for folder in options.repo or ["."]]
    service = Service(retriever, folders, Bounds(seconds=seconds, questions=options.questions))
    if listening is None:
        anyio.run(mcp_server(service).run_stdio_async)
        return 0
    import uvicorn

    place = f"http://{options.host}:{listening.getsockname()[1]}"
    print(f"codegrep: MCP at {place}/mcp, also {place}/health and {place}/metrics", file=sys.stderr, flush=True)
    config = uvicorn.Config(http_app(service, options.host, token), log_level="warning", timeout_graceful_shutdown=5)
    uvicorn.Server(config).run(sockets=[listening])
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{host}:{port} cannot be listened on ({reason})", "Choose another --port") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m codegrep serve",
        description="Serve find_files and search to coding agents over MCP: standard input and output, or HTTP.",
    )
    parser.add_argument(
        "--repo", action="append", help="folder that is served, with all below it; repeatable (default: this one)"
    )
    parser.add_argument("--http", action="store_true", help="streamable HTTP in place of standard input and output")
    parser.add_argument("--host", default="127.0.0.1", help=f"for --http; others than this machine need ${_TOKEN}")
    parser.add_argument("--port", type=int, default=8765, help="for --http (default: 8765; 0: any free one)")
    parser.add_argument("--retriever", choices=sorted(INDEXES), help="index that answers (default: hybrid)")
    parser.add_argument("--model", default="", help="a policy answers find_files: models:/NAME@ALIAS, folder or hub id")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="outputs folder (default: outputs)")
    parser.add_argument("--uri", default="", help="MLflow tracking URI (default: the SQLite file under OUTPUTS)")
    parser.add_argument("--seconds", type=float, default=0.0, help="for one question (default: 30; 300 with a model)")
    parser.add_argument("--questions", type=int, default=64, help="at the same time, more are refused (default: 64)")
    parser.add_argument("--memory", type=int, default=400, help="megabytes for indexes (default: 400)")
    return parser
