"use strict";
// The view: reads the controls, computes with arithmetic.js, draws four grids, and calls marks.js for the
// selected number, {side: "input" | "output", at: its flat position}.

const get = (id) => document.getElementById(id);
const PANELS = ["input", "output", "gradient", "cotangent"];
const ROUNDED = ["max", "min", "avg", "sum", "lp", "median", "rank", "unpool"]; // take ceil mode
const TAKES = { window: [...ROUNDED, ...MORPHOLOGY], output_shape: ADAPTIVE, ties: SELECTIONS, p: ["lp"], rank: ["rank"], divisor: ["avg"], ceil_mode: ROUNDED };
const PRESETS = {
  worked: "1 3 4 2 5 2\n4 2 5 6 8 3\n5 3 7 8 9 3\n8 4 3 6 0 2\n7 10 3 6 3 5\n4 7 2 4 7 8",
  ties: "1 1 2 2\n1 1 2 2\n3 3 3 3\n3 3 3 3",
  nan: "nan 1 -inf -inf\n2 nan -inf -inf\n3 -inf 0 4\n-inf 5 4 0",
  random: () => Array.from({ length: 6 }, () => Array.from({ length: 6 }, () => Math.floor(Math.random() * 10)).join(" ")).join("\n"),
};

let pooled = null; // the last result of pool()
let dy = null;
let dx = null;
let pinned = { side: "output", at: 0 }; // stays when the pointer leaves
let pointed = null;
let shownFor = null; // the state of the controls at the last update
let first = null; // the values from Python, for the initial controls

const ONLY_PYTHON = "This function is computed by Python alone: call `python -m jaxpool explain` again with the other numbers.";

// Reading the controls

function whole(id, least) {
  const box = get(id);
  const value = Number(box.value);
  if (box.value.trim() === "" || !Number.isInteger(value) || value < least || value > LARGEST) {
    throw new Refusal(`${box.getAttribute("aria-label")} must be a whole number from ${least} to ${LARGEST}.`);
  }
  return value;
}

const pairOf = (id) => [whole(`${id}-0`, 1), whole(`${id}-1`, 1)];

function paddingOf() {
  if (get("padding").value !== "explicit") return get("padding").value;
  return [0, 1].map((axis) => [0, 1].map((side) => whole(`padding-${axis}-${side}`, 0)));
}

function numberOf(id, allowed, rule) {
  const value = parseNumber(get(id).value.trim());
  if (value === null || !allowed(value)) throw new Refusal(`${id === "p" ? "p" : "The divisor"} must be ${rule}.`);
  return value;
}

function readSettings() {
  const op = get("op").value;
  const settings = { op, ties: get("ties").value, ceil_mode: ROUNDED.includes(op) && get("ceil_mode").checked, count_include_pad: get("count_include_pad").checked, p: 2, divisor: null };
  if (ADAPTIVE.includes(op)) return { ...settings, output_shape: pairOf("output_shape") };
  if (op === "rank") settings.rank = whole("rank", -LARGEST);
  if (op === "lp") settings.p = numberOf("p", (p) => p > 0, "a number above 0, or inf");
  if (op === "avg" && get("divisor").value.trim() !== "") {
    settings.divisor = numberOf("divisor", (n) => n !== 0 && Number.isFinite(n), "a number other than 0");
  }
  return { ...settings, window: pairOf("window"), strides: pairOf("strides"), window_dilation: pairOf("window_dilation"), padding: paddingOf() };
}

function readCotangent({ rows, cols }) {
  const given = parseGrid(get("dy").value, "The cotangent");
  if (given.values.some((value) => !Number.isFinite(value))) throw new Refusal("The cotangent must be finite numbers.");
  if (given.values.length === 1) return gridOf(rows, cols, Array(rows * cols).fill(given.values[0]));
  if (given.rows !== rows || given.cols !== cols) {
    throw new Refusal(`The cotangent must be of the size of the output, ${rows}×${cols}, or one number; it is ${given.rows}×${given.cols}.`);
  }
  return given;
}

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
const numberOfPython = (value) => (typeof value === "string" ? parseNumber(value) : Math.fround(value));
const numbersOf = ({ rows, cols, values }) => gridOf(rows, cols, values.map(numberOfPython));

// The pool of the first view, with the values from Python and the windows from arithmetic.js.
function fromPython({ windowed, selects, y, links }, settings, x) {
  const told = { output: numbersOf(y), links: links.map((places) => places.map(([at, share]) => [at, numberOfPython(share)])) };
  return windowed ? { ...pool(settings, x), ...told } : { input: x, windows: null, selects, ...told };
}

const sends = ([, share]) => share !== 0; // true for NaN

function names() {
  const unpool = pooled.indices !== undefined;
  return unpool
    ? { input: ["y", "maxima of the array"], output: ["x", "y put back"], gradient: ["dy", "what y gets"], cotangent: ["dx", "cotangent of x"] }
    : { input: ["x", "input"], output: ["y", "output"], gradient: ["dx", "what x gets"], cotangent: ["dy", "cotangent of y"] };
}

// The state of the controls.
function controlled() {
  const boxes = document.querySelectorAll("#controls input, #controls select, #values textarea");
  return [...boxes].map((box) => (box.type === "checkbox" ? box.checked : box.value)).join("|");
}

