"""The command line: arguments in, exit codes out, no decisions.

Exit codes: 0 done (a clean stop by SIGTERM too), 1 failed, 2 wrong usage or configuration, 3 refused by policy,
75 try later.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import anyio
import typer

from formica import app as wiring
from formica import logs, settings
from formica.desk import Desk, next_words
from formica.errors import FormicaError, Refused, Retryable
from formica.rules.plan import Plan
from formica.rules.plan_text import (
    inbox_line,
    pause_sentence,
    plan_markdown,
    printable,
    status_text,
    why_text,
)

OK, FAILED, USAGE, REFUSED, LATER = 0, 1, 2, 3, 75

application = typer.Typer(
    name="formica",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="The maintainer's triage daemon, and the operator's words to it.",
    epilog="Every command but triage, init and --version reads --config FILE, else $FORMICA_CONFIG, else ./formica.toml. "
    "Example: formica run; then formica inbox, formica go 7, formica diff 7, formica shipit 7.",
)

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="Default: ./formica.toml.", envvar="FORMICA_CONFIG", show_envvar=True
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Number = Annotated[int, typer.Argument(min=1, metavar="N", help="The issue's number.")]
Why = Annotated[list[str] | None, typer.Argument(metavar="[WHY]", help="The reason, kept with the plan.")]


def main() -> None:
    """The console script: every known failure is one line on stderr and a documented exit code."""
    try:
        application()
    except Exception as problem:
        code, message = _ending(problem)
        if code is None:
            raise
        _fail(code, message)


def _ending(problem: BaseException) -> tuple[int | None, str]:
    """The exit code and the line for a failure; None for a bug, whose traceback is wanted."""
    while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:
        problem = problem.exceptions[0]
    match problem:
        case settings.ConfigurationError():
            return USAGE, str(problem)
        case Refused():
            return REFUSED, str(problem)
        case Retryable():
            return LATER, str(problem)
        case FormicaError():
            return FAILED, str(problem)
        case OSError():
            where = f"{problem.filename}: " if problem.filename else ""
            return FAILED, f"{where}{problem.strerror or problem}"
        case _:
            return None, ""


def _fail(code: int, message: str) -> NoReturn:
    print(f"formica: {printable(message)}", file=sys.stderr)
    sys.exit(code)


def _load(config: Path | None) -> settings.Settings:
    return settings.load(settings.config_file(config))


def _warn(message: str) -> None:
    print(f"formica: warning: {printable(message)}", file=sys.stderr)


def _at_desk(config: Path | None, act: Callable[[Desk], Awaitable[Any]]) -> Any:
    loaded = _load(config)

    async def run() -> Any:
        async with wiring.open_desk(loaded) as desk:
            return await act(desk)

    return anyio.run(run)


def _print(value: Any, as_json: bool, text: Callable[[Any], str]) -> None:
    if as_json:
        print(json.dumps(value, indent=2, default=str))
    else:
        print(printable(text(value)))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"formica {installed_version('formica')}")
        raise typer.Exit


@application.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the command itself."""


@application.command(epilog="Example: formica run --config formica.toml --once")
def run(
    config: Config = None,
    once: Annotated[bool, typer.Option("--once", help="One pass over everything open, then stop.")] = False,
) -> None:
    """Work: wake on events, reconcile, triage, execute within the limits. SIGTERM stops it cleanly."""
    loaded = _load(config)
    for exposed in settings.exposed_secrets(loaded):
        _warn(exposed)
    logs.configure()
    done = anyio.run(lambda: wiring.run_daemon(loaded, once=once))
    if not done:
        _fail(FAILED, "the pass is partial: some items failed or wait for a place; see the log above")


@application.command()
def status(config: Config = None, as_json: AsJson = False) -> None:
    """The kill switch, what is being worked on, what waits and why."""
    _print(_at_desk(config, lambda desk: desk.status()), as_json, status_text)


