// The figure on the start page: plays what website/logits.py has recorded.
"use strict";
(() => {
  const home = document.getElementById("logits");
  const data = window.logits;
  if (!home || !data) return;

  const WIDTH = 340, HEIGHT = 220, TOP = 8, FLOOR = 194, LOW = -3, HIGH = 14, SECONDS = 14;
  const last = data.task.length - 1;
  const level = (logit) => TOP + ((FLOOR - TOP) * (HIGH - Math.max(LOW, Math.min(HIGH, logit)))) / (HIGH - LOW);

  function make(kind, attributes = {}, ...children) {
    const isDrawn = ["svg", "rect", "line", "text", "g"].includes(kind);
    const made = isDrawn ? document.createElementNS("http://www.w3.org/2000/svg", kind) : document.createElement(kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function choice(label, options) {
    const select = make("select", { "aria-label": label });
    for (const [value, text] of options) select.append(make("option", { value }, text));
    return select;
  }

  // A panel: a bar per class, from 0 to its logit, and the accuracy.
  function panel(title) {
    const heading = make("strong", {}, title), accuracy = make("span", { class: "logits-accuracy" });
    const drawing = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    for (const logit of [0, 5, 10]) {
      drawing.append(make("line", { x1: 26, x2: WIDTH, y1: level(logit), y2: level(logit), class: logit ? "logits-grid" : "logits-zero" }));
      drawing.append(make("text", { x: 20, y: level(logit) + 4, "text-anchor": "end" }, String(logit)));
    }
    const step = (WIDTH - 34) / 10;
    const bars = [...Array(10).keys()].map((number) => {
      const bar = make("rect", { x: 32 + number * step, width: step - 7, rx: 2 });
      drawing.append(bar, make("text", { x: 32 + number * step + (step - 7) / 2, y: 214, "text-anchor": "middle" }, String(number)));
      return bar;
    });
    const draw = (frame, task) => {
      bars.forEach((bar, number) => {
        const taught = data.tasks.findIndex((classes) => classes.includes(number));
        bar.setAttribute("y", Math.min(level(0), level(frame[number])));
        bar.setAttribute("height", Math.max(1, Math.abs(level(frame[number]) - level(0))));
        bar.setAttribute("class", taught === task ? "logits-now" : taught < task ? "logits-old" : "logits-later");
      });
      accuracy.textContent = `${Math.round(frame[10])} % right`;
      drawing.setAttribute("aria-label", `${heading.textContent}: ${accuracy.textContent} of the digits learnt so far`);
    };
    return { heading, draw, element: make("div", { class: "logits-panel" }, make("div", { class: "logits-title" }, heading, accuracy), drawing) };
  }

  const plain = panel("Without a mask"), masked = panel("");
  const memory = choice("memory", [["sgd", "no memory"], ["er", "a memory of 20 images"]]);
  const mask = choice("mask", [["-1", "m = −1"], ["-inf", "m = −∞"]]);
  const button = make("button", { type: "button" });
  const slider = make("input", { type: "range", min: 0, max: last, value: 0, "aria-label": "training step" });
  const learning = make("output", { class: "logits-task" });
  let shown = 0, started = null;

  function draw() {
    const task = data.task[shown], classes = data.tasks[task];
    plain.draw(data.frames[`${memory.value} none`][shown], task);
    masked.draw(data.frames[`${memory.value} ${mask.value}`][shown], task);
    masked.heading.textContent = `With a mask, ${mask.selectedOptions[0].textContent}`;
    slider.value = shown;
    learning.textContent = `step ${shown * data.every}: learning ${classes.join(" and ")}`;
    button.textContent = started === null ? (shown === last ? "↻ Again" : "▶ Play") : "❚❚ Pause";
  }

  function advance(now) {
    if (started === null) return;
    shown = Math.min(last, Math.max(0, Math.floor(((now - started) / 1000 / SECONDS) * last)));
    if (shown === last) started = null;
    draw();
    if (started !== null) requestAnimationFrame(advance);
  }

  function play() {
    if (shown === last) shown = 0;
    started = performance.now() - (shown / last) * SECONDS * 1000;
    draw();
    requestAnimationFrame(advance);
  }

  button.addEventListener("click", () => {
    if (started === null) return play();
    started = null;
    draw();
  });
  slider.addEventListener("input", () => {
    started = null;
    shown = Number(slider.value);
    draw();
  });
  for (const select of [memory, mask]) select.addEventListener("change", draw);

  const choices = make("div", { class: "logits-controls" }, button, memory, mask, learning);
  home.replaceChildren(make("div", { class: "logits-panels" }, plain.element, masked.element), slider, choices);
  // Who asked for less motion gets the end, and may play it; all others see it once it is in view.
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) {
    shown = last;
    draw();
  } else {
    draw();
    new IntersectionObserver((entries, observer) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      if (started === null && shown === 0) play();
    }, { threshold: 0.6 }).observe(home);
  }
})();
