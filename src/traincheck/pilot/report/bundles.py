"""A static site of all transcripts, for readers: what was said, called, answered and submitted. No verdicts.

Everything in it was within a solver's reach or is of its own making. It is looked through before it is written: where
a canary or a private path of a case is found, nothing is written.
"""

from __future__ import annotations

import difflib
import html
from pathlib import Path
from typing import Any, Final

from traincheck.errors import TraincheckError
from traincheck.files import write_whole
from traincheck.pilot import events, leaks
from traincheck.pilot.annotating.packets import Pilot
from traincheck.pilot.annotating.transcripts import transcript
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Entry
from traincheck.pilot.planning import case_folders, load
from traincheck.pilot.report.html import environment
from traincheck.pilot.sources import Objects, SourceMap

FILES: Final = ("index.html", "t-*.html")
_LARGEST: Final = 200_000
"""Bytes of a file whose changes are shown."""


def pages(layout: Layout) -> dict[str, str]:
    """All pages by file name; the same bytes for the same pilot.

    Raises TraincheckError when something private of a case is in them, LedgerError, SourceError.
    """
    pilot = Pilot(layout, load(layout.plan))
    cases = case_folders(pilot.plan, layout.root)
    templates = environment()
    rows: list[dict[str, Any]] = []
    found: dict[str, str] = {}
    for trial in pilot.plan.order:
        entries = pilot.ledgers.get(trial.id)
        row: dict[str, Any] = {"trial": trial, "shown": entries is not None, "events": 0}
        rows.append(row)
        if entries is not None:
            shown = transcript(entries, pilot.device, pilot.objects, trial.id)
            row["events"] = len(shown)
            found[f"{trial.id}.html"] = templates.get_template("trial.html.j2").render(
                plan=pilot.plan, trial=trial, events=shown, changes=_changes(entries, pilot.objects)
            )
    case_rows = [{"name": name, "task": case.task} for name, case in cases.items()]
    found["index.html"] = templates.get_template("index.html.j2").render(plan=pilot.plan, rows=rows, cases=case_rows)
    audit = leaks.Audit(leaks.forbidden(cases.values(), [layout.grading], {}))
    for name, text in found.items():
        audit.text(name, html.unescape(text).encode())
    if audit.leaks:
        raise TraincheckError(
            f"the site would give away what is private: {'; '.join(audit.leaks[:5])}",
            "see the leak audits of the trials",
        )
    return found


def write(layout: Layout, site: Path) -> None:
    """Write the site into an empty folder. Raises what ``pages`` raises, OSError."""
    made = pages(layout)
    site.mkdir(parents=True, exist_ok=True)
    write_whole({site / name: text for name, text in made.items()})


def _changes(entries: list[Entry], objects: Objects) -> list[dict[str, Any]]:
    """What each submission changed in the source before it, as differences of text."""
    found = []
    before: SourceMap | None = None
    for entry in entries:
        event = events.parsed(entry)
        if not isinstance(event, events.Submitted):
            continue
        source = objects.get_map(event.source)
        if before is not None:
            files = [
                {"path": path, "how": how, "text": _difference(path, before, source, objects)}
                for path, how in source.changed_from(before).items()
            ]
            found.append({"number": event.number, "source": event.source, "note": event.note, "files": files})
        before = source
    return found


def _difference(path: str, before: SourceMap, after: SourceMap, objects: Objects) -> str:
    texts = []
    for source in (before, after):
        entry = source.entries.get(path)
        if entry is None or entry.sha256 is None:
            texts.append("")
            continue
        if (entry.size or 0) > _LARGEST:
            return f"{entry.size:,} bytes, SHA-256 {entry.sha256}"
        try:
            texts.append(objects.get(entry.sha256).decode("utf-8"))
        except UnicodeDecodeError:
            return f"no text, SHA-256 {entry.sha256}"
    lines = difflib.unified_diff(texts[0].splitlines(), texts[1].splitlines(), "before", "after", lineterm="")
    return "\n".join(lines)
