"""The device service's jobs: fresh source, own environment, nothing left behind, everything written down."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path

import pytest

from tests.pilot.device_service import PATH, RUN, Bench, living, stop
from traincheck.errors import TraincheckError
from traincheck.pilot import events
from traincheck.pilot.accounting.reconciling import device_problems
from traincheck.pilot.device.client import Client
from traincheck.pilot.device.messages import Progress, Request, Workdir


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_job_is_run_and_everything_about_it_is_written(bench: Bench) -> None:
    told: list[Progress] = []
    with bench.service() as client:
        result = client.run(
            bench.request("r1", "cat hello.txt; echo bad >&2; echo made > out/made.txt; sleep 0.2; exit 3", 2),
            told.append,
        )
    assert (result.status, result.reason, result.exit_code, result.devices) == ("ended", "exit", 3, (0, 1))
    assert (result.stdout.text, result.stderr.text) == ("hello\n", "bad\n")
    assert result.files == {"made.txt": hashlib.sha256(b"made\n").hexdigest()}
    assert bench.objects.get(result.files["made.txt"]) == b"made\n"
    assert [one.event for one in told] == ["queued", "granted"]
    assert bench.kinds("r1") == ["asked", "granted", "worker_started", "worker_ended", "released"]
    asked = bench.event("r1", "asked")
    assert asked == events.Asked(
        request="r1", owner="trial", purpose="solver", devices=2, source=bench.source,
        command=("sh", "-c", "cat hello.txt; echo bad >&2; echo made > out/made.txt; sleep 0.2; exit 3"),
    )  # fmt: skip
    ended = bench.event("r1", "worker_ended")
    assert isinstance(ended, events.WorkerEnded)
    assert (ended.exit_code, ended.reason) == (3, "exit")
    assert ended.result == hashlib.sha256((bench.jobs / "r1" / "result.json").read_bytes()).hexdigest()
    entries = bench.entries()
    assert (entries[0].kind, entries[-1].kind, entries[-1].data) == ("service_started", "service_stopped", {"held": 0})
    assert device_problems(entries, "solver") == []
    row = bench.row("r1")
    times = result.times
    assert (row.asked_ns, row.answered_ns, row.started_ns, row.ended_ns) == (
        times.asked_ns, times.granted_ns, times.started_ns, times.ended_ns,
    )  # fmt: skip
    assert 0.2e9 * 2 <= row.device_ns() < 5e9 * 2


def test_each_job_has_a_fresh_source_and_leaves_none(bench: Bench) -> None:
    spoil = "echo changed > hello.txt; mkdir -p shut/in; touch shut/in/x; chmod 555 shut/in shut; chmod 0 sub"
    with bench.service() as client:
        assert client.run(bench.request("r1", spoil)).exit_code == 0
        result = client.run(bench.request("r2", "cat hello.txt; ls -A"))
    assert result.stdout.text.split() == ["hello", "hello.txt", "out", "sub"]
    assert sorted(path.name for path in (bench.jobs / "r1").iterdir()) == ["result.json", "stderr", "stdout"]


def test_the_environment_is_the_requesters(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the service")
    with bench.service() as client:
        result = client.run(bench.request("r1", "env", env={**PATH, "MINE": "1 2"}, cwd="sub"))
        where = client.run(bench.request("r2", "pwd", cwd="sub"))
    found = dict(line.split("=", 1) for line in result.stdout.text.splitlines())
    assert {**PATH, "MINE": "1 2", "PILOT_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}.items() <= found.items()
    assert set(found) <= {
        "PATH",
        "MINE",
        "PILOT_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "PILOT_JOB",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }
    assert "traincheck" not in result.stdout.text.replace(PATH["PATH"], "").lower()
    assert where.stdout.text.endswith("/work/sub\n")


@pytest.mark.parametrize("options", [["--ids", "3,5"], []])
def test_gpu_ids_are_given_by_the_variable(bench: Bench, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids only: no GPU was there to run on."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2" if options else "3,5,7")
    process = bench.start(2, "--kind", "gpu", *options)
    try:
        result = Client(bench.socket).run(bench.request("r1", "echo $CUDA_VISIBLE_DEVICES", 2))
    finally:
        stop(process)
    assert result.stdout.text == "3,5\n"


def test_a_prefix_and_a_workdir_lead_into_another_place(bench: Bench) -> None:
    host, inside = bench.folder / "host", bench.folder / "seen" / "at"
    host.mkdir()
    inside.parent.mkdir()
    inside.symlink_to(host)
    prefix = ("env", "-i", "-C", "{cwd}", "{env}", "SNAPSHOT={workdir}", "CWD={cwd}")
    with bench.service() as client:
        result = client.run(
            bench.request(
                "r1", "cat ../hello.txt; echo $CWD $SNAPSHOT '{cwd}' $PILOT_DEVICES; echo x > $SNAPSHOT/out/x",
                cwd="sub",
                prefix=prefix, workdir=Workdir(host=str(host), inside=str(inside)),
            )
        )  # fmt: skip
    assert result.stdout.text == f"hello\n{inside}/sub {inside} {{cwd}} 0\n"
    assert list(result.files) == ["x"]
    assert not host.exists()


def test_a_workdir_may_be_on_another_file_system(bench: Bench) -> None:
    if not Path("/dev/shm").is_dir() or Path("/dev/shm").stat().st_dev == bench.folder.stat().st_dev:
        pytest.skip("there is no other file system")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other, bench.service() as client:
        host = Path(other, "jobs", "r1")
        result = client.run(
            bench.request("r1", "cat hello.txt; echo x > out/x", workdir=Workdir(host=str(host), inside=str(host)))
        )
        assert list(Path(other).iterdir()) == [host.parent]
        assert not host.exists()
    assert (result.stdout.text, list(result.files)) == ("hello\n", ["x"])


@pytest.mark.parametrize(
    "swap", ["mv {host} {host}.aside; ln -s {secret} {host}", "rm -r {host}/out; ln -s {secret}/out {host}/out"]
)
def test_a_snapshot_swapped_for_a_link_leads_nowhere(bench: Bench, swap: str) -> None:
    """The service has more rights than a job: it must neither read nor change what a job's link points at."""
    secret = bench.folder / "secret"
    (secret / "out").mkdir(parents=True)
    (secret / "out" / "oracle").write_text("secret")
    (secret / "out").chmod(0o555)
    host = bench.folder / "host"
    with bench.service() as client:
        result = client.run(
            bench.request(
                "r1", swap.format(host=host, secret=secret), workdir=Workdir(host=str(host), inside=str(host))
            )
        )
        assert client.run(bench.request("r2", "true")).exit_code == 0
    assert result.files == {}
    assert (secret / "out" / "oracle").read_text() == "secret"
    assert (secret / "out").stat().st_mode & 0o777 == 0o555
    assert not host.exists()


