"use strict";
// The view: reads the controls, looks up the route that Python computed for them, draws four grids, and calls marks.js for the
// selected number, {side: "input" | "output", at: its flat position}.

const get = (id) => document.getElementById(id);
const gridOf = (rows, cols, values) => ({ rows, cols, values });
const PANELS = ["input", "output", "gradient", "cotangent"];
const LABELS = { op: "Function", array: "Array", window_shape: "Window", strides: "Strides", padding: "Padding", window_dilation: "Dilation", ceil_mode: "Ceil mode", output_shape: "Output size", p: "p", rank: "Rank", divisor: "Divisor", count_include_pad: "Padding counts", ties: "Ties" };
const page = JSON.parse(get("start").textContent);

let routes = null; // by the choices of the controls
let pooled = null; // the route that is shown
let dy = numbersOf(page.dy);
let dx = null;
let pinned = { side: "output", at: 0 }; // stays when the pointer leaves
let pointed = null;

// JSON has no NaN and no infinities: they are strings.
function numbersOf({ rows, cols, values }) {
  return gridOf(rows, cols, values.map(Number));
}

// Controls

function addControl(name, texts) {
  const label = document.createElement("label");
  label.textContent = LABELS[name];
  const select = document.createElement("select");
  select.id = name;
  select.append(...texts.map((text) => new Option(text, text)));
  label.append(select);
  get("controls").append(label);
  return select;
}

// Create the controls of the chosen function, with the values of `chosen`, or their defaults.
function addControls(chosen) {
  const choices = { op: Object.keys(page.choices), array: page.arrays, ...page.choices[chosen.op] };
  get("controls").replaceChildren();
  for (const [name, texts] of Object.entries(choices)) {
    const select = addControl(name, texts);
    if (texts.includes(chosen[name])) select.value = chosen[name];
  }
}

const chosenTexts = () => Object.fromEntries([...document.querySelectorAll("#controls select")].map(({ id, value }) => [id, value]));

// Drawing

function short(value) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "−inf";
  const text = Number.isInteger(value) && Math.abs(value) < 1e5 ? String(value) : String(Number(value.toPrecision(3)));
  return text.replace("-", "−");
}

const place = (grid, at) => `(${Math.floor(at / grid.cols)},\u00a0${at % grid.cols})`;
const gridAt = (panel) => ({ input: pooled.input, output: pooled.output, gradient: dx, cotangent: dy })[panel];
const sideOf = (panel) => get(panel).dataset.side;
const cellOf = (panel, at) => get(panel).querySelector(`td[data-at="${at}"]`);
const sends = ([, share]) => share !== 0; // true for NaN

// The name of each grid, and a description.
function names() {
  const [x, y] = pooled.names;
  return { input: [x, "input"], output: [y, "output"], gradient: [`d${x}`, `what ${x} gets`], cotangent: [`d${y}`, `cotangent of ${y}`] };
}

// The cotangent of the input for the cotangent dy of the output: shares of dy, summed over outputs.
function pullBack() {
  const values = pooled.input.values.map(() => 0);
  pooled.links.forEach((places, output) => {
    for (const [at, share] of places) values[at] += share === 0 ? 0 : share * dy.values[output];
  });
  return gridOf(pooled.input.rows, pooled.input.cols, values.map(Math.fround));
}

// Show the route of the controls.
function update() {
  const chosen = chosenTexts();
  const found = routes[Object.values(chosen).join("|")];
  get("refusal").textContent = found.refusal ?? "";
  get("refusal").hidden = !found.refusal;
  get("call").hidden = Boolean(found.refusal);
  get("stage").classList.toggle("stale", Boolean(found.refusal));
  if (found.refusal) return;
  const links = found.links.map((places) => places.map(([at, share]) => [at, Number(share)]));
  pooled = { ...found, op: chosen.op, input: numbersOf(found.input), output: numbersOf(found.output), links };
  const { rows, cols } = pooled.output;
  if (dy.rows !== rows || dy.cols !== cols) {
    const value = dy.values.every((other) => other === dy.values[0]) ? dy.values[0] : 1;
    dy = gridOf(rows, cols, Array(rows * cols).fill(value));
  }
  get("call").firstChild.textContent = pooled.call;
  show();
}

// Draw the grids.
function show() {
  dx = pullBack();
  const focused = document.activeElement?.closest?.("td") ? document.activeElement.closest("section").id : null;
  pointed = null;
  pinned = { side: pinned.side, at: Math.min(pinned.at, gridAt(pinned.side).values.length - 1) };
  PANELS.forEach(draw);
  fit();
  mark();
  if (focused) cellOf(focused, pinned.at)?.focus();
}

// The first and last (exclusive) position to show along an axis: the input, and the padding that windows reach.
function reach(panel, axis) {
  const size = axis === 0 ? gridAt(panel).rows : gridAt(panel).cols;
  if (sideOf(panel) === "output" || !pooled.windows) return [0, size];
  const windows = pooled.windows[axis];
  return [Math.min(0, windows[0].start), Math.max(size, ...windows.map(({ last }) => last + 1))];
}

