"""The server itself: lists the tools, checks arguments, answers, and turns what a user can mend into a tool's error.

Over stdio the SDK keeps the wire to itself: whatever else writes to stdout, children included, writes to stderr.
"""

import json
import logging
from importlib.metadata import version
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from ckb.build import ensure_store
from ckb.errors import UserError
from roles.replies import FormatError, parse
from swarm.mcp_server import engines, knowledge
from swarm.mcp_server.runs import Drivers, run_tools
from swarm.mcp_server.tool import AnyTool, Report
from swarm.paths import home, store_dir, writing

log = logging.getLogger(__name__)
Context = ServerRequestContext[dict[str, Any], Any]

INSTRUCTIONS = """Enginesmith makes small stand-alone LLM inference engines for one model, machine and workload.
`coverage` says what the knowledge base has for a model. `generate` starts a run, which takes minutes to hours and goes
on without you: ask `run_status`. `verify` judges an engine's folder. `ckb_find` looks for contracts and examples."""


def make_server(drivers: Drivers | None = None) -> Server[dict[str, Any]]:
    """The server with all its tools."""
    every: tuple[AnyTool, ...] = (*knowledge.TOOLS, *run_tools(drivers or Drivers()), *engines.TOOLS)
    tools = {tool.name: tool for tool in every}

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.described() for tool in tools.values()])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in tools:
            return failed(f"there is no tool {params.name!r}; there are {', '.join(tools)}")
        return await answered(tools[params.name], params.arguments or {}, reporting(context))

    return Server(
        "enginesmith",
        version=version("enginesmith"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def answered(tool: AnyTool, arguments: dict[str, Any], report: Report) -> types.CallToolResult:
    """The answer of one call. A defect of ours ends with it, as a traceback on stderr: the server has other calls."""
    try:
        asked = parse(tool.arguments, json.dumps(arguments))
        with writing(home()):
            answer = await tool.does(asked, report)
    except FormatError as error:
        return failed(f"the arguments of {tool.name} can't be used:\n{error}")
    except UserError as error:
        return failed(str(error))
    except Exception as error:
        log.exception("%s failed", tool.name)
        return failed(
            f"{tool.name} failed by a defect of Enginesmith ({type(error).__name__}); the server's log has more"
        )
    text = types.TextContent(type="text", text=answer.model_dump_json(indent=1))
    return types.CallToolResult(content=[text], structured_content=answer.model_dump(mode="json"))


def failed(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=True)


def reporting(context: Context) -> Report:
    """Reports to whoever made this call, if they asked for it."""
    said = 0

    async def report(words: str) -> None:
        nonlocal said
        said += 1
        await context.session.report_progress(said, message=words)

    return report


def serve() -> None:
    """Serves over stdin and stdout until stdin ends. Raises UserError where the store can't be used."""
    ensure_store(store_dir())  # now, so that no tool that only reads has to write
    anyio.run(_serve)


async def _serve() -> None:
    server = make_server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
