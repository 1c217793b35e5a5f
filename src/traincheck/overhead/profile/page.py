"""A profile as tables: for the terminal, and as Markdown."""

from __future__ import annotations

from typing import Any, Final

HEADERS: Final = ("component", ">ms a step", ">share of the window", "how", "what it is")


def rows(mode: dict[str, Any]) -> list[list[str]]:
    """One row a part of the mean watched window, and the window."""
    found = [
        [part["component"], f"{part['ms']:.3f}", f"{part['share']:.2%}", part["how"], part["about"]]
        for part in mode["parts"]
    ]
    return [*found, ["window", f"{mode['window_ms']:.3f}", "100.00%", "", ""]]


def words(mode: dict[str, Any]) -> list[str]:
    """Sentences below a mode's table."""
    one, other, expansion, calls = mode["profiled"], mode["unprofiled"], mode["expansion"], mode["counts"]["calls"]
    test, installed = mode["self_test"], mode["installation"]
    found = [
        f"Window: the training thread's CPU time of a watched step, mean of {one['on']['kept']} of "
        f"{one['on']['windows']} steps; application: mean of {one['off']['kept']} of {one['off']['windows']} "
        f"steps with probes off, in {one['rounds']} rounds. Their difference is known to {one['error_ms']:.3f} ms "
        "(standard error), and so is what is unattributed.",
        f"A step: {sum(calls.values()):,.0f} calls, {sum(mode['counts']['captures'].values()):,.0f} captures, "
        f"{mode['counts']['states']:,.0f} rows of state.",
        f"The profiler: {expansion['spans']:,.0f} spans a step of {expansion['span_ns']:,.0f} ns; its window is "
        f"{expansion['window']:.3f}x the window of the same program without it ({other['on']['thread_ms']:.3f} ms), "
        f"with probes off {expansion['off_window']:.3f}x. Watching costs {one['watching_ms']:.3f} ± "
        f"{one['error_ms']:.3f} ms a step in the profiled run and {other['watching_ms']:.3f} ± {other['error_ms']:.3f} "
        "ms in the unprofiled one.",
        f"Apart: installing {installed['thread_s']:.2f} s of CPU before the first step; other threads "
        f"{one['on']['other_threads_ms']:.3f} ms a step watched, {one['off']['other_threads_ms']:.3f} ms with probes "
        f"off. In the self-test another thread burnt {test['other_thread_ms']:.0f} ms, none of it was counted.",
        f"The witness saw {mode['witness']['calls']:,} calls of TrainCheck's own functions, in steps that "
        f"are not counted ({mode['witness']['steps']}).",
    ]
    if mode["reconciles"]:
        found.append(f"It reconciles: at most {mode['tolerance_ms']:.3f} ms may stay unattributed.")
    else:
        found += [f"It does not reconcile: {fault}." for fault in mode["faults"][:10]]
    return found


def markdown(profile: dict[str, Any], command: str) -> str:
    """The page of a profile."""
    machine = profile["machine"]
    lines = [
        f"# Profile: {profile['study']}",
        "",
        "Shares are shares of the profiled window: where its time went, not what leaving a part out would save.",
        "",
        f"`{command}`",
        "",
        f"TrainCheck {profile['traincheck']}, commit {profile['source']['commit']}"
        f"{' with changes' if profile['source']['dirty'] else ''}; Python {profile['python']}, "
        f"torch {profile['torch']}; {machine['processor']}, {machine['usable_cpus']} CPUs, threads: "
        f"{profile['threads']}; load "
        f"{profile['load']['before'][0]} before, {profile['load']['after'][0]} after.",
    ]
    for mode in profile["modes"]:
        lines += ["", f"## {mode['mode']}", "", "| " + " | ".join(h.removeprefix(">") for h in HEADERS) + " |"]
        lines.append("|" + "|".join("--:" if h.startswith(">") else "---" for h in HEADERS) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in rows(mode)]
        lines += ["", *(f"- {sentence}" for sentence in words(mode))]
    return "\n".join(lines) + "\n"
