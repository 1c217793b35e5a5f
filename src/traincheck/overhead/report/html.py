"""``report.html``: one self-contained page, every value escaped, plots as inline SVG, no script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from traincheck.overhead.report import plots, tables, words


def render(report: Mapping[str, Any]) -> str:
    """The report as HTML; the same bytes for the same content."""
    environment = Environment(
        loader=PackageLoader("traincheck.overhead.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Plots are our own markup, with every name in them escaped where it is put.
    drawn = {
        "slowdowns": Markup(plots.slowdowns(report)),
        "bytes": Markup(plots.bytes_per_step(report)),
        "steps": [(title, Markup(svg)) for title, svg in plots.step_times(report)],
    }
    return environment.get_template("report.html.j2").render(report=report, tables=tables, words=words, plots=drawn)
