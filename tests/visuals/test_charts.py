"""Charts: series are distinguishable, and text is escaped."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from markupsafe import Markup

from hadahash.visuals import charts, templating, thumbnails

HOSTILE = "<script>alert('x')</script>&\""


def test_series_differ_in_more_than_color():
    strokes = [charts.swatch(number).split("stroke=")[1] for number in range(36)]
    assert len(set(strokes)) == 36
    dashes = [re.search(r'dasharray="(.*?)"', stroke)[1] for stroke in strokes]
    assert all(len(set(dashes[start : start + 6])) == 6 for start in range(0, 36, 6))


def test_bars_of_bits_go_up_and_down_from_one_half():
    heights = [
        float(h)
        for h in re.findall(r'<rect .*?height="([\d.]+)', charts.bit_bars([0.5, 1.0, 0.0, 0.75]))
    ]
    assert heights[1] == heights[2] == pytest.approx(2 * heights[3], abs=0.2) and heights[0] < 1


def test_charts_are_well_formed_and_escape_text():
    line = charts.Series(HOSTILE, np.array([0.0, 1.0]), np.array([1.0, 0.0]), [HOSTILE, "b"])
    drawn = [
        charts.line_chart([line], x=HOSTILE, y="y"),
        charts.heat_map(np.eye(3), HOSTILE),
        charts.dot_strip([0.5, 0.6], 0.4, 0.7),
        charts.histogram_bars(np.linspace(-1, 1, 5), np.full(4, 0.25)),
        charts.bit_bars([0.1, 0.9]),
        charts.bit_strip([1, -1]),
        charts.swatch(3),
    ]
    for chart in drawn:
        assert isinstance(chart, Markup) and ElementTree.fromstring(chart).tag == "svg"
        assert "<script" not in chart


def test_tables_escape_text_and_keep_markup():
    source = '{% import "macros.html.j2" as ui %}{{ ui.table(["head"], [(markup, text)]) }}'
    template = templating._environment().from_string(source)
    text = template.render(markup=Markup("<b>x</b>"), text="<b>")
    assert "<td><b>x</b></td><td>&lt;b&gt;</td>" in text


def test_templates_never_disable_escaping():
    folder = Path(templating.__file__).parent / "templates"
    templates = [*folder.rglob("*.j2")]
    assert len(templates) >= 10
    for template in templates:
        text = template.read_text("utf-8")
        assert "safe" not in text and "autoescape" not in text, template.name


@pytest.mark.parametrize("module", [charts, templating, thumbnails])
def test_docstring_examples(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0 and outcome.failed == 0