def test_the_time_limit_ends_the_whole_tree(bench: Bench) -> None:
    script = (
        f"(setsid env -i sleep 3371.{RUN} &); (setsid sh -c 'trap \"\" TERM HUP; sleep 3372.{RUN}' &); sleep 3373.{RUN}"
    )
    with bench.service() as client:
        result = client.run(bench.request("r1", script, timeout_s=0.5))
        assert (result.reason, result.exit_code) == ("timeout", -9)
        assert [living(word) for word in (f"3371.{RUN}", f"3372.{RUN}", f"3373.{RUN}")] == [[], [], []]
        assert client.state().free == (0, 1)
    row = bench.row("r1")
    assert row.started_ns is not None
    assert row.ended_ns is not None
    assert 0.5e9 <= row.ended_ns - row.started_ns < 3e9


def test_what_a_job_leaves_running_is_ended_and_counted(bench: Bench) -> None:
    with bench.service() as client:
        result = client.run(bench.request("r1", f"(setsid env -i sleep 3374.{RUN} &); sleep 0.1; exit 5"))
        assert (result.reason, result.exit_code) == ("exit", 5)
        assert living(f"3374.{RUN}") == []


def test_an_orphan_in_a_process_namespace_is_found_by_its_mark(bench: Bench) -> None:
    prefix = ("unshare", "-p", "--fork")
    if os.geteuid() != 0:
        prefix = ("unshare", "-r", "-p", "--fork")
    with bench.service() as client:
        if client.run(bench.request("try", "true", prefix=prefix)).exit_code != 0:
            pytest.skip("no namespaces here")
        result = client.run(
            bench.request("r1", f"(setsid sleep 3375.{RUN} &); sleep 3376.{RUN}", prefix=prefix, timeout_s=0.4)
        )
        assert result.reason == "timeout"
        assert living(f"3375.{RUN}") + living(f"3376.{RUN}") == []


