"""A device job inside a trial's jail: it sees its snapshot under the jail's path, and nothing of it is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pilot.device_service import RUN, Bench, living
from traincheck.pilot import jail
from traincheck.pilot.device.messages import Request, Workdir

pytestmark = pytest.mark.skipif(not jail.available().ok, reason="no jail can be built by this kernel and user")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[jail.Jail]:
    made = jail.Jail(tmp_path / "trial")
    made.start()
    try:
        yield made
    finally:
        made.stop()


def _request(bench: Bench, place: jail.Jail, name: str, script: str, **more: float) -> Request:
    host = place.root / "jobs" / name
    return bench.request(
        name,
        script,
        prefix=place.job_prefix(),
        workdir=Workdir(host=str(host), inside=place.inside(host)),
        env=place.environment(),
        **more,
    )


def test_a_job_sees_its_snapshot_under_the_jails_path(tmp_path: Path, place: jail.Jail) -> None:
    bench = Bench(tmp_path / "bench")
    (tmp_path / "secret").write_text("secret")
    with bench.service() as client:
        result = client.run(
            _request(bench, place, "r1", f"pwd; cat hello.txt; echo made > out/x; cat {tmp_path}/secret; ls /mnt")
        )
    words = result.stdout.text.split()
    assert words[:2] == [f"{place.inside(place.root / 'jobs')}/r1", "hello"]
    assert "secret" not in words
    assert "No such file" in result.stderr.text
    assert list(result.files) == ["x"]
    assert not (place.root / "jobs" / "r1").exists()


def test_the_time_limit_ends_everything_in_the_jail(tmp_path: Path, place: jail.Jail) -> None:
    bench = Bench(tmp_path / "bench")
    with bench.service() as client:
        result = client.run(
            _request(bench, place, "r1", f"(setsid sleep 3401.{RUN} &); sleep 3402.{RUN}", timeout_s=0.5)
        )
        assert (result.reason, result.exit_code) == ("timeout", -9)
        assert living(f"3401.{RUN}") + living(f"3402.{RUN}") == []
        ended = client.run(_request(bench, place, "r2", f"(setsid sleep 3403.{RUN} &); sleep 0.1"))
        assert (ended.reason, ended.exit_code) == ("exit", 0)
        assert living(f"3403.{RUN}") == []
        assert client.state().free == (0, 1)