@application.command()
def inbox(config: Config = None, as_json: AsJson = False) -> None:
    """What needs you, each with the word to say."""

    async def look(desk: Desk) -> tuple[list[Plan], list[dict[str, Any]]]:
        return await desk.inbox(), await desk.paused()

    plans, paused = _at_desk(config, look)
    if as_json:
        print(json.dumps([_card(plan) for plan in plans], indent=2))
    for switch in paused:
        print(printable(pause_sentence(switch)), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        return
    if not plans:
        print("Nothing needs you.")
    for plan in plans:
        print(printable(f"{inbox_line(plan)}\n    {next_words(plan)}"))


def _card(plan: Plan) -> dict[str, Any]:
    shown = plan.model_dump(
        mode="json",
        include={
            "issue_number",
            "issue_entity_id",
            "state",
            "waiting_for",
            "kind",
            "summary",
            "why_waiting",
            "decision_blockers",
            "dry_run",
            "head_sha",
            "diff_hash",
            "outcome",
        },
    )
    return {**shown, "do": next_words(plan)}


@application.command()
def why(number: Number, config: Config = None, as_json: AsJson = False) -> None:
    """Why nothing happens with issue N: the rule, limit, missing answer or breaker, and the next look."""
    _print(_at_desk(config, lambda desk: desk.why(number)), as_json, why_text)


@application.command(epilog="Example: formica plan 7 --diff")
def plan(
    number: Number,
    config: Config = None,
    as_json: AsJson = False,
    with_diff: Annotated[
        bool, typer.Option("--diff", help="The change too, as it would be published.")
    ] = False,
) -> None:
    """The plan of issue N: what was read, what would be done, what was done."""
    loaded = _load(config)
    found: Plan = _at_desk(config, lambda desk: desk.plan(number))
    change = anyio.run(wiring.change, loaded, found) if with_diff else None
    if as_json:
        extra = {} if change is None else {"diff": change}
        print(json.dumps(found.model_dump(mode="json") | extra, indent=2))
    else:
        print(printable(plan_markdown(found, wiring.state_of(loaded, found))))
    if change is not None:
        _show_change(change, quiet=as_json)


@application.command(epilog="Example: formica diff 7")
def diff(number: Number, config: Config = None, as_json: AsJson = False) -> None:
    """The change of issue N, byte for byte what shipit approves, from this host's copy."""
    loaded = _load(config)
    found: Plan = _at_desk(config, lambda desk: desk.plan(number))
    change = anyio.run(wiring.change, loaded, found)
    if as_json:
        print(json.dumps(change, indent=2))
    _show_change(change, quiet=as_json)


def _show_change(change: dict[str, Any], *, quiet: bool) -> None:
    if change["text"] is not None and not quiet:
        print(printable(change["text"]), end="")
    if change["state"] != "whole":
        _fail(FAILED, change["says"])
    if change["says"]:
        _warn(change["says"])


@application.command(epilog="Example: formica transcript 7 --config formica.toml")
def transcript(number: Number, config: Config = None, as_json: AsJson = False) -> None:
    """What the agent was told and printed in its last session for issue N, checked against the plan's hash."""
    loaded = _load(config)
    found: Plan = _at_desk(config, lambda desk: desk.plan(number))
    record = wiring.transcript(loaded, found)
    if as_json:
        print(json.dumps(record, indent=2))
    elif record["text"] is not None:
        print(printable(record["text"]), end="")
    if record["state"] != "whole":
        _fail(FAILED, record["says"])


def _word(config: Path | None, as_json: bool, act: Callable[[Desk], Awaitable[Plan]]) -> None:
    written: Plan = _at_desk(config, act)
    _print(_card(written), as_json, lambda card: f"#{card['issue_number']} is {card['state']}")


@application.command(epilog="Example: formica go 7 --config formica.toml")
def go(number: Number, config: Config = None, as_json: AsJson = False) -> None:
    """Run the plan of issue N as shown; answers dry run and consent both."""
    _word(config, as_json, lambda desk: desk.go(number))


@application.command(epilog="Example: formica shipit 7 --config formica.toml")
def shipit(number: Number, config: Config = None, as_json: AsJson = False) -> None:
    """Publish exactly the change shown for issue N; single use, void if anything changed."""
    _word(config, as_json, lambda desk: desk.shipit(number))


@application.command()
def reject(number: Number, reason: Why = None, config: Config = None, as_json: AsJson = False) -> None:
    """Drop the plan of issue N; a running agent is stopped."""
    _word(config, as_json, lambda desk: desk.reject(number, " ".join(reason or [])))


@application.command()
def hold(number: Number, reason: Why = None, config: Config = None, as_json: AsJson = False) -> None:
    """Leave issue N where it is until retry, go or shipit."""
    _word(config, as_json, lambda desk: desk.hold(number, " ".join(reason or [])))


@application.command()
def retry(number: Number, config: Config = None, as_json: AsJson = False) -> None:
    """Start issue N over from the report, or take it off hold."""
    _word(config, as_json, lambda desk: desk.retry(number))


@application.command()
def pause(config: Config = None) -> None:
    """Stop all processing with one write; running agents are stopped within ten seconds."""
    _at_desk(config, lambda desk: desk.set_active(False))
    print("paused: nothing happens until formica resume")


@application.command()
def resume(config: Config = None) -> None:
    """Go on: every switch on, the breaker closed."""
    _at_desk(config, lambda desk: desk.set_active(True))
    print("resumed")


@application.command(epilog="Example: formica triage --file report.json --json --repository ~/src/project")
def triage(
    file: Annotated[str, typer.Option("--file", help="JSON or JSON lines with title and body; - is stdin.")],
    as_json: AsJson = False,
    repository: Annotated[
        Path | None, typer.Option("--repository", help="Verify the environment against this repository.")
    ] = None,
) -> None:
    """What the rules make of reports in a file: a line each. No server, no configuration."""
    rows = wiring.read_reports(file)
    source = str(repository.expanduser().absolute()) if repository is not None else None
    for row in anyio.run(lambda: wiring.triage(rows, source)):
        if as_json:
            print(json.dumps(row))
        else:
            evidence = "; ".join(row["environment_evidence"])
            flags = " (unsure)" * row["unsure"] + " SECURITY" * row["security"]
            kind = f"{row['kind']} {row['kind_confidence']:.2f}{flags}"
            print(printable(f"{row['id']}: {kind}, {row['environment']}: {evidence}"))


@application.command()
def doctor(config: Config = None, as_json: AsJson = False) -> None:
    """Check everything the daemon needs, and say what to do about what is missing."""
    loaded = _load(config)
    checks = anyio.run(lambda: wiring.doctor(loaded))
    _print(
        checks,
        as_json,
        lambda rows: "\n".join(f"{_mark(row)} {row['check']}: {row['detail']}" for row in rows),
    )
    if not all(row["ok"] for row in checks):
        sys.exit(FAILED)


def _mark(row: dict[str, Any]) -> str:
    if not row["ok"]:
        return "FAIL"
    return "warn" if row.get("warning") else "ok  "


@application.command()
def init(
    path: Annotated[Path, typer.Argument(help="Where to write the configuration.")] = Path("formica.toml"),
) -> None:
    """Write a commented configuration with every key and its default; never over an existing file."""
    template = (settings.resource("config") / "formica.toml").read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template)
    except FileExistsError:
        _fail(USAGE, f"{path} exists already; name another file")
    except OSError as error:
        _fail(FAILED, f"{path} cannot be written ({error.strerror})")
    print(f"{path} is written. Fill in [repository] and [agent], then: formica doctor --config {path}")


if __name__ == "__main__":
    main()
