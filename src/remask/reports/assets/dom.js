// Making elements and writing numbers.

// Strings become text nodes, never markup: a method may be named by anyone.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// Read off an element that is there, so that the page contains no address, not even this one.
const SVG = document.querySelector("svg").namespaceURI;

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

const MISSING = "–";

// Infinite numbers travel through JSON as text.
function toNumber(value) {
  if (value === null || value === undefined) return NaN;
  return typeof value === "string" ? Number(value.replace("inf", "Infinity")) : value;
}

function written(value, digits = 2) {
  const number = toNumber(value);
  if (Number.isNaN(number)) return MISSING;
  if (!Number.isFinite(number)) return number < 0 ? "−∞" : "∞";
  const text = Math.abs(number).toFixed(digits);
  return number < 0 && Number(text) !== 0 ? `−${text}` : text; // never "−0.00"
}

// One trial has no spread, and then there is no ±.
function writtenSpread(spread, digits = 2) {
  return spread ? written(spread.mean, digits) + writtenStd(spread.std, digits) : MISSING;
}

function writtenStd(std, digits = 2) {
  return Number.isNaN(toNumber(std)) ? "" : ` ±${written(std, digits)}`;
}

function writtenP(p) {
  if (p === null || p === undefined) return MISSING;
  return p < 0.0001 ? "< 0.0001" : written(p, p < 0.01 ? 4 : p < 0.1 ? 3 : 2); // more digits near 5 %
}

function signed(value, digits = 1) {
  const text = written(value, digits);
  return text === MISSING || text.startsWith("−") ? text : `+${text}`;
}

function counted(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en-GB")} ${number === 1 ? one : many}`;
}

function listed(items) {
  if (items.length < 2) return items.join("");
  return `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}

// A_T with a subscript; the rest of the name is unchanged.
function measureName(name) {
  const [before, index] = name.split(/_(?=[A-Z]$)/);
  return index ? html("span", {}, before, html("sub", {}, index)) : html("span", {}, name);
}

// A label may break between its settings only.
function breakable(label) {
  return label.split(", ").flatMap((part, index) => [index ? ", " : "", html("span", { class: "whole" }, part)]);
}

function badge(word) {
  return html("span", { class: `badge is-${word.replaceAll(" ", "-")}` }, word);
}

function table(head, rows, attributes = {}) {
  return html(
    "table",
    attributes,
    html("thead", {}, html("tr", {}, head.map((title) => html("th", { scope: "col" }, title)))),
    html("tbody", {}, rows.map((row) => html("tr", {}, row.map((entry, column) =>
      html("td", {}, columnName(head[column]), entry))))),
  );
}

// On a phone each row is a block, where every entry has the name of its column above it.
function columnName(title) {
  return html("span", { class: "column-name", "aria-hidden": "true" }, title.cloneNode?.(true) ?? title);
}

// A wide table scrolls inside its own box; the box takes the focus so that arrow keys scroll it.
function scrolling(content, label) {
  return html("div", { class: "scrolling", tabindex: "0", role: "region", "aria-label": label }, content);
}

function allButton(all, shown, what, onclick) {
  return shown < all ? html("button", { type: "button", class: "all", onclick }, `Show all ${all} ${what}`) : "";
}

function labelled(text, control) {
  return html("label", { class: "field" }, html("span", {}, text), control);
}

function choiceOf(id, options, chosen, onchoose) {
  const entries = options.map(([value, text]) =>
    html("option", { value, selected: value === chosen }, text),
  );
  return html("select", { id, onchange: (event) => onchoose(event.target.value) }, entries);
}

// The data in the page; large data are compressed.
async function embeddedData() {
  const data = JSON.parse(byId("data").textContent);
  if (!("gzip" in data)) return data;
  const bytes = Uint8Array.from(atob(data.gzip), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}
