// Puts the page together, and keeps it where the reader left it.

function drawEverything() {
  drawOverview();
  drawContrasts();
  drawStatements();
  drawResults();
  drawFigures();
  drawCompare();
  watchDetail();
  watchTheme();
  watchLinks();
  showDetail();
  window.addEventListener("popstate", followAddress);
}

// The back button, or an address that was changed by hand.
function followAddress() {
  const before = new URLSearchParams(state.params);
  state.reread();
  before.delete("cell");
  const now = new URLSearchParams(state.params);
  now.delete("cell");
  if (before.toString() !== now.toString()) {
    drawFilters();
    drawTable();
    if (runCells.length) updateFigures();
    if (runCells.length > 1) updateCompare();
    for (const details of document.querySelectorAll("details[id]")) {
      details.open = state.all("open").includes(details.id);
    }
  }
  showDetail();
}

// A link to a section scrolls; its address would overwrite what the reader chose.
function watchLinks() {
  for (const link of document.querySelectorAll("header a, .skip")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const section = byId(link.hash.slice(1));
      section.scrollIntoView();
      section.focus({ preventScroll: true });
    });
  }
  const asked = location.hash.slice(1);
  if (asked && !asked.includes("=")) byId(asked)?.scrollIntoView();
}

function watchTheme() {
  const button = byId("theme");
  const root = document.documentElement;
  const isDark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const update = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("remask-theme", root.dataset.theme);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
    update();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
  update();
}

function watchLive() {
  const seconds = Number(document.body.dataset.refreshSeconds);
  if (!seconds) return;
  restorePlace();
  const line = byId("live");
  const button = html("button", { type: "button", id: "pause", class: "quiet" });
  const text = html("span");
  line.append(html("i", { class: "pulse", "aria-hidden": "true" }), text, button);
  line.hidden = false;
  let timer = null;
  const follow = () => {
    const paused = state.get("live") === "paused";
    line.classList.toggle("paused", paused);
    text.textContent = paused ? "paused" : `live: refreshed every ${seconds} s`;
    button.textContent = paused ? "Go on" : "Pause";
    clearTimeout(timer);
    if (!paused) timer = setTimeout(reload, 1000 * seconds);
  };
  const reload = () => {
    keepPlace();
    location.reload();
  };
  button.addEventListener("click", () => {
    state.change({ live: state.get("live") === "paused" ? null : "paused" });
    follow();
  });
  follow();
}

// Where the reader is, in the history entry: it outlives a reload, and needs no storage.
function keepPlace() {
  const focused = document.activeElement;
  history.replaceState({
    ...history.state,
    place: {
      top: scrollY,
      detailTop: byId("detail").scrollTop,
      focus: focused?.id ?? "",
      caret: focused?.selectionStart ?? null,
    },
  }, "");
}

function restorePlace() {
  const place = history.state?.place;
  if (!place) return;
  history.scrollRestoration = "manual";
  scrollTo({ top: place.top, behavior: "instant" });
  byId("detail").scrollTop = place.detailTop;
  const focused = byId(place.focus);
  focused?.focus({ preventScroll: true });
  if (place.caret !== null) focused?.setSelectionRange?.(place.caret, place.caret);
}

drawEverything();
watchLive();
