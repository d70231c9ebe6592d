// Lines over classes and over tasks.

// `series` is [{ cell, points: [{ y, std, value } or null] }], one point for each of `names`.
function lineChart({ names, whereOf, series, shade, spread = false, ...axes }) {
  const top = shade === undefined ? 24 : 40; // room for the names of the tasks
  const { chart, box, xAt, yAt } = frame({ x: places(names), top, below: roomBelow(names, axes.width), ...axes });
  if (shade) chart.prepend(taskShades(shade, names.length, xAt, box));
  const room = xAt.step >= 9; // with many classes, lines alone
  const apart = spread && room ? Math.min(5, (0.6 * xAt.step) / series.length) : 0;
  const marks = [];
  series.forEach(({ cell, points }, index) => {
    const look = lookOf(cell.label);
    const shift = (index - (series.length - 1) / 2) * apart;
    const at = points.map((point, place) => point && [xAt(place) + shift, yAt(point.y)]);
    const group = svg("g", { class: `series ${look.colour}`, "data-series": cell.label },
      svg("path", { class: "line", d: lineThrough(at), "stroke-dasharray": look.dash }));
    points.forEach((point, place) => {
      if (!point) return;
      const [x, top] = at[place];
      if (apart && point.std) group.append(errorBar(x, yAt(point.y - point.std), yAt(point.y + point.std), box));
      if (room || names.length === 1) group.append(marker(look.marker, x, top));
      marks.push({
        x, y: top, series: cell.label, group: place, where: whereOf(place), cell: cell.id,
        value: `${point.value}, ${counted(cell.trials, "trial")}`,
      });
    });
    chart.append(group);
  });
  return readable(chart, marks);
}

// Names that do not fit side by side slant; where there are very many, only some are written anyway.
function roomBelow(names, width) {
  const longest = widthOf(names);
  const fits = longest * names.length <= width || names.every((name) => name.length <= 3);
  return fits || names.length * SLANTED_WIDTH > 2 * width ? 0 : Math.round(0.64 * longest) - 12;
}

function errorBar(x, low, high, box) {
  const inside = (y) => Math.max(box.top, Math.min(box.bottom, y)).toFixed(1);
  return svg("path", { class: "error", d: `M${x.toFixed(1)} ${inside(low)}V${inside(high)}` });
}

// Every second task has a tinted ground, so that one sees which classes were learnt together.
function taskShades(taskOf, count, xAt, box) {
  const group = svg("g", { class: "shades" });
  for (let first = 0; first < count; ) {
    let next = first;
    while (next < count && taskOf(next) === taskOf(first)) next += 1;
    const [left, width] = [xAt(first) - xAt.step / 2, (next - first) * xAt.step];
    if (taskOf(first) % 2 === 0) {
      group.append(svg("rect", { x: left, y: box.top, width, height: box.bottom - box.top }));
    }
    if (width > 44) {
      group.append(svg("text", { x: left + width / 2, y: box.top - 6 }, `task ${taskOf(first) + 1}`));
    }
    first = next;
  }
  return group;
}

function lastRow(cell, setting) {
  return cell[setting].at(-1) ?? [];
}

function pointOf(value, std) {
  if (value === null || value === undefined) return null;
  return { y: value, std, value: `${written(value)}${writtenStd(std)} %` };
}

function numbered(count, from = 1) {
  return Array.from({ length: count }, (_, index) => String(index + from));
}

function mostOf(drawn, lengthOf) {
  return Math.max(0, ...drawn.map(lengthOf));
}

function confidenceFigure({ drawn, setting }) {
  const measured = drawn.filter((cell) => cell.confidence.some(Boolean));
  const sure = measured.filter(classesOf);
  const ended = drawn.filter((cell) => lastRow(cell, setting).some((value) => value !== null));
  const tasks = mostOf(ended, (cell) => cell[setting].length);
  const accurate = ended.map((cell) => ({ cell, points: lastRow(cell, setting).map((value) => pointOf(value)) }));
  return {
    labels: drawn.map((cell) => cell.label),
    least: 400,
    panels: [
      ...learntAlike(sure).map(confidencePanel),
      ended.length && {
        title: `${SETTINGS[setting]} accuracy on each task`,
        draw: (width) => lineChart({
          width, height: 300, label: `${SETTINGS[setting]} accuracy on each task after the last task`,
          names: numbered(tasks), series: accurate, shade: null, // null: in line with its neighbour
          whereOf: (index) => `task ${index + 1}, after the last task`,
          y: rangeOf(accurate), xTitle: "task", yTitle: "right answers, %",
        }),
      },
    ].filter(Boolean),
    see: "Confidence is the mean probability that the network gives to the true class of a test sample. A flat line " +
      "is an even memory; one that climbs to the right is sure only of what was learnt last." +
      fromFirstToLast(sure) + withoutTasks(measured.filter((cell) => !classesOf(cell))),
  };
}

