"""``traincheck mcp`` as its clients see it: the SDK's own client, over the standard streams of a real server."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.agents.agent_support import environment, gone, living, pids
from traincheck.agents.bounds import MOST

TOOLS = {"collect", "infer", "check", "findings", "trace", "doctor"}
SERVER = [sys.executable, "-m", "traincheck", "mcp"]


@asynccontextmanager
async def connected(root: Path):
    parameters = StdioServerParameters(
        command=SERVER[0], args=[*SERVER[1:], "--root", str(root)], env=environment(), cwd=str(root)
    )
    async with Client(parameters) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool, which must be one."""
    result = await client.call_tool(tool, arguments)
    text = result.content[0].text
    assert not result.is_error, text
    assert len(text) <= MOST
    return json.loads(text)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """What a tool says instead of an answer."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    return result.content[0].text


def test_tools_say_what_they_are_for(tmp_path):
    async def body():
        async with connected(tmp_path) as client:
            assert client.server_info.name == "traincheck"
            assert "silent errors" in client.instructions
            tools = (await client.list_tools()).tools
            page = await client.read_resource("traincheck://manual")
        return tools, page.contents[0].text

    tools, page = anyio.run(body)
    assert {tool.name for tool in tools} == TOOLS
    assert all(len(tool.description) > 40 for tool in tools)
    schemas = {tool.name: tool.input_schema for tool in tools}
    assert schemas["collect"]["required"] == ["command"]
    assert schemas["infer"]["required"] == ["runs"]
    assert "ctx" not in json.dumps(schemas)
    # A client puts all of this into its model's context before anything has been asked.
    assert sum(len(tool.description) + len(json.dumps(tool.input_schema)) for tool in tools) < 9000
    assert page.startswith("# TrainCheck for coding agents")


def test_errors_are_told_with_what_to_try(project):
    async def body():
        async with connected(project) as client:
            outside = [
                await refused(client, "collect", command="true", run="../run"),
                await refused(client, "collect", command="true", cwd="/"),
                await refused(client, "infer", runs=["/etc"]),
                await refused(client, "check", invariants=["/etc/passwd"], run="runs/a"),
                await refused(client, "findings", check=".."),
                await refused(client, "trace", run="runs/../../x"),
            ]
            told = {
                "no program": await refused(client, "collect", command="no-such-program train.py"),
                "no run": await refused(client, "infer", runs=["runs/none"]),
                "no trace": await refused(client, "trace", run="."),
                "no check": await refused(client, "findings", check="."),
                "both": await refused(client, "check", invariants=["a"], run="a", command="b"),
                "neither": await refused(client, "check", invariants=["a"]),
                "no file": await refused(client, "check", invariants=["none.jsonl"], command="true"),
                "quotes": await refused(client, "collect", command="python 'a"),
                "root": await refused(client, "collect", command="true", run="."),
                "log": await refused(client, "collect", command="true", run="mine"),
            }
            bad = await refused(client, "collect", command="true", timeout_s=-1)
        return outside, told, bad

    (project / "mine.log").write_text("precious")
    outside, told, bad = anyio.run(body)
    assert (project / "mine.log").read_text() == "precious"
    assert "mine.log" in told["log"]
    assert "the root itself" in told["root"]
    for text in outside:
        assert "outside of this server's root" in text
        assert "--root" in text
    assert all("try: " in text for text in told.values()), told
    assert "'no-such-program' was not found" in told["no program"]
    assert "nothing at runs/none" in told["no run"]
    assert "not a trace" in told["no trace"]
    assert "results.json" in told["no check"]
    assert "either run or command" in told["both"]
    assert "none.jsonl" in told["no file"]
    assert "greater than 0" in bad
    left = [path.name for path in project.rglob("*") if path.suffix != ".py"]
    assert sorted(left) == ["mine.log", "runs"]


def test_a_program_that_fails_is_an_answer(project):
    async def body():
        async with connected(project) as client:
            failed = await call(client, "collect", command="sh -c 'echo hello; echo oh >&2; exit 9'", tail_lines=5)
            other = await call(client, "collect", command="cd runs && pwd")
            named = await call(client, "collect", command="sh train.sh", run="mine/one", cwd="runs")
            again = await refused(client, "collect", command="true", run="mine/one")
            replaced = await call(client, "collect", command="true", run="mine/one", replace=True)
        return failed, other, named, again, replaced

    (project / "runs").mkdir()
    (project / "runs" / "train.sh").write_text("pwd; cat\n")
    failed, other, named, again, replaced = anyio.run(body)
    assert failed["exit_code"] == 9
    assert "hello" in failed["output_tail"].splitlines()
    assert "oh" in failed["output_tail"].splitlines()
    assert "nothing was collected" in failed["collected"]
    assert "next" not in failed
    assert (project / failed["log"]).read_text().count("hello") == 1
    assert failed["run"] != other["run"]
    assert str(project / "runs") in other["output_tail"]
    assert (named["run"], named["exit_code"]) == ("mine/one", 0)
    assert str(project / "runs") in named["output_tail"]
    assert "exists already" in again
    assert "--force" in again or "replace" in again
    assert replaced["exit_code"] == 0


def test_cancelling_a_call_ends_its_processes(project):
    async def body():
        async with connected(project) as client:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def give_up():
                        numbers.extend(await anyio.to_thread.run_sync(pids, project))
                        assert living(numbers) == numbers
                        scope.cancel()

                    group.start_soon(give_up)
                    await client.call_tool("collect", {"command": "python sleeper.py"})
            ended = await anyio.to_thread.run_sync(gone, numbers)
            alive = await refused(client, "findings", check=".")
        return ended, alive

    numbers: list[int] = []
    ended, alive = anyio.run(body)
    assert len(numbers) == 2
    assert ended
    assert "results.json" in alive


def test_a_timeout_is_an_answer_and_progress_is_told(project):
    told = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        told.append((value, message))

    async def body():
        async with connected(project) as client:
            result = await client.call_tool(
                "collect", {"command": "python sleeper.py", "timeout_s": 6}, progress_callback=progress
            )
        return json.loads(result.content[0].text)

    answer = anyio.run(body)
    assert answer["timed_out"] is True
    assert answer["exit_code"] == 128 + signal.SIGTERM
    assert living(pids(project, 1)) == []
    values = [value for value, _ in told]
    assert len(values) >= 2
    assert values == sorted(set(values))
    assert any("sleeping" in message for _, message in told)


@pytest.mark.parametrize("how", ["closed", "signal"])
def test_a_server_that_ends_leaves_nothing_behind(project, how):
    server, say = _raw_server(project)
    with server:
        say(method="tools/call", id=7, params={"name": "collect", "arguments": {"command": "python sleeper.py"}})
        numbers = pids(project)
        if how == "closed":
            server.stdin.close()
        else:
            server.send_signal(signal.SIGTERM)
        code = server.wait(20)
    assert gone(numbers, 2)
    assert code == (0 if how == "closed" else 128 + signal.SIGTERM)


def test_standard_output_is_the_protocols_alone(project):
    noisy = "import os; print('to stdout'); os.write(1, b'to 1\\n'); os.write(2, b'to 2\\n')"
    (project / "noisy.py").write_text(noisy + "; open('/proc/self/fd/1', 'a').write('again\\n')\n")
    server, say = _raw_server(project)
    with server:
        for number, (tool, arguments) in enumerate(
            [
                ("collect", {"command": "python noisy.py", "run": "noisy"}),
                ("trace", {"run": "noisy"}),
                ("trace", {"run": "none"}),
                ("findings", {"check": "noisy"}),
                ("infer", {"runs": ["noisy"]}),
                ("no-such-tool", {}),
            ],
            start=10,
        ):
            say(method="tools/call", id=number, params={"name": tool, "arguments": arguments})
        answers: dict[int, Any] = {}
        for line in server.stdout:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if "id" in message:
                answers[message["id"]] = message
            if answers.keys() >= set(range(10, 16)):
                break
        server.stdin.close()
        rest = server.stdout.read()
        assert server.wait(20) == 0
    assert rest == ""
    collected = json.loads(answers[10]["result"]["content"][0]["text"])
    assert collected["output_tail"].splitlines().count("to 1") == 1
    assert "again" in collected["output_tail"]


def _raw_server(root: Path):
    """A server without the SDK's client, and a function that writes a message to it; it is initialised."""
    server = subprocess.Popen(
        [*SERVER, "--root", str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=root,
    )

    def say(**message: Any) -> None:
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        server.stdin.flush()

    client = {"name": "test", "version": "1"}
    say(method="initialize", id=1, params={"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
    assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "traincheck"
    say(method="notifications/initialized")
    return server, say


def test_without_the_extra_the_command_says_what_to_install(tmp_path):
    blocked = "import sys; sys.modules['mcp'] = None\nfrom traincheck.cli import main\nsys.argv[1:] = ['mcp']\nmain()"
    ran = subprocess.run(
        [sys.executable, "-c", blocked], capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=60
    )
    assert ran.returncode == 2
    assert "try: pip install 'traincheck[mcp]'" in ran.stderr
    assert ran.stdout == ""


def test_a_root_that_is_not_there_is_refused(tmp_path):
    ran = subprocess.run(
        [*SERVER, "--root", str(tmp_path / "none")], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert ran.returncode == 2
    assert "--root" in ran.stderr
    assert ran.stdout == ""


@pytest.mark.slow
def test_from_a_healthy_run_to_the_line_of_the_fault(project):
    """What an agent does: doctor, collect, infer, check, read the finding, compare, repair, check again."""

    async def body():
        async with connected(project) as client:
            doctor = await call(client, "doctor")
            good = await call(client, "collect", command="python train.py", run="runs/good")
            learned = await call(client, "infer", runs=[good["run"]])
            bad = await call(client, "collect", command="python suspect.py")
            check = await call(client, "check", run=bad["run"], invariants=[learned["invariants"]])
            listed = await call(client, "findings", check=check["check"], limit=1)
            finding = await call(client, "findings", check=check["check"], number=0, limit=2)
            more = await call(client, "findings", check=check["check"], number=0, offset=2, limit=50)
            missing = await refused(client, "findings", check=check["check"], number=99)
            parted = await call(client, "trace", run=good["run"], other=bad["run"])
            shown = await call(client, "trace", run=bad["run"])
            functions = await call(client, "trace", run=bad["run"], section="functions", contains="SGD.step", limit=5)
            (project / "suspect.py").write_text((project / "train.py").read_text())
            repaired = await call(
                client, "check", command="OMP_NUM_THREADS=1 python suspect.py", invariants=[learned["invariants"]]
            )
        return locals()

    told = anyio.run(body)
    assert told["doctor"]["usable"]
    assert told["doctor"]["root"] == str(project.resolve())
    assert told["good"]["exit_code"] == 0
    assert told["good"]["processes"] == [{"rank": None, "steps": 6, "end": "exit", "exit": 0}]
    assert "step 5: loss" in told["good"]["output_tail"]
    assert told["bad"]["run"] == "runs/suspect-1"
    assert told["learned"]["total"] > 10
    check = told["check"]
    assert (check["exit_code"], check["check"]) == (3, "runs/suspect-1-check")
    assert check["summary"]["violated"] > 0
    first = check["findings"][0]
    assert first["first_step"] == 1
    line = 1 + (project / "train.py").read_text().splitlines().index("    optimizer.step()")
    assert f"suspect.py:{line}" in first["location"]
    assert any(name.endswith("2.bias") for name in first["tensors"])
    assert "did not change" in first["title"]
    assert told["listed"]["findings"][0] == first
    assert told["finding"]["title"] == first["title"]
    rules = told["finding"]["rules"]
    assert rules["total"] == len(rules["shown"]) + len(told["more"]["rules"]["shown"])
    assert rules["shown"][0]["evidence"]
    assert "counted from 0" in told["missing"]
    assert told["parted"]["same"] is False
    assert told["parted"]["first"]["step"] in (0, 1)
    assert told["shown"]["exit_code"] == 0
    assert told["functions"]["total"] >= 1
    assert all("SGD.step" in row["function"] for row in told["functions"]["rows"])
    assert told["repaired"]["exit_code"] == 0
    assert told["repaired"]["findings"] == []
    assert told["repaired"]["program"]["exit_code"] == 0
    assert (project / told["repaired"]["check"] / "report.html").is_file()


@pytest.mark.slow
def test_ranks_are_covered(project):
    async def body():
        async with connected(project) as client:
            good = await call(
                client, "collect", command=shlex.join(["torchrun", "--nproc-per-node", "2", "train.py"]), timeout_s=120
            )
            cut = await call(client, "trace", run=good["run"], section="functions", limit=100)
        return good, cut

    good, cut = anyio.run(body)
    assert good["exit_code"] == 0, good
    assert sorted(one["rank"] for one in good["processes"]) == [0, 1]
    assert cut["total"] > 20
    assert os.path.isdir(project / good["run"])