function update() {
  // Leaving a box fires "change" after "input" has updated already. Drawing again would remove the cell
  // that is being clicked.
  const now = controlled();
  if (now === shownFor) return;
  shownFor = now;
  const op = get("op").value;
  for (const element of document.querySelectorAll("[data-for]")) element.hidden = !TAKES[element.dataset.for].includes(op);
  if (get("padding").value !== "explicit") get("sides").hidden = true;
  get("array-name").textContent = op === "unpool" ? "The array" : "x";
  get("dy-name").textContent = op === "unpool" ? "dx" : "dy";
  try {
    const settings = readSettings();
    const x = parseGrid(get("array").value, "The array");
    const told = first !== null && now === first.shown;
    if (!told && first !== null && op === first.op && !first.windowed) throw new Refusal(ONLY_PYTHON);
    const found = told ? fromPython(first, settings, x) : pool(settings, x);
    dy = readCotangent(found.output);
    pooled = found;
    dx = told ? numbersOf(first.dx) : pullBack(pooled, dy);
    get("call").firstChild.textContent = told ? first.call : callOf(settings, x);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    get("refusal").textContent = error.message;
    get("refusal").hidden = false;
    get("stage").classList.add("stale");
    get("call").hidden = true;
    return;
  }
  get("refusal").hidden = true;
  get("stage").classList.remove("stale");
  get("call").hidden = false;
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
  const outputs = pooled.windows[axis].outputs;
  return [Math.min(0, outputs[0].start), Math.max(size, ...outputs.map(({ start, span }) => start + span))];
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
  const marked = panel === "input" && (pooled.selects ?? SELECTIONS.includes(get("op").value)) ? chosenInputs() : new Set();
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

const chosenInputs = () => new Set(pooled.indices ? pooled.input.values.keys() : pooled.links.flatMap((places) => places.filter(sends).map(([at]) => at)));

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

// Editing one number: of the array if an input is selected, of the cotangent if an output is selected.

const edited = (side) => (side === "output" ? [get("dy"), dy] : pooled.indices ? null : [get("array"), pooled.input]);

function showEdit() {
  const { side, at } = pinned;
  const target = edited(side);
  get("edit").hidden = target === null;
  if (target === null) return;
  get("edit").querySelector("span").textContent = `Change ${names()[side === "output" ? "cotangent" : "input"][0]}${place(target[1], at)}`;
  const box = get("edit").querySelector("input");
  if (document.activeElement !== box) box.value = plain(target[1].values[at]);
}

function change(value) {
  const target = edited(pinned.side);
  if (target === null) return;
  const [box, grid] = target;
  const words = grid.values.map((old, at) => plain(at === pinned.at ? value : old));
  box.value = Array.from({ length: grid.rows }, (_, r) => words.slice(r * grid.cols, (r + 1) * grid.cols).join(" ")).join("\n");
  update();
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
  if (event.key === "+" || event.key === "-") {
    change(edited(found.side)?.[1].values[found.at] + (event.key === "+" ? 1 : -1));
  } else if (event.key in steps) {
    r = Math.max(0, Math.min(rows - 1, r + steps[event.key][0]));
    c = Math.max(0, Math.min(cols - 1, c + steps[event.key][1]));
    cellOf(panel, r * cols + c).focus();
  } else return;
  event.preventDefault();
});
get("edit").addEventListener("submit", (event) => event.preventDefault());
get("edit").querySelector("input").addEventListener("input", (event) => {
  const value = parseNumber(event.target.value.trim());
  if (value !== null) change(value);
});
for (const form of [get("controls"), get("values")]) {
  for (const event of ["input", "change"]) form.addEventListener(event, update);
  form.addEventListener("submit", (event) => event.preventDefault());
}
document.querySelectorAll("[data-preset]").forEach((button) => button.addEventListener("click", () => {
  const preset = PRESETS[button.dataset.preset];
  get("array").value = typeof preset === "string" ? preset : preset();
  get("dy").value = "1";
  update();
}));
window.addEventListener("resize", () => { if (pooled) { fit(); mark(); } }); // null if the first settings were invalid

function begin({ settings, array, cotangent, first: told }) {
  if (told && !told.windowed) get("op").add(new Option(settings.op, settings.op)); // an op that only Python computes
  for (const name of ["op", "ties", "p", "rank"]) get(name).value = settings[name];
  get("divisor").value = settings.divisor ?? "";
  for (const name of ["ceil_mode", "count_include_pad"]) get(name).checked = settings[name];
  for (const name of ["window", "strides", "window_dilation", "output_shape"]) settings[name].forEach((size, axis) => { get(`${name}-${axis}`).value = size; });
  const given = Array.isArray(settings.padding);
  get("padding").value = given ? "explicit" : settings.padding;
  if (given) settings.padding.forEach((pair, axis) => pair.forEach((size, side) => { get(`padding-${axis}-${side}`).value = size; }));
  get("array").value = array;
  get("dy").value = cotangent;
  if (told) first = { ...told, op: settings.op, shown: controlled() };
  update();
}

begin(JSON.parse(get("start").textContent));
