"""Figures for print: what is drawn where, and what is written down."""

import importlib
import logging
import math
import struct
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from remask.errors import MissingPackageError
from remask.reports.figures import (
    accuracy_figure,
    confidence_figure,
    mask_sweep_figure,
    matrices_figure,
    stability_plasticity_figure,
    write_figures,
)
from remask.reports.figures.data import MINUS, Family, families, mask_name
from remask.reports.figures.style import rendered
from remask.results import Cell, TrialRecord, summarise
from tests.results.store_samples import NAN, diverged, failed, make_config, make_record

matplotlib = pytest.importorskip("matplotlib")

_INF = -math.inf
_SWEPT = (_INF, -1e9, -1e6, -1e3, -10.0, -5.0, -2.0, -1.0, 0.0)


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


def _only(cells: Sequence[Cell]) -> Family:
    (family,) = families(cells)
    return family


def _panels(figure: Any) -> list[Any]:
    """Its axes; what matplotlib's stubs say of their parts is too little to check them."""
    return list(figure.axes)


def _heights(line: Any) -> list[float]:
    return [float(value) for value in line.get_ydata()]


def _lines(axes: Any) -> dict[str, list[float]]:
    """The heights of the lines that have a name."""
    named = {line.get_label(): _heights(line) for line in axes.lines}
    bars = {bar.get_label(): _heights(bar.lines[0]) for bar in axes.containers}
    return {name: heights for name, heights in {**named, **bars}.items() if name[:1] != "_"}


def _reach(collection: Any) -> list[tuple[float, float]]:
    """The lowest and highest point of each segment or band of a collection."""
    return [
        (float(path.vertices[:, 1].min()), float(path.vertices[:, 1].max()))
        for path in collection.get_paths()
    ]