def test_a_command_that_is_not_there(bench: Bench) -> None:
    with bench.service() as client:
        wanted = bench.request("r1", "").model_copy(update={"command": ("no-such-program",)})
        result = client.run(wanted)
        assert result.exit_code == 127
        assert "no-such-program" in result.stderr.text
        where = client.run(bench.request("r2", "true", cwd="nowhere"))
        assert (where.status, where.exit_code) == ("not_started", None)
        assert "nowhere" in where.reason
        assert client.run(bench.request("r2", "true", cwd="nowhere")).replayed
        assert client.state().free == (0, 1)
    assert bench.kinds("r2") == ["asked", "granted", "released", "replayed"]
    assert bench.row("r2").device_ns() == 0
    assert device_problems(bench.entries(), "solver") == []


def test_a_signal_is_told_as_a_negative_exit_code(bench: Bench) -> None:
    with bench.service() as client:
        assert client.run(bench.request("r1", "kill -SEGV $$")).exit_code == -11


def test_much_output_is_bounded_when_sent_and_whole_on_disk(bench: Bench) -> None:
    with bench.service() as client:
        result = client.run(bench.request("r1", "echo first; head -c 300000 /dev/zero | tr '\\0' x; echo; echo last"))
    assert result.stdout.cut
    assert result.stdout.size == 300012
    assert len(result.stdout.text) < 20_000
    assert result.stdout.text.startswith("first\nxxx")
    assert result.stdout.text.endswith("xxx\nlast\n")
    assert "bytes left out" in result.stdout.text
    assert (bench.jobs / "r1" / "stdout").stat().st_size == 300012


def test_files_of_a_job_are_bounded_and_never_followed(bench: Bench) -> None:
    script = "cd out; mkdir a; echo 12345 > a/small; head -c 5000 /dev/zero > big; ln -s /etc/passwd link; mkfifo pipe"
    with bench.service() as client:
        result = client.run(bench.request("r1", script, output_limit=1000))
        linked = client.run(bench.request("r2", "rmdir out; ln -s /etc out"))
    assert list(result.files) == ["a/small"]
    assert set(result.left_out) == {"big", "link", "pipe"}
    assert "5000 bytes" in result.left_out["big"]
    assert (linked.files, linked.left_out) == ({}, {".": "out is a link"})


def test_a_file_beyond_the_limit_ends_its_writer(bench: Bench) -> None:
    process = bench.start(1, "--file-limit", "100000")
    try:
        result = Client(bench.socket).run(bench.request("r1", "exec head -c 900000 /dev/zero"))
    finally:
        stop(process)
    assert result.exit_code == -25  # SIGXFSZ
    assert result.stdout.size == 100_000


@pytest.mark.parametrize(
    ("field", "value"),
    [("cwd", "../x"), ("cwd", "/etc"), ("id", "../x"), ("id", ""), ("devices", 0), ("source", "abc"), ("timeout_s", 0)],
)
def test_a_wrong_request_is_refused_by_its_field(bench: Bench, field: str, value: object) -> None:
    good = bench.request("r1", "true")
    with pytest.raises(ValueError, match=field):
        Request.model_validate({**good.model_dump(), field: value})
    with bench.service() as client:
        with pytest.raises(TraincheckError, match=field):
            client.run(good.model_copy(update={field: value}))
        assert client.state().running == ()
    assert bench.kinds("r1") == []


def test_jobs_run_side_by_side(bench: Bench) -> None:
    """Each waits for the other: one after the other they would not end."""
    meet = "touch {folder}/{own}; until test -e {folder}/{other}; do sleep 0.01; done"
    import concurrent.futures

    with bench.service() as client, concurrent.futures.ThreadPoolExecutor(2) as pool:
        begin = time.monotonic()
        one = pool.submit(client.run, bench.request("r1", meet.format(folder=bench.folder, own="a", other="b")))
        two = pool.submit(client.run, bench.request("r2", meet.format(folder=bench.folder, own="b", other="a")))
        assert (one.result().exit_code, two.result().exit_code) == (0, 0)
        assert time.monotonic() - begin < 10