function draw(panel) {
  const grid = gridAt(panel);
  const [name, what] = names()[panel];
  const heading = get(panel).querySelector("h2");
  heading.innerHTML = `${name} <small>${what}, ${grid.rows}×${grid.cols}</small>`;
  const table = document.createElement("table");
  table.setAttribute("role", "grid");
  table.setAttribute("aria-label", `${name}, ${what}`);
  const [rows, cols] = [reach(panel, 0), reach(panel, 1)];
  const marked = panel === "input" && pooled.selects ? chosenInputs() : new Set();
  for (let r = rows[0]; r < rows[1]; r += 1) {
    const line = table.insertRow();
    for (let c = cols[0]; c < cols[1]; c += 1) {
      const cell = line.insertCell();
      cell.dataset.row = r;
      cell.dataset.col = c;
      if (r < 0 || c < 0 || r >= grid.rows || c >= grid.cols) {
        cell.className = "pad";
        cell.setAttribute("aria-hidden", "true");
        continue;
      }
      const at = r * grid.cols + c;
      const value = grid.values[at];
      cell.dataset.at = at;
      cell.dataset.value = String(value);
      cell.textContent = short(value);
      cell.tabIndex = -1;
      cell.setAttribute("role", "gridcell");
      cell.setAttribute("aria-label", `${name} row ${r}, column ${c}: ${value}`);
      if (marked.has(at)) cell.classList.add("chosen");
      if (panel === "gradient") cell.classList.add(value === 0 ? "zero" : "lit");
    }
  }
  get(panel).querySelector(".scroll").replaceChildren(table);
}

const chosenInputs = () => new Set(pooled.links.flatMap((places) => places.filter(sends).map(([at]) => at)));

// Set the size of a cell, and stack the grids if inputs and outputs do not fit side by side.
function fit() {
  const room = get("stage").clientWidth;
  const wide = room >= 800 ? room - 300 : room; // leaves room for the description
  const cols = [reach("input", 1), reach("output", 1)].map(([low, high]) => high - low);
  const beside = (wide - 56) / (cols[0] + cols[1]);
  const stacked = beside < 28;
  const cell = Math.max(28, Math.min(44, stacked ? (wide - 16) / Math.max(...cols) : beside));
  const letters = Math.max(...PANELS.flatMap((panel) => gridAt(panel).values.map((value) => short(value).length)));
  get("board").classList.toggle("stacked", stacked);
  get("board").style.setProperty("--cell", `${Math.floor(cell)}px`);
  get("board").style.setProperty("--font", `${Math.max(9, Math.min(16, (cell - 4) / (letters * 0.64)))}px`);
}

// The box that changes the cotangent of the selected output.
function showEdit() {
  const { side, at } = pinned;
  get("edit").hidden = side === "input";
  if (side === "input") return;
  get("edit").querySelector("span").textContent = `Change ${names().cotangent[0]}${place(dy, at)}`;
  const box = get("edit").querySelector("input");
  if (document.activeElement !== box) box.value = dy.values[at];
}

function changeCotangent(value) {
  dy.values[pinned.at] = Math.fround(value);
  show();
}

// Events

function pointedAt(event) {
  const cell = event.target.closest?.("td[data-at]");
  return cell ? { side: cell.closest("section").dataset.side, at: Number(cell.dataset.at) } : null;
}

const board = get("board");
board.addEventListener("pointermove", (event) => {
  if (event.pointerType !== "mouse") return;
  const found = pointedAt(event);
  if (found?.side === pointed?.side && found?.at === pointed?.at) return;
  pointed = found;
  mark();
});
board.addEventListener("pointerleave", () => { if (pointed) { pointed = null; mark(); } });
board.addEventListener("focusin", (event) => {
  const found = pointedAt(event);
  if (found) { pinned = found; pointed = null; mark(); }
});
board.addEventListener("scroll", () => mark(), true);
board.addEventListener("keydown", (event) => {
  const found = pointedAt(event);
  if (!found || event.ctrlKey || event.metaKey || event.altKey) return;
  const panel = event.target.closest("section").id;
  const { rows, cols } = gridAt(panel);
  let [r, c] = [Math.floor(found.at / cols), found.at % cols];
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -cols], End: [0, cols] };
  if ((event.key === "+" || event.key === "-") && found.side === "output") {
    changeCotangent(dy.values[found.at] + (event.key === "+" ? 1 : -1));
  } else if (event.key in steps) {
    r = Math.max(0, Math.min(rows - 1, r + steps[event.key][0]));
    c = Math.max(0, Math.min(cols - 1, c + steps[event.key][1]));
    cellOf(panel, r * cols + c).focus();
  } else return;
  event.preventDefault();
});
get("edit").addEventListener("submit", (event) => event.preventDefault());
get("edit").querySelector("input").addEventListener("input", ({ target }) => {
  if (Number.isFinite(target.valueAsNumber)) changeCotangent(target.valueAsNumber);
});
get("controls").addEventListener("change", ({ target }) => {
  if (target.id === "op") {
    addControls(chosenTexts());
    get("op").focus();
  }
  update();
});
window.addEventListener("resize", () => { if (pooled) { fit(); mark(); } });

async function begin() {
  const packed = Uint8Array.from(atob(page.routes), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  routes = await new Response(stream).json();
  addControls(page.start);
  update();
}

begin();
