"""Watching the model: attempts, failures of transport, tokens counted once, calls and results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from inspect_ai.model import (
    ChatMessageTool,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    get_model,
)  # fmt: skip

from traincheck.pilot.events import Tokens
from traincheck.pilot.inspecting import models

from .test_recorder import Written

TASK = "Prepare this training.\n\nSubmit when you are ready."


def usage(**more: int) -> ModelUsage:
    return ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15, **more)


def answer(text: str = "yes") -> ModelOutput:
    output = ModelOutput.from_content("mockllm/model", text)
    output.usage = usage()
    return output


def watched(written: Written, outputs: Callable[..., Any], retried: bool = False) -> Any:
    model = get_model("mockllm/model", custom_outputs=outputs, memoize=False)
    if retried:
        model.api.should_retry = lambda error: isinstance(error, ConnectionError)  # type: ignore[method-assign]
    return models.watch(model, written.recorder, TASK)


def test_the_request_that_carries_the_task_is_known(tmp_path: Path) -> None:
    written = Written(tmp_path)
    model = watched(written, lambda *_: answer())
    asyncio.run(model.generate([ChatMessageUser(content="title of this conversation?")]))
    # A CLI wraps and indents what it was told.
    asyncio.run(model.generate([ChatMessageUser(content=f"<task>\n  {TASK}\n</task>")]))
    assert [one["carries_task"] for one in written.of("model_requested")] == [False, True]
    assert [one["request"] for one in written.of("model_answered")] == ["r00001", "r00002"]


def test_what_inspect_tries_again_is_one_request_with_attempts(tmp_path: Path) -> None:
    written, failures = Written(tmp_path), iter([ConnectionError("reset"), ConnectionError("reset")])

    def outputs(*_: Any) -> ModelOutput:
        for error in failures:
            raise error
        return answer()

    model = watched(written, outputs, retried=True)
    config = GenerateConfig(max_retries=5)
    model.api.retry_wait = lambda: __import__("tenacity").wait_none()
    asyncio.run(model.generate([ChatMessageUser(content=TASK)], config=config))
    assert [(one["request"], one["attempt"]) for one in written.of("model_requested")] == [
        ("r00001", 1), ("r00001", 2), ("r00001", 3),
    ]  # fmt: skip
    assert [one["transport"] for one in written.of("model_failed")] == [True, True]
    assert written.kinds() == [
        "model_requested", "model_failed", "suspended", "model_requested", "model_failed",
        "model_requested", "model_answered", "resumed",
    ]  # fmt: skip


def test_a_failure_that_is_not_tried_again_is_a_request_of_its_own(tmp_path: Path) -> None:
    written, count = Written(tmp_path), iter(range(9))

    def outputs(*_: Any) -> ModelOutput:
        if next(count) == 0:
            raise ValueError("the prompt is too long")
        return answer()

    model = watched(written, outputs)
    with pytest.raises(ValueError, match="too long"):
        asyncio.run(model.generate([ChatMessageUser(content=TASK)]))
    asyncio.run(model.generate([ChatMessageUser(content=TASK)]))
    assert [one["request"] for one in written.of("model_requested")] == ["r00001", "r00002"]
    assert written.of("model_failed")[0]["transport"] is False
    assert written.of("suspended") == []


class Status(Exception):
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (httpx.ConnectError("x"), True),
        (httpx.RemoteProtocolError("x"), True),
        (Status(529), True),
        (Status(429), True),
        (Status(400), False),
        (ValueError("x"), False),
        (RuntimeError("the agent's program ended"), False),
    ],
)
def test_transport_is_told_from_the_agents_own(error: Exception, expected: bool) -> None:
    assert models.is_transport(error) is expected


def test_a_cause_tells_too() -> None:
    outer = RuntimeError("agent failed")
    outer.__cause__ = httpx.ReadTimeout("x")
    assert models.is_transport(outer)


def test_each_token_is_in_one_field() -> None:
    given = ModelUsage(
        input_tokens=100, input_tokens_cache_read=900, input_tokens_cache_write=40, output_tokens=50,
        reasoning_tokens=30, total_tokens=1090,
    )  # fmt: skip
    found = models.tokens(given)
    assert found == Tokens(input=140, cached_input=900, output=50, reasoning=30)
    assert found.total == 1090  # cached input once, reasoning not twice
    assert models.tokens(None).total == 0


def test_calls_of_an_answer_and_results_of_the_next_request_are_written(tmp_path: Path) -> None:
    written = Written(tmp_path)

    def outputs(messages: list[Any], *_: Any) -> ModelOutput:
        if len(messages) > 1:
            return answer("done")
        output = ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "ls"}, tool_call_id="c1")
        output.usage = usage()
        return output

    model = watched(written, outputs)
    first = [ChatMessageUser(content=TASK)]
    asyncio.run(model.generate(first))
    asyncio.run(model.generate([*first, ChatMessageTool(content="a.py", tool_call_id="c1", function="bash")]))
    assert written.kinds() == [
        "model_requested", "model_answered", "tool_called", "tool_answered", "model_requested", "model_answered",
    ]  # fmt: skip
    assert written.of("tool_called")[0]["request"] == "r00001"


def test_a_cancelled_request_is_written_as_failed(tmp_path: Path) -> None:
    written = Written(tmp_path)

    async def slow(*_: Any) -> ModelOutput:
        await asyncio.sleep(60)
        return answer()

    async def run() -> None:
        waiting = asyncio.ensure_future(watched(written, slow).generate([ChatMessageUser(content=TASK)]))
        await asyncio.sleep(0.5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
    assert written.of("model_failed")[0]["error"] == "the request was cancelled"
    assert written.of("suspended") == []
