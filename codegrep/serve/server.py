"""The service as an MCP server: two tools, over standard input and output or HTTP."""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from codegrep import __version__
from codegrep.serve.retriever import MAX_ANSWERS, MAX_PATTERN, Answer
from codegrep.serve.service import RefusalError, Report, Service

_INSTRUCTIONS = (
    "Finds the files of a repository that an issue, an error message or a question is about. Call find_files first "
    "with the whole text; call search for definitions by words. The tree is searched as it is on the disk."
)
_READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)
Repo = Annotated[str, Field(description="folder of the repository; may be left out where only one is served")]
Count = Annotated[int, Field(ge=1, le=MAX_ANSWERS)]
Narrowed = Annotated[str | None, Field(max_length=MAX_PATTERN)]


def mcp_server(service: Service) -> MCPServer[None]:
    """Make the server of a service, with /health and /metrics for HTTP."""
    server: MCPServer[None] = MCPServer(
        "codegrep", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING", subscriptions=False
    )

    @server.tool(annotations=_READ_ONLY)
    async def find_files(
        issue: Annotated[str, Field(description="issue, error message with traceback, or question, as a whole")],
        ctx: Context[None, Request],
        repo: Repo = "",
        k: Count = 5,
        why: Annotated[bool, Field(description="say what speaks for each file")] = False,
    ) -> CallToolResult:
        """Find the files that an issue is about, best first, each with the lines to read first."""
        try:
            return _result(await service.find_files(issue, repo, k, why, _reporter(ctx)))
        except RefusalError as refusal:
            raise ToolError(str(refusal)) from None

    @server.tool(annotations=_READ_ONLY)
    async def search(
        query: Annotated[str, Field(description="words or identifiers")],
        ctx: Context[None, Request],
        repo: Repo = "",
        path: Annotated[Narrowed, Field(description="folder, or glob that paths must match")] = None,
        pattern: Annotated[Narrowed, Field(description="regular expression that places must hold")] = None,
        k: Count = 10,
    ) -> CallToolResult:
        """Find functions, classes and text by words, best first, several places of a file."""
        try:
            return _result(await service.search(query, repo, k, path, pattern, _reporter(ctx)))
        except RefusalError as refusal:
            raise ToolError(str(refusal)) from None

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__, "folders": len(service.folders)})

    async def metrics(_: Request) -> Response:
        return Response(service.metrics(), media_type="text/plain; version=0.0.4")

    server.custom_route("/health", methods=["GET"])(health)
    server.custom_route("/metrics", methods=["GET"])(metrics)
    return server


def http_app(service: Service, host: str, token: str = "") -> ASGIApp:
    """Make the HTTP application: MCP at /mcp, without sessions, so that clients outlive a restart.

    Args:
        service: that answers.
        host: that it will listen on.
        token: that requests must bear, but for /health; "" for none.
    """
    app = mcp_server(service).streamable_http_app(stateless_http=True, host=host)
    return BearerToken(app, token) if token else app


class BearerToken:
    """ASGI middleware: 401 without `Authorization: Bearer TOKEN`."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what bears the token, and /health."""
        if scope["type"] == "http" and scope["path"] != "/health":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                refusal = JSONResponse({"error": "the token is missing or wrong"}, 401, {"WWW-Authenticate": "Bearer"})
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _reporter(ctx: Context[None, Request]) -> Report:
    async def report(seconds: float, words: str) -> None:
        await ctx.report_progress(seconds, None, words)

    return report


def _result(answers: Sequence[Answer]) -> CallToolResult:
    """Lines for a model, records for a program."""
    lines = []
    for answer in answers:
        lines.append(f"{answer.path}:{answer.start}-{answer.end}  {answer.evidence}".rstrip())
        lines += [f"    {reason}" for reason in answer.why]
    # File names that are not UTF-8 hold lone surrogates, which JSON on the wire cannot.
    records = json.loads(json.dumps([asdict(answer) for answer in answers]).encode("utf-8", "replace"))
    text = "\n".join(lines or ["nothing found"]).encode("utf-8", "replace").decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content={"answers": records})
