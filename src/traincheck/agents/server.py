"""``traincheck mcp``: TrainCheck's commands as tools of the Model Context Protocol, over standard input and output.

The protocol has standard output for itself: every command runs as a child whose output goes to files.
"""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal, TypeVar

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from traincheck import __version__
from traincheck.agents import bounds, manual
from traincheck.agents.children import Children
from traincheck.agents.commands import Tell
from traincheck.agents.root import Root
from traincheck.agents.tools import Tools, Watching
from traincheck.errors import TraincheckError

INSTRUCTIONS: Final = """TrainCheck finds silent errors of PyTorch training: loss that is wrong without an exception, \
ranks that drift apart, parameters that are not trained, a change that altered more than it should. The program needs \
no change. Order: collect a healthy run (a configuration in which the fault can't show: one rank, a feature off, the \
commit before), infer its rules, check the suspect run; findings name the step, tensor, call and line. Without a \
healthy run: collect two runs that should be the same and compare them (trace with other). Use few steps (5 to 20). \
Resource traincheck://manual has one page on all of it."""

Command = Annotated[str, Field(description="Command line that trains, as in a shell: torchrun --nproc-per-node 2 t.py")]
Cwd = Annotated[str, Field(description="Folder the command runs in, relative to the root")]
Timeout = Annotated[float, Field(gt=0, le=86400, description="Seconds; then the command is ended, its trace stays")]
Files = Annotated[list[str], Field(description="Invariant files, as infer answered them")]
Offset = Annotated[int, Field(ge=0, description="Where to go on: next_offset of the answer before")]
Limit = Annotated[int, Field(ge=1, le=100)]
Replace = Annotated[bool, Field(description="Replace an existing output")]

LEAVE_S: Final = 10.0
"""How long a server that got a signal waits for its calls; children end sooner."""

Answering = TypeVar("Answering", bound=Callable[..., Awaitable[str]])

READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
RUNS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
WRITES: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)


def serve(root: Root) -> int:
    """Serve until standard input ends or a signal comes. Returns the exit code."""
    return anyio.run(_serve, root)


class Calls:
    """Counts calls that have begun and have not yet cleaned up."""

    def __init__(self) -> None:
        self.open = 0

    async def answered(self, work: Awaitable[dict[str, Any]]) -> str:
        """The answer as bounded JSON; what TrainCheck refuses becomes a tool's error."""
        self.open += 1
        try:
            return bounds.answer(await work)
        except TraincheckError as error:
            raise ToolError(error.message + (f"\ntry: {error.hint}" if error.hint else "")) from error
        except OSError as error:
            raise ToolError(f"cannot use {error.filename or 'a file'}: {error.strerror or error}") from error
        finally:
            self.open -= 1


async def _serve(root: Root) -> int:
    children, calls = Children(), Calls()
    server = build(Tools(root, children), calls)
    async with anyio.create_task_group() as group:

        async def until_signal() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
                async for number in signals:
                    children.close()
                    threading.Thread(target=_leave, args=(calls, 128 + number), daemon=True).start()
                    group.cancel_scope.cancel()

        group.start_soon(until_signal)
        await server.run_stdio_async()
        group.cancel_scope.cancel()
    return 0


def _leave(calls: Calls, code: int) -> None:
    """End the process when all calls have cleaned up: the SDK waits in a read that nothing interrupts."""
    until = time.monotonic() + LEAVE_S
    while calls.open and time.monotonic() < until:
        time.sleep(0.02)
    os._exit(code)