def test_of_nothing_nothing_is_written(tmp_path: Path) -> None:
    assert write_figures([], tmp_path / "none") == []
    cells = summarise([failed(), diverged(make_config(mask=_INF))])
    assert write_figures(cells, tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_every_figure_is_written_as_svg_and_png_and_the_same_the_second_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = dict(matplotlib.rcParams)
    cells = _sweep(buffer=20)
    paths = write_figures(cells, tmp_path / "new" / "folder")
    names = [
        "split-digits-confidence-b20",
        "split-digits-accuracy-over-tasks-b20",
        "split-digits-matrices-b20",
        "split-digits-mask-sweep",
        "split-digits-stability-plasticity",
    ]
    assert [path.name for path in paths] == [
        f"{name}.{kind}" for name in names for kind in ("svg", "png")
    ]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(
        path.name for path in paths
    )
    for path in paths:
        if path.suffix == ".png":
            data = path.read_bytes()
            assert data[:8] == b"\x89PNG\r\n\x1a\n"
            width, height = struct.unpack(">II", data[16:24])
            assert 600 <= width <= 1400
            assert 400 <= height <= 2000
        else:
            text = " ".join(ElementTree.parse(path).getroot().itertext())
            assert "split-digits" in text
            assert "2 trials" in text
            assert "DER++" in text
    again = write_figures(cells, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]
    assert dict(matplotlib.rcParams) == settings
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_without_matplotlib_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    cells = _contrast()
    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(MissingPackageError, match=r"^figures need matplotlib: pip install 'rem"):
        write_figures(cells, tmp_path)


def test_confidence_is_in_percent_by_class_and_accuracy_is_that_after_the_last_task() -> None:
    figure = confidence_figure([_only(_contrast())])
    left, right = _panels(figure)
    sure = _lines(left)
    assert list(sure) == ["ER", "MSER(−∞)", "MSER(−1)"]  # noqa: RUF001 - as print has it
    assert sure["ER"] == pytest.approx([40, 50, 50, 100])
    assert sure["MSER(−1)"] == pytest.approx([60, 50, 50, 100])  # noqa: RUF001
    assert _lines(right)["ER"] == pytest.approx([42, 50])
    # 0.25 and 0.75: a mean of 50 %, a standard deviation of 25 points
    bars = left.containers[0].lines[2][0]
    assert np.array(_reach(bars)[2]) == pytest.approx([25, 75])
    assert [label.get_text() for label in left.get_xticklabels()] == ["0", "1", "2", "3"]
    assert [label.get_text() for label in left.get_xticklabels(minor=True)] == ["task 1", "task 2"]


def _learning(tasks: Any, names: Any, level: float = 40, **settings: Any) -> list[TrialRecord]:
    """Trials of two tasks and four classes, with and without a mask."""
    return [
        record.model_copy(update={"tasks": tasks, "class_names": names})
        for mask in (None, _INF)
        for record in _trials(level, mask=mask, **settings)
    ]


def test_classes_stand_in_the_order_in_which_they_were_learnt_under_their_names() -> None:
    cells = summarise(_learning(((3, 1, 0), (2,)), ("ant", "bee", "cat", "a very long name")))
    left = confidence_figure([_only(cells)]).axes[0]
    assert _lines(left)["ER"] == pytest.approx([100, 50, 40, 50])
    names = [label.get_text() for label in left.get_xticklabels()]
    assert names == ["a very long…", "bee", "ant", "cat"]
    assert [label.get_text() for label in left.get_xticklabels(minor=True)] == ["task 1", "task 2"]


def test_where_the_tasks_are_not_known_a_sentence_says_so_instead_of_a_guess() -> None:
    left, right = _panels(confidence_figure([_only(summarise(_learning(None, None)))]))
    assert not left.axison
    assert _lines(left) == {}
    assert "do not say which classes" in " ".join(left.texts[0].get_text().split())
    assert _lines(right)["ER"] == pytest.approx([42, 50])


def test_cells_that_learnt_other_tasks_are_never_contrasted() -> None:
    old = [r for r in _learning(((0, 1), (2, 3)), tuple("abcd")) if r.config.mask is None]
    new = [r for r in _learning(((3, 2), (1, 0)), tuple("abcd")) if r.config.mask is not None]
    found = families(summarise([*old, *new]))
    assert [family.contrasted for family in found] == [(), ()]


def test_accuracy_over_tasks_has_the_mean_of_tasks_seen_and_each_task_with_its_band() -> None:
    figure = accuracy_figure([_only(_contrast())])
    seen, first, second = _panels(figure)
    assert _lines(seen)["ER"] == pytest.approx([99, 46])
    assert _lines(first)["ER"] == pytest.approx([99, 42])
    assert _lines(second)["ER"] == pytest.approx([50])
    band = first.collections[0].get_paths()[0].vertices
    assert {round(float(y), 9) for x, y in band if x == 2} == {40.0, 44.0}
    assert [axes.get_title().strip() for axes in figure.axes] == [
        "all tasks so far",
        "task 1",
        "task 2",
    ]


def test_a_heat_map_has_its_numbers_in_the_cells_and_none_where_nothing_was_measured() -> None:
    figure = matrices_figure([_only(_contrast())])
    plain, masked = _panels(figure)[:2]
    assert plain.get_title() == "ER"
    assert masked.get_title() == "MSER(−∞)"  # noqa: RUF001
    written = {text.get_position(): text.get_text() for text in plain.texts}
    assert written == {(0, 0): "99.0", (0, 1): "42.0", (1, 1): "50.0"}
    shown = np.ma.filled(plain.images[0].get_array(), np.nan)
    assert np.isnan(shown[0, 1])
    assert shown[1].tolist() == [42.0, 50.0]
    assert len({axes.images[0].get_clim() for axes in (plain, masked)}) == 1


def test_numbers_in_a_heat_map_stand_out_from_their_cells() -> None:
    for axes in _panels(matrices_figure([_only(_contrast())]))[:3]:
        image = axes.images[0]
        for text in axes.texts:
            column, row = text.get_position()
            cell = image.cmap(image.norm(image.get_array()[int(row), int(column)]))
            assert _contrast_ratio(cell, matplotlib.colors.to_rgb(text.get_color())) > 3.5


def _contrast_ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """As WCAG defines it, from 1 to 21."""

    def luminance(colour: Sequence[float]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_a_sweep_has_masks_in_order_means_a_band_and_the_level_without_a_mask() -> None:
    figure = mask_sweep_figure([_only(_sweep())])
    class_il, task_il = _panels(figure)
    labels = [label.get_text() for label in task_il.get_xticklabels()]
    assert labels == [mask_name(mask) for mask in _SWEPT]
    # A_T of mask number n is the mean of 40 + n + 2 and 40 + n + 10; its std is half of 2.
    means = [46.0 + number for number in range(1, 10)]
    (swept,) = [line for line in class_il.lines if len(line.get_xdata()) == 8]
    assert _heights(swept) == pytest.approx(means[1:])
    assert list(swept.get_xdata()) == list(range(1, 9))
    alone = class_il.containers[0].lines[0]
    assert (alone.get_xdata()[0], alone.get_ydata()[0]) == (0, pytest.approx(means[0]))
    (band,) = [c for c in class_il.collections if len(c.get_paths()[0].vertices) > 8]
    edges = band.get_paths()[0].vertices
    assert {round(float(y), 9) for x, y in edges if x == 8} == {means[8] - 1, means[8] + 1}
    (level,) = [line for line in class_il.lines if line.get_linestyle() == ":"]
    assert _heights(level) == pytest.approx([46, 46])
    assert "DER++" in [text.get_text() for text in class_il.texts]
    (level,) = [line for line in task_il.lines if line.get_linestyle() == ":"]
    assert _heights(level) == pytest.approx([94.25, 94.25])


def test_two_masks_are_no_sweep(tmp_path: Path) -> None:
    names = [path.name for path in write_figures(_sweep((_INF, -1.0)), tmp_path)]
    assert names == [f"split-digits-stability-plasticity.{kind}" for kind in ("svg", "png")]


def test_a_sweep_without_minus_infinity_has_no_break_and_one_line() -> None:
    figure = mask_sweep_figure([_only(_sweep((-10.0, -2.0, 0.0)))])
    assert [len(line.get_xdata()) for line in _panels(figure)[0].lines] == [3]


def test_stability_and_plasticity_are_where_the_metrics_say_with_their_spread() -> None:
    cells = _contrast()
    figure = stability_plasticity_figure(cells)
    assert figure is not None
    (axes,) = _panels(figure)
    for cell, bars in zip(cells, axes.containers, strict=True):
        point, _, (across, up) = bars.lines
        fallen, learnt = cell.spreads["class_il_F_T"], cell.spreads["class_il_plasticity"]
        assert point.get_xdata()[0] == pytest.approx(100 - fallen.mean)
        assert point.get_ydata()[0] == pytest.approx(learnt.mean)
        (ends,) = across.get_segments()
        assert ends[:, 0] == pytest.approx(
            [100 - fallen.mean - fallen.std, 100 - fallen.mean + fallen.std]
        )
        assert _reach(up)[0] == pytest.approx((learnt.mean - learnt.std, learnt.mean + learnt.std))


def test_names_of_systems_in_the_plane_do_not_overlap_and_lie_inside() -> None:
    cells = [*_sweep(), *_contrast(), *_contrast(method="gem", buffer=500)]
    figure = stability_plasticity_figure(cells)
    assert figure is not None
    figure.draw_without_rendering()
    (axes,) = _panels(figure)
    named = [text for text in axes.texts if "ER" in text.get_text() or "GEM" in text.get_text()]
    assert len(named) >= 10
    boxes = [text.get_window_extent() for text in named]
    for one, other in combinations(boxes, 2):
        assert not one.padded(-0.5).overlaps(other.padded(-0.5))
    inside = axes.get_window_extent().padded(1)
    assert all(inside.contains(*box.p0) and inside.contains(*box.p1) for box in boxes)


def test_nothing_that_is_written_is_cut_off() -> None:
    contrast, sweep = [_only(_contrast())], [_only(_sweep(buffer=b)) for b in (20, 50, 500)]
    figures = [
        confidence_figure(contrast),
        accuracy_figure(contrast),
        matrices_figure(contrast),
        mask_sweep_figure(sweep),
    ]
    for figure in figures:
        figure.draw_without_rendering()
        drawn = figure.get_tightbbox().padded(-0.01)  # inches
        assert min(*drawn.p0) >= 0
        assert (drawn.p1 <= figure.get_size_inches()).all()
        for axes in figure.axes:
            if legend := axes.get_legend():
                assert figure.bbox.contains(*legend.get_window_extent().p0)
                assert figure.bbox.contains(*legend.get_window_extent().p1)


def test_trials_that_failed_or_diverged_are_left_out() -> None:
    spoilt = make_config(seed=8, method="er", mask=None)
    records = [record for cell in _contrast() for record in cell.records]
    cells = summarise([*records, diverged(spoilt), failed(make_config(seed=9))])
    assert len(_only(cells).contrasted[0].records) == 4
    assert _lines(confidence_figure([_only(cells)]).axes[1])["ER"] == pytest.approx([42, 50])


def _text(figure: Any) -> str:
    root = ElementTree.fromstring(rendered(figure, "svg"))
    return " ".join(" ".join(root.itertext()).split())


def test_each_system_says_how_many_trials_it_has_where_they_differ() -> None:
    masks = (_INF, -5.0, -1.0)
    cells = summarise(
        [
            *_trials(40, seeds=2, mask=None, method="derpp"),
            *(r for mask in masks for r in _trials(50, seeds=2, mask=mask, method="derpp")),
            *_trials(60, seeds=3, mask=-2.0, method="derpp"),
        ]
    )
    plane = stability_plasticity_figure(cells)
    assert plane is not None
    assert "2 to 3 trials" in _text(plane)
    assert "(3 trials)" in _text(plane)
    sweep = _text(mask_sweep_figure([_only(cells)]))
    assert f"{MINUS}2 (3 trials)" in sweep
    assert "DER++ (2 trials)" in sweep
    cells = summarise(
        [*_trials(40, seeds=2, mask=None), *_trials(50, seeds=3, mask=_INF)],
    )
    for draw in (confidence_figure, accuracy_figure, matrices_figure):
        text = _text(draw([_only(cells)]))
        assert "ER (2 trials)" in text
        assert "(3 trials)" in text


def test_one_trial_has_no_spread_in_a_title() -> None:
    cells = summarise([*_trials(40, seeds=1, mask=None), *_trials(50, seeds=1, mask=_INF)])
    text = _text(accuracy_figure([_only(cells)]))
    assert "Class-IL, mean over 1 trial" in text
    assert "±" not in text


def test_only_cells_that_differ_in_nothing_but_the_mask_are_paired() -> None:
    cells = summarise([*_trials(40, mask=None, lr=0.1), *_trials(50, mask=_INF, lr=0.2)])
    assert [family.contrasted for family in families(cells)] == [(), ()]


def test_each_group_of_other_settings_has_a_row_of_its_own_that_says_which() -> None:
    cells = summarise(
        [
            record
            for lr, level in ((0.1, 20), (0.2, 70))
            for mask in (None, _INF)
            for record in _trials(level, mask=mask, lr=lr)
        ]
    )
    figure = confidence_figure(families(cells))
    assert [axes.get_title("right") for axes in figure.axes[1::2]] == ["lr=0.1", "lr=0.2"]
    assert [_lines(axes)["ER"][0] for axes in figure.axes[1::2]] == pytest.approx([22, 72])


def test_what_does_not_fit_on_a_page_goes_on_to_the_next(tmp_path: Path) -> None:
    cells = _sweep((_INF, -2.0, 0.0))
    for buffer in (300, 400, 500):
        cells += _sweep((_INF, -2.0, 0.0), buffer=buffer)
    names = [path.stem for path in write_figures(cells, tmp_path) if path.suffix == ".svg"]
    assert names == [
        "split-digits-mask-sweep",
        "split-digits-mask-sweep-2",
        "split-digits-stability-plasticity",
    ]


def test_twenty_tasks_and_two_hundred_classes_have_room(tmp_path: Path) -> None:
    cells = summarise([*_large(20, 200, None), *_large(20, 200, _INF)])
    assert len(write_figures(cells, tmp_path)) == 8
    family = _only(cells)
    left = confidence_figure([family]).axes[0]
    assert len(_lines(left)["ER"]) == 200
    assert len(left.get_xticklabels()) == 20
    assert len(matrices_figure([family]).axes[0].texts) == 0
    titles = [axes.get_title().strip() for axes in accuracy_figure([family]).axes]
    assert titles == ["all tasks so far", "task 1", "task 6", "task 11", "task 15", "task 20"]


def test_what_was_not_measured_leaves_a_gap_and_no_warning(tmp_path: Path) -> None:
    """No confidence, no accuracy before the last task, no Task-IL: three figures less."""
    matrix, nothing = [[NAN, NAN], [50.0, 60.0]], [[NAN, NAN], [NAN, NAN]]
    cells = summarise(
        [
            make_record(make_config(mask=mask), class_il=matrix, task_il=nothing, confidence=())
            for mask in (None, _INF, -2.0, -1.0)
        ]
    )
    names = [path.stem for path in write_figures(cells, tmp_path) if path.suffix == ".svg"]
    assert names == [
        "split-digits-accuracy-over-tasks-b200",
        "split-digits-matrices-b200",
        "split-digits-mask-sweep",
    ]


def test_a_benchmark_of_one_s_own_has_a_file_name_without_a_colon(tmp_path: Path) -> None:
    paths = write_figures(_sweep((_INF, -1.0), benchmark="my.data:digits"), tmp_path)
    assert paths[0].name == "my.data-digits-stability-plasticity.svg"


@pytest.mark.parametrize(
    ("mask", "name"),
    [
        (_INF, "−∞"),  # noqa: RUF001
        (-1e9, "−10⁹"),  # noqa: RUF001
        (-1e12, "−10¹²"),  # noqa: RUF001
        (-100.0, "−100"),  # noqa: RUF001
        (-2.5, "−2.5"),  # noqa: RUF001
        (-2000.0, "−2000"),  # noqa: RUF001
        (-0.0, "0"),
    ],
)
def test_masks_are_written_as_print_has_them(mask: float, name: str) -> None:
    assert mask_name(mask) == name
