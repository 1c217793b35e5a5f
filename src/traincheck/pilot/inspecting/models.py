"""Watching the model: every request, answer and failure is written down where it happens, whoever asked."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from inspect_ai.model import ChatMessage, ChatMessageTool, GenerateConfig, Model, ModelOutput, ModelUsage
from inspect_ai.tool import ToolChoice, ToolInfo

from traincheck.pilot.events import Tokens
from traincheck.pilot.inspecting.recorder import Recorder

_TRANSPORT: Final = ("connectionerror", "timeout", "transporterror", "networkerror", "protocolerror")
_ERROR_LENGTH: Final = 500


def watch(model: Model, recorder: Recorder, task: str) -> Model:
    """Have ``recorder`` told of all that goes to ``model`` and comes from it. ``task`` is the first message's text.

    The provider's own ``generate`` is watched, below Inspect's retries: each attempt is seen.
    """
    api: Any = model.api
    inner = api.generate
    again: dict[int, tuple[str, int]] = {}
    """Task of asyncio -> the request that Inspect will try again in it, and the attempts so far."""
    wanted = _plain(task)

    async def generate(
        input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> Any:
        here = id(asyncio.current_task())
        request, attempts = again.pop(here) if here in again else (recorder.new_request(), 0)
        attempt = attempts + 1
        _results(input, recorder)
        recorder.requested(request, attempt, carries_task=any(wanted in _plain(message.text) for message in input))
        try:
            given = await inner(input=input, tools=tools, tool_choice=tool_choice, config=config)
            output = given[0] if isinstance(given, tuple) else given
            if isinstance(output, Exception):  # how providers tell that a request was refused
                raise output
        except asyncio.CancelledError:
            recorder.failed(request, attempt, "the request was cancelled", transport=False)
            raise
        except Exception as error:
            retried = _retried(api, error)
            recorder.failed(request, attempt, _told(error), transport=retried or is_transport(error))
            if retried:
                again[here] = (request, attempt)
            raise
        _answered(request, output, recorder)
        return given

    api.generate = generate
    return model


def is_transport(error: BaseException) -> bool:
    """Whether the connection or the provider failed, and not the agent: by type, by HTTP status, by the cause."""
    seen: BaseException | None = error
    while seen is not None:
        status = getattr(seen, "status_code", None)
        if isinstance(status, int):
            return status >= 500 or status in (408, 409, 429)
        names = " ".join(kind.__name__.lower() for kind in type(seen).__mro__)  # of httpx, httpcore, providers' clients
        if isinstance(seen, ConnectionError | TimeoutError) or any(word in names for word in _TRANSPORT):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def tokens(usage: ModelUsage | None) -> Tokens:
    """Inspect's counts with each token in one field. Its ``input_tokens`` are those not read from a cache."""
    if usage is None:
        return Tokens(input=0, cached_input=0, output=0)
    return Tokens(
        input=usage.input_tokens + (usage.input_tokens_cache_write or 0),
        cached_input=usage.input_tokens_cache_read or 0,
        output=usage.output_tokens,
        reasoning=usage.reasoning_tokens or 0,
    )


def _answered(request: str, output: ModelOutput, recorder: Recorder) -> None:
    message = output.message if output.choices else None
    parts = []
    for part in message.content if message is not None and isinstance(message.content, list) else ():
        parts.append(getattr(part, "reasoning", None) or getattr(part, "text", None) or "")
    text = "\n".join(part for part in parts if part) or (message.text if message is not None else "")
    recorder.answered(request, output.model, tokens(output.usage), text)
    for call in (message.tool_calls or ()) if message is not None else ():
        recorder.called(call.id, call.function, call.arguments, request)


def _results(messages: list[ChatMessage], recorder: Recorder) -> None:
    """Tool results that the model is given with this request."""
    for message in messages:
        if isinstance(message, ChatMessageTool) and message.tool_call_id is not None:
            recorder.result(message.tool_call_id, message.text, failed=message.error is not None)


def _retried(api: Any, error: Exception) -> bool:
    """Whether Inspect will try again by itself."""
    verdict = api.should_retry(error)
    return bool(getattr(verdict, "retry", verdict))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_ERROR_LENGTH]


def _plain(text: str) -> str:
    return " ".join(text.split())
