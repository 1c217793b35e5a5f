"""Who works on a task, and how a trial is driven: turns, budgets, going on in the same workspace after a failure."""

from __future__ import annotations

import asyncio
from typing import Final

import anyio
from inspect_ai.agent import Agent, AgentPrompt, AgentState, AgentSubmit, react
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool
from inspect_ai.util import Limit, LimitExceededError, apply_limits, time_limit, token_limit, working_limit

from traincheck.pilot.inspecting import scripts
from traincheck.pilot.inspecting.context import Trial
from traincheck.pilot.inspecting.recorder import Budget
from traincheck.pilot.inspecting.tools import bash, request_device, submit_revision, write_file

RECOVERIES: Final = 3
"""So often an agent that ended with an error is started again, in all."""

GO_ON: Final = "Continue."
_LOOK_S: Final = 0.5
_BUDGETS: Final[dict[str, Budget]] = {"time": "time", "working": "working_time", "token": "tokens"}
_PROMPT: Final = "You work in the folder of a training program, with a shell and the tools that you are given."


@solver
def driver(trial: Trial) -> Solver:
    """The whole trial: one turn for each of the operator's messages, within the plan's budgets."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        budgets = trial.draft.budgets
        working = working_limit(budgets.working_time_s)
        limits = [
            time_limit(budgets.time_s),
            working,
            token_limit(budgets.tokens, type="input + output"),
        ]
        with anyio.CancelScope() as scope, apply_limits(limits, catch_errors=True) as spent:
            trial.stop = scope.cancel
            watching = asyncio.ensure_future(_watch(trial, working))
            try:
                await _turns(trial, state)
            finally:
                watching.cancel()
        trial.stop = None
        if spent.limit_error is not None and trial.limit is None:
            trial.exhaust(_BUDGETS[spent.limit_error.type])
        if trial.limit is not None:
            trial.outcome = "limit"
        return state

    return solve


async def _watch(trial: Trial, working: Limit) -> None:
    """Inspect looks at working time when a model is asked or a tool is called; a long command would go on."""
    while working.usage <= trial.draft.budgets.working_time_s:
        await asyncio.sleep(_LOOK_S)
    trial.exhaust("working_time")


async def _turns(trial: Trial, state: TaskState) -> None:
    agent = make_agent(trial)
    held = AgentState(messages=[])
    recoveries = 0
    for text in (trial.instructions, *trial.draft.turns):
        trial.recorder.turn_started(text)
        held.messages.append(ChatMessageUser(content=text))
        while True:
            try:
                held = await agent(held)
                break
            except LimitExceededError:
                raise
            except Exception as error:
                goes_on = recoveries < RECOVERIES
                told = f"{type(error).__name__}: {error}"[:500]
                trial.recorder.solver_failed(told, recovers=goes_on)
                if not goes_on:
                    trial.outcome = "solver_failed"
                    state.messages = held.messages
                    return
                recoveries += 1
                trial.desk.forget()
                _drop_open_calls(held)
                held.messages.append(ChatMessageUser(content=GO_ON))
        trial.recorder.turn_ended(held.output.completion or None)
        state.messages, state.output = held.messages, held.output
    trial.outcome = "finished"


def _drop_open_calls(held: AgentState) -> None:
    """An answer whose tool calls were never answered is no conversation that a provider goes on with."""
    answered = {getattr(message, "tool_call_id", None) for message in held.messages}
    while held.messages:
        last = held.messages[-1]
        calls = last.tool_calls or [] if isinstance(last, ChatMessageAssistant) else []
        if not any(call.id not in answered for call in calls):
            return
        held.messages.pop()


def make_agent(trial: Trial) -> Agent:
    """The agent that the plan names, with the two tools that every one has."""
    ours: list[Tool] = [request_device(trial), submit_revision(trial)]
    kind = trial.solver.agent
    if kind == "claude_code":
        from inspect_swe import claude_code

        return claude_code(
            version="sandbox", bridged_tools=ours, disallowed_tools=["WebSearch", "WebFetch"], retry_uncaught_errors=0
        )
    if kind == "codex_cli":
        from inspect_swe import codex_cli

        # Its own files must not lie in the workspace, which is captured.
        home = f"{trial.place.folders()['home']}/.codex"
        return codex_cli(version="sandbox", bridged_tools=ours, web_search="disabled", home_dir=home)
    tools = [bash(), write_file(), *ours]
    if kind == "scripted":
        tools = scripts.fitted(trial, tools)
    return react(
        prompt=AgentPrompt(instructions=_PROMPT, handoff_prompt=None, assistant_prompt=None),
        tools=tools,
        submit=AgentSubmit(name="finish", description="End your work; nothing is submitted by this."),
    )
