"""The command ``tune``: the only place that prints, exits and reads the environment.

A command returns a ``Reply``; ``main`` prints it. Results go to stdout, progress and logs to stderr. Only ``main``
turns an error into a line and an exit code.

What loads TVM is imported inside the commands: ``tune --help`` answers at once, and TVM is loaded only after the
installed versions were checked (``autotune.versions``).
"""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from autotune.cli.inspect_commands import inspect_app
from autotune.cli.log_commands import log_app
from autotune.cli.reply import DONE, FAILED, FROZEN, INTERRUPTED, UNVERIFIED, USAGE, Reply
from autotune.cli.report_commands import report_app
from autotune.cli.tune_commands import tune_app
from autotune.contributions import COMMANDS, contributed, install
from autotune.host.shared_files import NO_SPACE
from autotune.report.plain_text import escaped, escaped_lines
from autotune.versions import check_versions, describe
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import AutotuneError, MissingRecordError, UsageError, VerificationError

CODES: dict[type[AutotuneError], int] = {UsageError: USAGE, MissingRecordError: FROZEN, VerificationError: UNVERIFIED}
"""Exit codes of errors; any other AutotuneError is FAILED."""

KINDS_OF_VALUES = (("integer", "a whole number"), ("number", "a number"), ("boolean", "true or false"))
"""Part of typer's words for a value of the wrong type → what the value must be."""

REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.ESTALE)
"""Errors of the system where it lets this process not use a file: no fault of this program."""

NO_TEMPORARY_FOLDER = "No usable temporary directory"
"""How ``tempfile`` begins what it says where there is none."""

LOGGERS = ("autotune", "search", "costmodels", "schedules", "tuning_logs")

app = typer.Typer(
    name="tune",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Compile an ONNX model into kernels that are tuned and checked on this machine.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 a required record is missing, 4 verification failed, "
    "130 interrupted (the best artifact so far is on disk).",
)
for commands in (tune_app, inspect_app, report_app, *filter(None, map(contributed, COMMANDS))):
    app.add_typer(commands)
app.add_typer(log_app, name="log")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(describe())
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print versions and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more to stderr.")] = False,
) -> None:
    check_versions()
    if verbose:
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.DEBUG)


class _Stderr(logging.Handler):
    """Looks sys.stderr up for every line: a live display replaces it while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        print(escaped_lines(text) if record.exc_info else escaped(" ".join(text.split())), file=sys.stderr)


def _configure_logging() -> None:
    handler = _Stderr()
    handler.setFormatter(logging.Formatter("tune: %(message)s"))
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.WARNING)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    _open_streams()
    _configure_logging()
    try:
        reply = app(None if arguments is None else list(arguments), prog_name="tune", standalone_mode=False)
    except AutotuneError as error:
        return _complain(str(error), next((code for kind, code in CODES.items() if isinstance(error, kind)), FAILED))
    except typer.TyperException as error:
        return _refuse(error, sys.argv[1:] if arguments is None else arguments)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    except MemoryError:
        return _complain(
            "the system has no more memory for this command; what was measured is in the log: end other programs, "
            "then run it again",
            FAILED,
        )
    except OSError as error:
        if not (reason := _reason(error)):
            raise
        return _complain(reason, FAILED)
    if isinstance(reply, Reply):
        return _print(reply)
    if reply == INTERRUPTED:  # typer turns Ctrl-C into this code
        return _complain("interrupted", INTERRUPTED)
    return int(reply or DONE)


def _reason(error: OSError) -> str:
    """Return the system's refusal and the remedy in a line; empty for an error that is a fault of this program."""
    where = f" at {error.filename}" if error.filename else ""
    if error.errno in NO_SPACE:
        return f"the disk{where} is full; what was measured is in the log: make room, then run it again"
    if str(error.strerror).startswith(NO_TEMPORARY_FOLDER):
        return "there is no folder for temporary files that can be written; make /tmp writable, or set TMPDIR"
    if str(error.filename).startswith(("/proc/", "/sys/")):
        return f"{error.filename} cannot be read ({error.strerror}); mount the system's own folders /proc and /sys"
    if error.errno in REFUSALS:
        return f"the system refuses a file{where} ({error.strerror}); check its permissions and this process's limits"
    return ""


def _open_streams() -> None:
    """Make the standard streams usable: where one was closed, a file opened later would be taken for it.

    What a stream's encoding does not have is written as an escape sequence.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            handle = os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            setattr(sys, name, os.fdopen(handle, "r" if number == 0 else "w", closefd=False))
        elif number and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _refuse(error: typer.TyperException, arguments: Sequence[str]) -> int:
    """Say what is wrong with the arguments, in our own words, and where the right ones are listed."""
    message = error.format_message().rstrip(".")
    if not message:  # a command group alone: its help was shown
        return error.exit_code
    context = getattr(error, "ctx", None)
    command = "tune" if context is None else context.command_path
    if unknown := re.match(r"No such option: (\S+)", message):
        flags = [] if context is None else [flag for option in context.command.params for flag in option.opts]
        message = f"{unknown[1]}: no such option; {did_you_mean(unknown[1], flags)}"
    elif unknown := re.match(r"No such command '([^']*)'", message):
        commands = getattr(getattr(context, "command", None), "commands", ())
        if unknown[1] in COMMANDS:
            return _complain(f"{unknown[1]}: this command is in an extra; run: {install(unknown[1])}", FAILED)
        message = f"{unknown[1]}: no such command; {did_you_mean(unknown[1], commands)}"
    elif wrong := re.match(r"Invalid value for '([^']*)': (.*)", message):
        least = re.search(r"greater than or equal to (\d+)", wrong[2])
        kinds = [words for part, words in KINDS_OF_VALUES if part in wrong[2]]
        kind = f"at least {least[1]}" if least else next(iter(kinds), None)
        message = f"{_typed(wrong[1], arguments)}: {f'must be {kind}' if kind else wrong[2]}; "
    else:
        message = f"{message[:1].lower()}{message[1:]}; "
    return _complain(f"{message}'{command} --help' shows what there is", error.exit_code)


def _typed(names: str, arguments: Sequence[str]) -> str:
    """The option called ``names`` (``--trials`` or ``-t / --trials``) with its value, as it was typed."""
    for name in names.split(" / "):
        for argument, value in zip(arguments, [*arguments[1:], ""], strict=True):
            if argument == name:
                return f"{name} {value}"
            if argument.startswith(f"{name}="):
                return argument
    return names


def _complain(text: str, code: int) -> int:
    print("tune:", escaped(" ".join(text.split())), file=sys.stderr)
    return code


def _print(reply: Reply) -> int:
    try:
        for line in [json.dumps(reply.data, allow_nan=False)] if reply.as_json else reply.lines:
            print(escaped(line))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has closed it, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    for complaint in reply.complaints:
        _complain(complaint, reply.code)
    return reply.code
