"""The command line of the pool server. No logic: arguments in, text and exit codes out."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from enum import StrEnum
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import anyio
import typer

from pool_server.settings import Settings, SettingsError, load_settings

if TYPE_CHECKING:
    from pool_server.pool import Pool

# The server's own modules are imported by the commands that need them: they take two seconds.

__all__ = ["app", "main"]

T = TypeVar("T")
FAILED, WRONG_USAGE = 1, 2
DEFAULT_URL = "http://127.0.0.1:8765"


class KeyRole(StrEnum):
    OPERATOR = "operator"
    MEMBER = "member"


class KeyTier(StrEnum):
    FREE = "free"
    PAID = "paid"
    VERIFIED = "verified"


class Agent(StrEnum):
    CLAUDE = "claude"
    CODEX = "codex"
    CURL = "curl"


app = typer.Typer(
    help="The pool server: issues that coding agents file, and signals for whoever works them.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 refused by policy, 75 try later.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
key_app = typer.Typer(help="API keys for operators and members.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(key_app, name="key")

State = Annotated[Path | None, typer.Option(help="State folder. Default: $XDG_STATE_HOME/pool-server.")]
Database = Annotated[
    str | None, typer.Option(help="sqlite:////PATH. Default: pool.sqlite3 in the state folder.")
]
Config = Annotated[Path | None, typer.Option(help="A TOML file; config/pool.toml is the reference.")]


def _version(wanted: bool) -> None:
    if wanted:
        try:
            print(f"pool-server {package_version('formica')}")
        except PackageNotFoundError:
            print("pool-server, not installed")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Reads the flags that come before a command."""


@app.command(epilog="Example: pool-server serve --port 8765 --state ./state")
def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Default: 8765; 0 takes a free one.")] = None,
    state: State = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Serve HTTP and MCP until SIGTERM. Ready when GET /ready answers 200.

    The first start without an operator key writes one to operator.key in the state folder. Everything else
    is set by POOL_… variables or --config.
    """
    flags = {"host": host, "port": port, "state": state, "database": database}
    settings = _settings(flags, config)
    from pool_server.app import CannotServe
    from pool_server.app import serve as run_server

    try:
        exit_code = run_server(settings)
    except CannotServe as refused:
        _fail(str(refused), refused.exit_code)
    raise typer.Exit(exit_code)


@key_app.command("create", epilog="Example: pool-server key create --role operator --handle formica")
def key_create(
    role: Annotated[KeyRole, typer.Option(help="What the key may do.")],
    handle: Annotated[
        str | None, typer.Option(help="A name for events and history. Default: made up.")
    ] = None,
    tier: Annotated[KeyTier | None, typer.Option(help="Default: free; operators are verified.")] = None,
    state: State = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Make a key and print it, alone, once. Works beside a running server."""
    chosen = tier or (KeyTier.VERIFIED if role is KeyRole.OPERATOR else KeyTier.FREE)
    print(_with_pool(state, database, config, lambda pool: pool.create_key(role.value, handle, chosen.value)))


@key_app.command("list")
def key_list(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    state: State = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """List keys: handle, role, tier, whether revoked; never the keys themselves."""
    keys = _with_pool(state, database, config, lambda pool: pool.list_keys())
    if as_json:
        print(json.dumps(keys, ensure_ascii=False, indent=2))
        return
    for key in keys:
        print("  ".join(str(value) for value in key.values() if value is not None))


@key_app.command("revoke")
def key_revoke(
    handle: Annotated[str, typer.Argument(help="The key's handle or id, as listed.")],
    state: State = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Revoke a key: from now on it is refused everywhere."""
    _with_pool(state, database, config, lambda pool: pool.revoke_key(handle))


@key_app.command("set-tier")
def key_set_tier(
    handle: Annotated[str, typer.Argument(help="The key's handle or id, as listed.")],
    tier: Annotated[KeyTier, typer.Argument(help="The new tier.")],
    state: State = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Change the tier of a member's key."""
    _with_pool(state, database, config, lambda pool: pool.set_tier(handle, tier.value))


@app.command(epilog="Example: pool-server connect claude --url https://pool.example.org")
def connect(
    agent: Annotated[Agent, typer.Argument(help="What the reporter uses.")],
    url: Annotated[str, typer.Option(help="Where reporters reach this server.")] = DEFAULT_URL,
) -> None:
    """Print a reporter's one-time set-up. Filing issues needs no key."""
    print(SET_UP[agent].replace("{url}", url.rstrip("/")))


SET_UP = {
    Agent.CLAUDE: """\
claude mcp add --transport http pool {url}/mcp
""",
    Agent.CODEX: """\
# Run: codex mcp add pool --url {url}/mcp
# or put this into ~/.codex/config.toml:
[mcp_servers.pool]
url = "{url}/mcp"
""",
    Agent.CURL: """\
# File an issue; keep guest_access_token and issue_number from the answer.
curl -sS {url}/issues/submit -H 'content-type: application/json' -d '{
  "title": "Crash when the input file is empty",
  "body": "parse() raises IndexError on an empty file. Steps: ...",
  "reporter_app_version": "1.4.2"
}'

# Read its thread (status, messages, open question).
curl -sS {url}/issues/status -H 'content-type: application/json' -H "X-Guest-Token: $TOKEN" \\
  -d '{"issue_number": 1}'

# Answer on it.
curl -sS {url}/issues/add_message -H 'content-type: application/json' -H "X-Guest-Token: $TOKEN" \\
  -d '{"issue_number": 1, "body": "It also happens with 1.4.3.", "reporter_app_version": "1.4.3"}'
""",
}


def _settings(flags: dict[str, Any], config: Path | None) -> Settings:
    try:
        return load_settings(flags, config)
    except SettingsError as wrong:
        _fail(str(wrong), WRONG_USAGE)


def _with_pool(
    state: Path | None, database: str | None, config: Path | None, use: Callable[[Pool], Awaitable[T]]
) -> T:
    settings = _settings({"state": state, "database": database}, config)
    from pool_server.app import CannotServe, open_pool
    from pool_server.errors import PoolError

    async def run() -> T:
        async with open_pool(settings) as pool:
            return await use(pool)

    try:
        return anyio.run(run)
    except CannotServe as refused:
        _fail(str(refused), refused.exit_code)
    except PoolError as refused:
        _fail(refused.message, FAILED)


def _fail(message: str, exit_code: int) -> NoReturn:
    print(f"pool-server: {message}", file=sys.stderr)
    raise typer.Exit(exit_code)


def main() -> None:
    """The console script."""
    app(prog_name="pool-server")


if __name__ == "__main__":
    main()