// Systems that learnt the same classes in the same tasks share a panel.
function learntAlike(drawn) {
  const groups = new Map();
  for (const cell of drawn) {
    const key = JSON.stringify([cell.tasks, cell.class_names]);
    groups.set(key, [...(groups.get(key) ?? []), cell]);
  }
  return [...groups.values()];
}

function confidencePanel(drawn, index, groups) {
  const classes = classesOf(drawn[0]);
  const series = drawn.map((cell) => ({
    cell,
    points: classes.map(({ label }) => pointOf(cell.confidence[label]?.mean, cell.confidence[label]?.std)),
  }));
  const split = groups.length > 1 ? `, in ${counted(drawn[0].tasks.length, "task")}` : "";
  return {
    title: `Confidence in each class${split}`,
    draw: (width) => lineChart({
      width, height: 300, label: `Confidence in each class after the last task${split}`,
      names: classes.map(({ name }) => shortened(name)), series, spread: true,
      shade: (place) => classes[place].task,
      whereOf: (place) => `class ${classes[place].name}, task ${classes[place].task + 1}`,
      y: rangeOf(series), xTitle: "class", yTitle: "probability of the true class, %",
    }),
  };
}

const LONGEST_NAME = 12; // letters of a class's name below a chart

function shortened(name) {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
}

function fromFirstToLast(drawn) {
  const confidence = (cell, task) => mean(cell.tasks.at(task).map((label) => cell.confidence[label]?.mean));
  const ends = drawn.filter((cell) => cell.tasks.length > 1).map((cell) =>
    `${cell.label} ${written(confidence(cell, 0), 0)} → ${written(confidence(cell, -1), 0)}\u00a0%`);
  return ends.length ? ` From the first task's classes to the last's: ${ends.join("; ")}.` : "";
}

function withoutTasks(hidden) {
  if (!hidden.length) return "";
  return ` The records of ${listed(hidden.map((cell) => cell.label))} do not say which classes each task has, so ` +
    "their confidence is not drawn; trials that are run again will say it.";
}

function rangeOf(series) {
  return roundRange(series.flatMap(({ points }) => points.filter(Boolean).flatMap((point) =>
    [point.y - (point.std ?? 0), point.y + (point.std ?? 0)])));
}

const MOST_PANELS = 12;

function learningFigure({ drawn, setting }) {
  // A method that is tested only once, at the end, has no course to show.
  const followed = drawn.filter((cell) => cell[setting].length > 1 && cell[setting][0][0] !== null);
  const tasks = mostOf(followed, (cell) => cell[setting].length);
  const courseOf = (cell, task) => cell[setting].map((row) => pointOf(row[task]));
  const averageOf = (cell) => cell[setting].map((row) => pointOf(mean(row)));
  const shown = evenly(Math.max(0, tasks - 1), MOST_PANELS - 1);
  const kinds = [
    { title: "All tasks so far, averaged", where: "tasks so far", course: averageOf },
    ...shown.map((task) => ({
      title: `Task ${task + 1}`, where: `task ${task + 1}`, course: (cell) => courseOf(cell, task),
    })),
  ].map((kind) => ({ ...kind, series: followed.map((cell) => ({ cell, points: kind.course(cell) })) }));
  const y = rangeOf(kinds.flatMap((kind) => kind.series));
  return {
    labels: followed.map((cell) => cell.label),
    least: 215,
    panels: followed.length ? kinds.map((kind) => ({
      title: kind.title,
      draw: (width) => lineChart({
        width, height: 210, label: `${SETTINGS[setting]} accuracy, ${kind.title}`,
        names: numbered(tasks), series: kind.series, y,
        whereOf: (index) => `${kind.where}, after task ${index + 1}`,
        xTitle: "after task", yTitle: "right answers, %",
      }),
    })) : [],
    see: "A line that falls is a task being forgotten while later ones are learnt; one that stays level is " +
      "remembered." + (shown.length < tasks - 1 ? ` ${shown.length} of ${tasks} tasks are drawn.` : "") +
      firstTaskLoss(followed, setting),
  };
}

function evenly(count, most) {
  if (count <= most) return Array.from({ length: count }, (_, index) => index);
  return distinct(Array.from({ length: most }, (_, index) => Math.round((index * (count - 1)) / (most - 1))));
}

function firstTaskLoss(drawn, setting) {
  const losses = drawn.map((cell) =>
    `${cell.label} ${written(cell[setting][0][0], 1)} → ${written(lastRow(cell, setting)[0], 1)}\u00a0%`);
  return losses.length ? ` Task 1, from when it was learnt to the end: ${losses.join("; ")}.` : "";
}
