"""Figures: descriptions, drawings and files."""

import logging
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import remask
from remask.errors import MissingPackageError, UnknownNameError
from remask.papers.published import Claim
from remask.reports.comparison import ComparedCell, Comparison, paper_cell
from remask.reports.figures import FIGURES, contrast, page_figures, plot, write_figures
from remask.reports.figures.description import (
    Figure,
    Look,
    Mark,
    Panel,
    Row,
    Systems,
    families,
    mask_name,
    round_range,
)
from remask.reports.figures.drawing import draw
from remask.store import Cell, TrialRecord, summarise
from tests.store.store_samples import (
    NAN,
    curve_with_drop,
    diverged,
    failed,
    make_config,
    make_record,
    trial_with_accuracy,
)

matplotlib = pytest.importorskip("matplotlib")

_INF = -math.inf
_SWEPT = (_INF, -1e9, -1e6, -1e3, -10.0, -5.0, -2.0, -1.0, 0.0)


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn, but not rendered, which takes most of the time."""
    monkeypatch.setattr("remask.reports.figures.rendered", lambda drawing, kind: b"")


def _trials(level: float, seeds: int = 2, **settings: Any) -> list[TrialRecord]:
    """Two tasks of two classes; trial s is s times 4 points better than trial 0 at the end."""
    return [
        make_record(
            make_config(seed=seed, **settings),
            class_il=[[99.0, NAN], [level + 4 * seed, level + 10]],
            task_il=[[99.0, NAN], [98.0, 90.0 + seed]],
            confidence=[level / 100, 0.5, 0.25 + min(seed, 1) / 2, 1.0],
        )
        for seed in range(seeds)
    ]


def _contrast(**settings: Any) -> list[Cell]:
    return summarise(
        [
            *_trials(40, mask=None, **settings),
            *_trials(50, mask=_INF, **settings),
            *_trials(60, mask=-1.0, **settings),
        ]
    )


def _sweep(masks: Sequence[float | None] = (None, *_SWEPT), **settings: Any) -> list[Cell]:
    return summarise(
        [
            record
            for number, mask in enumerate(masks)
            for record in _trials(40 + number, mask=mask, method="derpp", **settings)
        ]
    )


def _large(tasks: int, classes: int, mask: float | None) -> list[TrialRecord]:
    matrix = [[90.0 - j + k if k <= j else NAN for k in range(tasks)] for j in range(tasks)]
    sure = np.linspace(0.1, 0.9, classes).tolist()
    return [
        make_record(
            make_config(mask=mask, seed=seed), class_il=matrix, task_il=matrix, confidence=sure
        )
        for seed in range(2)
    ]


def _described(
    name: str,
    cells: Sequence[Cell],
    setting: str = "class_il",
    compared: Sequence[ComparedCell] = (),
) -> Figure:
    """The figure as the page has it."""
    systems = Systems(cells, compared)
    return FIGURES[name](systems.rows(cells), setting, systems)


def _printed(name: str, cells: Sequence[Cell]) -> Figure:
    """The figure as print has it: a row per method with and without a mask."""
    rows = [row for family in families(cells) if (row := contrast(family))]
    return FIGURES[name](rows, "class_il", Systems(cells))


def _heights(panel: Panel) -> dict[str, list[float | None]]:
    return {mark.name: list(mark.y) for mark in panel.marks}


def _mark(panel: Panel, name: str) -> Mark:
    (mark,) = [mark for mark in panel.marks if mark.name == name]
    return mark


def _texts(drawing: Any) -> list[str]:
    """Everything that is written in a drawing."""
    return [text.get_text() for text in drawing.findobj(matplotlib.text.Text) if text.get_text()]


def test_without_results_nothing_is_written(tmp_path: Path) -> None:
    assert write_figures([], tmp_path / "none") == []
    cells = summarise([failed(), diverged(make_config(mask=_INF))])
    assert write_figures(cells, tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
@pytest.mark.thorough
def test_every_figure_is_written_as_svg_and_png_and_the_same_the_second_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = dict(matplotlib.rcParams)
    cells = _sweep(buffer=20)
    paths = write_figures(cells, tmp_path / "new" / "folder")
    names = ["confidence-b20", "accuracy-over-tasks-b20", "mask-sweep", "matrices-b20"]
    assert [path.name for path in paths] == [
        f"split-digits-{name}.{kind}"
        for name in (*names, "stability-plasticity")
        for kind in ("svg", "png")
    ]
    for svg in paths[::2]:
        text = " ".join(ElementTree.parse(svg).getroot().itertext())
        assert all(name in text for name in ("split-digits", "2 trials", "DER++"))
    again = write_figures(cells, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]
    assert dict(matplotlib.rcParams) == settings
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_without_matplotlib_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(MissingPackageError, match="need matplotlib: pip install matplotlib"):
        write_figures(_contrast(), tmp_path)


def test_confidence_is_in_percent_by_class_and_accuracy_is_that_after_the_last_task() -> None:
    sure, right = _described("confidence", _contrast()).panels
    assert list(_heights(sure)) == ["ER", "MSER(-inf)", "MSER(-1)"]
    assert _heights(sure)["ER"] == pytest.approx([40, 50, 50, 100])
    assert _heights(sure)["MSER(-1)"] == pytest.approx([60, 50, 50, 100])
    assert _mark(sure, "ER").std == pytest.approx([0, 0, 25, 0])  # 0.25 and 0.75
    assert sure.x.places == ("0", "1", "2", "3")
    assert sure.x.spans == ((0, 2, "task 1"), (2, 4, "task 2"))
    assert _heights(right)["ER"] == pytest.approx([42, 50])
    assert _mark(right, "ER").note == ""
    assert _mark(sure, "ER").note == "ER 45 → 75\N{NO-BREAK SPACE}%"


def _learning(tasks: Any, names: Any, level: float = 40, **settings: Any) -> list[TrialRecord]:
    """Trials of two tasks and four classes, with and without a mask."""
    return [
        record.model_copy(update={"tasks": tasks, "class_names": names})
        for mask in (None, _INF)
        for record in _trials(level, mask=mask, **settings)
    ]


def test_classes_are_in_the_order_of_learning_with_their_names() -> None:
    cells = summarise(_learning(((3, 1, 0), (2,)), ("ant", "bee", "cat", "a very long name")))
    figure = _described("confidence", cells)
    assert _heights(figure.panels[0])["ER"] == pytest.approx([100, 50, 40, 50])
    assert figure.panels[0].x.places == ("a very long name", "bee", "ant", "cat")
    assert figure.panels[0].x.where[2] == "class ant, task 1"
    left = draw(figure).axes[0]
    names = [label.get_text() for label in left.get_xticklabels()]
    assert names == ["a very long…", "bee", "ant", "cat"]
    assert {"task 1", "task 2"} <= {text.get_text() for text in left.texts}


def test_cells_with_other_tasks_or_settings_are_never_paired() -> None:
    old = [r for r in _learning(((0, 1), (2, 3)), tuple("abcd")) if r.config.mask is None]
    new = [r for r in _learning(((3, 2), (1, 0)), tuple("abcd")) if r.config.mask is not None]
    cells = summarise([*old, *new])
    assert [contrast(family) for family in families(cells)] == [None, None]
    figure = _described("accuracy-over-tasks", cells)
    assert {len(panel.marks) for panel in figure.panels} == {1}
    other = summarise([*_trials(40, mask=None, lr=0.1), *_trials(50, mask=_INF, lr=0.2)])
    assert [contrast(family) for family in families(other)] == [None, None]


def test_accuracy_over_tasks_has_the_mean_of_tasks_seen_and_each_but_the_last_task() -> None:
    seen, first = _described("accuracy-over-tasks", _contrast()).panels
    assert [seen.title, first.title] == ["All tasks so far", "Task 1"]
    assert _heights(seen)["ER"] == pytest.approx([99, 46])
    assert _heights(first)["ER"] == pytest.approx([99, 42])
    assert _mark(first, "ER").std == pytest.approx([0, 2])
    assert first.x.where[1] == "task 1, after task 2"
    assert _mark(seen, "ER").note == "ER 99.0 → 42.0\N{NO-BREAK SPACE}%"


def test_a_heat_map_has_its_numbers_in_the_cells_and_none_where_nothing_was_measured() -> None:
    figure = _described("matrices", _contrast())
    assert [panel.title for panel in figure.panels] == ["ER", "MSER(-inf)", "MSER(-1)"]
    (mark,) = figure.panels[0].marks
    assert (mark.x, mark.y, mark.values) == ((0, 0, 1), (0, 1, 1), (99, 42, 50))
    drawing: Any = draw(figure)
    plain, masked = drawing.axes[:2]
    assert masked.get_title() == f"MSER({mask_name(_INF)})"
    written = {text.get_position(): text.get_text() for text in plain.texts}
    assert written == {(0, 0): "99.0", (0, 1): "42.0", (1, 1): "50.0"}
    assert len({axes.images[0].get_clim() for axes in (plain, masked)}) == 1


def test_a_sweep_has_masks_in_order_means_a_spread_and_the_level_without_a_mask() -> None:
    cells = _sweep()
    (panel,) = _described("mask-sweep", cells).panels
    assert panel.x.places == tuple(mask_name(mask) for mask in _SWEPT)
    assert panel.title == "MSDER++(m), buffer 200"
    # A_T of mask number n is the mean of 40 + n + 2 and 40 + n + 10; its std is half of 2.
    far, swept, level = panel.marks
    assert (far.x, far.y) == ((0,), (47,))
    assert (swept.x, swept.y) == (tuple(range(1, 9)), tuple(range(48, 56)))
    assert set(swept.std) == {1}
    assert swept.sources[-1].label == "MSDER++(0)"
    assert (level.kind, level.y) == ("level", (46,))
    assert swept.note.startswith("MSDER++, buffer 200, m = 0: 55.00")
    (panel,) = _described("mask-sweep", cells, "task_il").panels
    assert panel.marks[-1].y == (94.25,)


def test_a_sweep_shows_published_figures() -> None:
    cells = _sweep()
    claim = Claim("split-digits", "derpp", -1.0, 200, "class-il", "A_T", 51.5, 0.5, 10, "paper")
    (ours,) = [cell for cell in cells if cell.config.mask == -1.0]
    compared = ComparedCell(paper_cell(ours), ours, {"class_il_A_T": Comparison(claim, None)})
    (panel,) = _described("mask-sweep", cells, compared=[compared]).panels
    published = panel.marks[-1]
    assert (published.kind, published.x, published.y) == ("points", (7,), (51.5,))
    assert (published.sources[0].label, published.sources[0].trials) == (
        "MSDER++(-1), published",
        10,
    )


def test_a_system_has_one_look_in_all_figures_and_the_paper_s_have_the_first() -> None:
    cells = [*_sweep(), *_contrast()]
    looks = Systems(cells).looks
    assert list(looks)[:3] == ["DER++", "MSDER++(-inf)", "MSDER++(-1e9)"]  # by family and mask
    clearest = ["ER", "MSER(-inf)", "DER++", "MSDER++(-inf)"]
    assert [looks[name] for name in clearest] == [Look.number(n) for n in range(4)]
    assert len(set(looks.values())) == len(looks)
    for name in ("confidence", "accuracy-over-tasks", "stability-plasticity"):
        marks = [mark for panel in _described(name, cells).panels for mark in panel.marks]
        assert all(mark.look == looks[mark.sources[0].label] for mark in marks)


@pytest.mark.slow
@pytest.mark.thorough
def test_nothing_that_is_written_is_cut_off() -> None:
    many = [cell for buffer in (20, 50, 500) for cell in _sweep(buffer=buffer)]
    for cells in (_contrast(), many):
        for name in FIGURES:
            if (drawing := plot(cells, name)) is None:
                continue
            drawing.draw_without_rendering()
            drawn = drawing.get_tightbbox().padded(-0.02)  # inches
            assert min(*drawn.p0) >= 0, name
            assert (drawn.p1 <= drawing.get_size_inches()).all(), name
            for axes in (axes for axes in drawing.axes if axes.images and axes.get_title()):
                side = axes.get_window_extent().width / 2  # two tasks
                assert all(text.get_window_extent().width < 0.9 * side for text in axes.texts)


def test_one_trial_has_no_spread() -> None:
    cells = summarise([*_trials(40, seeds=1, mask=None), *_trials(50, seeds=3, mask=_INF)])
    assert "1 to 3 trials" in _described("stability-plasticity", cells).summary
    cells = summarise([*_trials(40, seeds=1, mask=None), *_trials(50, seeds=1, mask=_INF)])
    figure = _described("accuracy-over-tasks", cells)
    assert figure.summary == "split-digits, buffer 200: Class-IL, mean over 1 trial"
    assert {std for panel in figure.panels for mark in panel.marks for std in mark.std} == {None}
    assert not any("±" in text for text in _texts(draw(figure)))


def test_other_settings_and_buffers_have_a_row_of_their_own_with_a_title() -> None:
    levels = ((0.1, 20), (0.2, 70))
    masked = [(lr, level, mask) for lr, level in levels for mask in (None, _INF)]
    cells = summarise(r for lr, level, mask in masked for r in _trials(level, mask=mask, lr=lr))
    titles = [row.title for row in families(cells)]
    assert titles == ["lr=0.1", "lr=0.2"]
    figure = _printed("confidence", cells)
    right = [panel for panel in figure.panels if not panel.x.spans]
    assert [panel.row for panel in right] == [0, 1]
    assert [_heights(panel)["ER"][0] for panel in right] == pytest.approx([22, 72])
    assert {*titles} <= {*_texts(draw(figure, titles))}
    drawing = plot([*_contrast(buffer=20), *_contrast(buffer=500)], "confidence")
    assert {"split-digits, buffer 20", "split-digits, buffer 500"} <= {*_texts(drawing)}


def test_results_plot_what_the_page_describes() -> None:
    cells = _contrast()
    results = remask.Results([record for cell in cells for record in cell.records])
    drawing = results.plot("accuracy-over-tasks", "task_il")
    seen, first = _described("accuracy-over-tasks", cells, "task_il").panels
    for axes, panel in zip(drawing.axes, (seen, first), strict=True):
        lines = [(line.get_label(), line) for line in axes.lines]
        lines += [(bars.get_label(), bars.lines[0]) for bars in axes.containers]
        drawn = {name: y.get_ydata().tolist() for name, y in lines if name != "_nolegend_"}
        assert drawn == {name: list(heights) for name, heights in _heights(panel).items()}


def test_a_plot_of_nothing_is_none_and_an_unknown_one_is_refused_with_the_nearest() -> None:
    assert plot([], "confidence") is None
    with pytest.raises(UnknownNameError, match="did you mean 'mask-sweep'"):
        plot(_contrast(), "mask-sweeps")
    with pytest.raises(UnknownNameError, match="did you mean 'task_il'"):
        plot(_contrast(), "confidence", "task-il")


@pytest.mark.usefixtures("unrendered")
def test_a_sweep_has_three_masks_or_more_and_at_most_three_panels_in_a_row(tmp_path: Path) -> None:
    names = [path.stem for path in write_figures(_sweep((_INF, -1.0)), tmp_path)]
    assert set(names) == {"split-digits-stability-plasticity"}
    buffers = (200, 300, 400, 500)
    cells = [c for b in buffers for c in _sweep((_INF, -2.0, 0.0), buffer=b, benchmark="my:digits")]
    names = [path.stem for path in write_figures(cells, tmp_path) if path.suffix == ".svg"]
    assert names == ["my-digits-mask-sweep", "my-digits-stability-plasticity"]
    drawing = draw(_described("mask-sweep", cells))
    assert [len(part.axes) for part in drawing.subfigs] == [3, 3]  # the last two are empty


@pytest.mark.usefixtures("unrendered")
def test_twenty_tasks_and_two_hundred_classes_have_room(tmp_path: Path) -> None:
    cells = summarise([*_large(20, 200, None), *_large(20, 200, _INF)])
    assert len(write_figures(cells, tmp_path)) == 8
    figure = _described("confidence", cells)
    assert (len(figure.panels[0].marks[0].y), figure.panels[0].std_as) == (200, "band")
    assert len(draw(figure).axes[0].get_xticklabels()) < 30
    assert len(draw(_described("matrices", cells)).axes[0].texts) == 0
    accuracy = _described("accuracy-over-tasks", cells)
    assert [panel.title for panel in accuracy.panels[1::4]] == ["Task 1", "Task 19"]
    assert "5 of 20 tasks are drawn" in accuracy.remark


@pytest.mark.usefixtures("unrendered")
def test_what_was_not_measured_leaves_a_gap_and_no_warning(tmp_path: Path) -> None:
    """No confidence, no accuracy before the last task, no Task-IL: only three figures are left."""
    matrix, nothing = [[NAN, NAN], [50.0, 60.0]], [[NAN, NAN], [NAN, NAN]]
    cells = summarise(
        [
            make_record(make_config(mask=mask), class_il=matrix, task_il=nothing, confidence=())
            for mask in (None, _INF, -2.0, -1.0)
        ]
    )
    names = [path.stem for path in write_figures(cells, tmp_path) if path.suffix == ".svg"]
    assert names == [
        "split-digits-confidence-b200",
        "split-digits-mask-sweep",
        "split-digits-matrices-b200",
    ]


def test_names_that_look_like_markup_are_printed_verbatim() -> None:
    cells = [replace(cell, label="$\\frac{1}$ <b>") for cell in summarise(_trials(40, mask=None))]
    row = Row(tuple(cells))
    drawing = draw(FIGURES["confidence"]([row], "class_il", Systems(cells)))
    drawing.draw_without_rendering()
    assert "$\\frac{1}$ <b>" in _texts(drawing)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (0, 100, 25)),
        ([84.4, 89.2], (84, 90, 2)),
        ([50.0], (49, 51, 0.5)),
        ([99.9, 100.0], (98.5, 100, 0.5)),
    ],
)
def test_ranges_have_round_ends(values: list[float], expected: tuple[float, float, float]) -> None:
    assert round_range(values) == pytest.approx(expected)


def test_masks_are_typeset() -> None:
    masks = (_INF, -1e9, -1e12, -100.0, -2.5, -2000.0, -0.0)
    assert " ".join(map(mask_name, masks)) == "−∞ −10⁹ −10¹² −100 −2.5 −2000 0"  # noqa: RUF001


# Within tasks


def _measured(mask: float | None, drop: float, **settings: Any) -> list[TrialRecord]:
    """Two trials of three tasks of 100 steps; of the second, old tasks fall 2 points further."""
    matrix = [[90.0 if k <= j else NAN for k in range(3)] for j in range(3)]
    return [
        make_record(
            make_config(seed=seed, mask=mask, evaluate_every=5, **settings),
            class_il=matrix,
            task_il=matrix,
            confidence=[0.5] * 6,
            curve=curve_with_drop(3, 90.0, drop + 2 * seed),
        )
        for seed in range(2)
    ]


def test_old_tasks_are_drawn_from_just_before_each_switch() -> None:
    cells = summarise([*_measured(None, 10.0), *_measured(_INF, 1.0)])
    (panel,) = _described("accuracy-within-tasks", cells).panels
    # The end of task 1, 5 steps after the switch, the end of task 2; then the same again.
    assert panel.x.places == ("100", "105", "200", "200", "205", "300")
    assert panel.x.spans == ((0, 3, "task 2"), (3, 6, "task 3"))
    assert panel.x.where[:3] == (
        "tasks before 2, at the end of task 1",
        "tasks before 2, 5 steps into task 2",
        "tasks before 2, 100 steps into task 2",
    )
    assert [mark.name for mark in panel.marks] == ["ER", "MSER(-inf)", "", ""]
    assert [mark.y for mark in panel.marks] == [
        (90.0, 79.0, 90.0),
        (90.0, 88.0, 90.0),
        (90.0, 79.0, 90.0),
        (90.0, 88.0, 90.0),
    ]
    assert panel.marks[0].std == (0.0, 1.0, 0.0)
    assert [mark.x for mark in panel.marks] == [(0, 1, 2)] * 2 + [(3, 4, 5)] * 2


def test_figures_without_data_are_omitted() -> None:
    cells = _contrast()
    keys = {figure["key"] for figure in page_figures(cells, Systems(cells))}
    assert not keys & {"accuracy-within-tasks", "losses", "confusion"}
    assert plot(cells, "accuracy-within-tasks") is None
    measured = summarise([*_measured(None, 10.0), *_measured(_INF, 1.0)])
    figures = page_figures(measured, Systems(measured))
    settings = [f["setting"] for f in figures if f["key"] == "accuracy-within-tasks"]
    assert settings == ["class_il", "task_il"]


def test_losses_have_a_panel_per_term_and_the_systems_that_have_it() -> None:
    def logged(mask: float | None, seed: int, names: list[str]) -> TrialRecord:
        values = [[point + seed, 150.0][: len(names)] for point in (3.0, 2.0, 1.0)]
        losses = {"names": names, "steps": [10, 20, 30], "learning": [0, 0, 1], "values": values}
        return make_record(make_config(mask=mask, seed=seed), losses=losses)

    records = [logged(None, seed, ["loss"]) for seed in (0, 2)]
    cells = summarise(records + [logged(_INF, seed, ["loss", "replay"]) for seed in (0, 2)])
    total, replay = _described("losses", cells).panels
    assert (total.title, replay.title) == ("loss", "replay")
    assert total.x.spans == ((0, 2, "task 1"), (2, 3, "task 2"))
    assert [(mark.y, mark.std) for mark in total.marks] == [((4.0, 3.0, 2.0), (1.0, 1.0, 1.0))] * 2
    assert [mark.name for mark in replay.marks] == ["MSER(-inf)"]
    drawing = plot(cells, "losses")
    assert drawing is not None
    assert drawing.axes[1].get_ylim()[1] > 150  # no percentages


def test_a_confusion_matrix_is_the_mean_share_of_predictions_in_the_order_of_learning() -> None:
    first = [[4, 0, 0, 0], [0, 2, 2, 0], [0, 0, 4, 0], [1, 0, 0, 3]]
    second = [[2, 2, 0, 0], [0, 4, 0, 0], [0, 0, 4, 0], [0, 0, 0, 4]]
    records = [
        make_record(make_config(seed=seed), answers={"confusion": counts}, tasks=((2, 0), (1, 3)))
        for seed, counts in enumerate((first, second))
    ]
    (panel,) = _described("confusion", summarise(records)).panels
    assert panel.x.places == ("2", "0", "1", "3")
    (heat,) = panel.marks
    found = dict(zip(zip(heat.y, heat.x, strict=True), heat.values, strict=True))
    assert found == {
        **{(0, 0): 100.0, (1, 1): 75.0, (1, 2): 25.0},
        **{(2, 2): 75.0, (2, 0): 25.0, (3, 3): 87.5, (3, 1): 12.5},
    }
    assert plot(summarise(records), "confusion") is not None


def test_the_confusion_matrix_of_different_tasks_or_many_classes_is_of_tasks() -> None:
    counts = [[8, 0, 2, 0], [0, 10, 0, 0], [0, 0, 10, 0], [0, 0, 0, 10]]
    records = [
        make_record(
            make_config(seed=seed, class_order="seed"), answers={"confusion": counts}, tasks=tasks
        )
        for seed, tasks in enumerate((((0, 1), (2, 3)), ((3, 2), (1, 0))))
    ]
    (cell,) = summarise(records)
    (panel,) = _described("confusion", [cell]).panels
    assert panel.x.places == ("task 1", "task 2")
    assert panel.marks[0].values == pytest.approx((95.0, 5.0, 5.0, 95.0))
    many = np.eye(22, dtype=int).tolist()
    record = make_record(confidence=[0.5] * 22, answers={"confusion": many})
    (panel,) = _described("confusion", summarise([record])).panels
    assert panel.x.places == ("task 1", "task 2")


def test_the_settings_of_a_sweep_are_drawn_by_validation_where_data_was_held_out() -> None:
    def held_out(lr: float, alpha: float, accuracy: float) -> TrialRecord:
        config = make_config(method="derpp", lr=lr, alpha=alpha, beta=0.5, validation=0.2)
        return trial_with_accuracy(config, 50.0, validation=accuracy)

    grid = [(0.1, 0.2, 60.0), (0.1, 0.5, 70.0), (1.0, 0.2, 65.0), (1.0, 0.5, 55.0)]
    figure = _described("settings", summarise([held_out(*each) for each in grid]))
    lr, alpha = figure.panels
    assert (figure.of_test, lr.title, alpha.title) == (
        False, "Accuracy against lr", "Accuracy against alpha",
    )  # fmt: skip
    assert lr.x.places == ("0.1", "1")
    assert _heights(lr) == {"DER++, alpha=0.2": [60.0, 65.0], "DER++, alpha=0.5": [70.0, 55.0]}
    assert _heights(alpha) == {"DER++, lr=0.1": [60.0, 70.0], "DER++, lr=1.0": [65.0, 55.0]}
    tested = summarise([trial_with_accuracy(make_config(lr=lr), 50.0) for lr in (0.1, 0.2)])
    (panel,) = _described("settings", tested).panels
    assert panel.y.title == "final accuracy (%)"
    assert not _described("settings", _contrast()).panels
