"""``report.html``: one self-contained page, every value escaped, plots as inline SVG, no script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from traincheck.pilot.report import plots
from traincheck.pilot.report.sections import sections


def environment() -> Environment:
    """Templates of this folder; everything is escaped, nothing undefined passes."""
    return Environment(
        loader=PackageLoader("traincheck.pilot.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(report: Mapping[str, Any]) -> str:
    """The report as HTML; the same bytes for the same content."""
    # Plots are our own markup, with every name in them escaped where it is put.
    drawn = {"survival": [(title, Markup(svg)) for title, svg in plots.survival(report)]}
    template = environment().get_template("report.html.j2")
    return template.render(report=report, sections=sections(report), plots=drawn)