def build(tools: Tools, calls: Calls) -> MCPServer:
    """The server with its tools."""
    server = MCPServer("traincheck", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")

    def tool(hints: ToolAnnotations) -> Callable[[Answering], Answering]:
        def add(function: Answering) -> Answering:
            # The answer is text alone: the same once more as structured content would cost the reader twice.
            description = inspect.cleandoc(function.__doc__ or "")
            server.add_tool(function, description=description, annotations=hints, structured_output=False)
            return function

        return add

    @server.resource("traincheck://manual", mime_type="text/markdown", description="One page for agents")
    def page() -> str:
        return manual.for_agents()

    @tool(RUNS)
    async def collect(
        ctx: Context,
        command: Command,
        run: Annotated[str, Field(description="Folder for the trace; left out: runs/<script>-<n>")] = "",
        cwd: Cwd = ".",
        timeout_s: Timeout = 600,
        scope: Annotated[
            Literal["full", "boundary"], Field(description="boundary: cheaper, calls of loops only")
        ] = "full",
        every: Annotated[int, Field(ge=1, description="Observe every nth step")] = 1,
        warmup: Annotated[int, Field(ge=0, description="Observe the first steps in any case")] = 0,
        calls_only: Annotated[bool, Field(description="No models, optimizers or batches: cheaper, finds less")] = False,
        replace: Replace = False,
        tail_lines: Annotated[int, Field(ge=0, le=200)] = 20,
    ) -> str:
        """Run a training command unchanged and record what it does, child processes and ranks included.

        Answers with its exit code, the trace folder and the end of its output (all of it is in log).
        """
        watching = Watching(scope, every, warmup, calls_only)
        return await calls.answered(
            tools.collect(
                command,
                _teller(ctx),
                run=run,
                cwd=cwd,
                timeout_s=timeout_s,
                watching=watching,
                replace=replace,
                lines=tail_lines,
            )
        )

    @tool(WRITES)
    async def infer(
        ctx: Context,
        runs: Annotated[list[str], Field(description="Trace folders of healthy runs; more runs, fewer false alarms")],
        output: Annotated[str, Field(description="File; left out: <run>.invariants.jsonl")] = "",
        timeout_s: Timeout = 600,
        replace: Replace = False,
    ) -> str:
        """Learn from healthy runs what holds in all of them."""
        return await calls.answered(
            tools.infer(runs, _teller(ctx), output=output, timeout_s=timeout_s, replace=replace)
        )

    @tool(RUNS)
    async def check(
        ctx: Context,
        invariants: Files,
        run: Annotated[str, Field(description="Trace folder to check")] = "",
        command: Annotated[
            str, Field(description="Instead of run: a command to run and check (cheap: observes little)")
        ] = "",
        cwd: Cwd = ".",
        output: Annotated[str, Field(description="Folder for report and results; left out: <run>-check")] = "",
        timeout_s: Timeout = 600,
        max_findings: Annotated[int, Field(ge=1, le=20)] = 5,
    ) -> str:
        """Say what broke: findings with step, rank, tensors, line of code, expected and observed.

        The earliest come first. exit_code 3: violated, 0: nothing violated.
        """
        return await calls.answered(
            tools.check(
                invariants,
                _teller(ctx),
                run=run,
                command=command,
                cwd=cwd,
                output=output,
                timeout_s=timeout_s,
                most=max_findings,
            )
        )

    @tool(READS)
    async def findings(
        check: Annotated[str, Field(description="check of check's answer")],
        number: Annotated[int | None, Field(description="One finding in full; left out: list them in brief")] = None,
        offset: Offset = 0,
        limit: Limit = 5,
    ) -> str:
        """Details of a check's findings: all tensors, each broken rule, evidence by step and rank."""
        return await calls.answered(tools.findings(check, number=number, offset=offset, limit=limit))

    @tool(READS)
    async def trace(
        ctx: Context,
        run: Annotated[str, Field(description="Trace folder")],
        other: Annotated[str, Field(description="Another one: where do the two part?")] = "",
        section: Literal["overview", "processes", "functions", "steps", "coverage", "lacks"] = "overview",
        contains: Annotated[str, Field(description="Only rows with this text, such as a function's name")] = "",
        offset: Offset = 0,
        limit: Limit = 20,
    ) -> str:
        """Look at a trace, or find the first step, call or tensor at which two runs part (no rules needed)."""
        return await calls.answered(
            tools.trace(run, _teller(ctx), other=other, section=section, contains=contains, offset=offset, limit=limit)
        )

    @tool(READS)
    async def doctor(ctx: Context) -> str:
        """Say what works on this machine, and which folder is the root."""
        return await calls.answered(tools.doctor(_teller(ctx)))

    return server


def _teller(ctx: Context) -> Tell:
    began = time.monotonic()

    async def tell(what: str) -> None:
        seconds = time.monotonic() - began
        await ctx.report_progress(round(seconds, 3), None, f"{seconds:.0f} s: {what}")

    return tell
