"use strict";
// The pools of the page, with the conventions of jaxpool. Numbers that the library stores as float32
// are rounded with Math.fround. No function here touches the document.
//
// A grid is {rows, cols, values}, with row-major values. Settings are plain data, as printed by
// `explain --json`: {op, window, strides, padding, window_dilation, ceil_mode, ties, count_include_pad,
// divisor, p, rank, output_shape}, with "VALID", "SAME", "SAME_LOWER" or [[low, high], [low, high]] for padding.

const LARGEST = 400; // numbers of a grid, taps of a window, and every size; the limit of the command line
const MORPHOLOGY = ["dilate", "erode"]; // with a flat kernel
const SELECTIONS = ["max", "min", "median", "rank", ...MORPHOLOGY, "adaptive_max", "unpool"];
const ADAPTIVE = ["adaptive_max", "adaptive_avg"];

class Refusal extends Error {}

const gridOf = (rows, cols, values) => ({ rows, cols, values });

// Parse rows separated by ";" or line ends, with values separated by spaces or commas, as a float32 grid.
function parseGrid(text, name) {
  const lines = text.split(/[;\n]/).map((line) => line.trim()).filter((line) => line !== "");
  const table = lines.map((line) => line.split(/\s*,\s*|\s+/).map(parseNumber));
  const cols = table.length ? table[0].length : 0;
  if (!cols || table.some((row) => row.length !== cols || row.some((value) => value === null))) {
    throw new Refusal(`${name} must be rows of equally many numbers, as in "1 3; 4 2".`);
  }
  if (table.length * cols > LARGEST) {
    throw new Refusal(`${name} must have at most ${LARGEST} numbers; there are ${table.length * cols}.`);
  }
  return gridOf(table.length, cols, table.flat());
}

function parseNumber(word) {
  const named = /^([+-]?)(nan|inf|infinity)$/i.exec(word);
  if (named) {
    const size = named[2].toLowerCase() === "nan" ? NaN : Infinity;
    return named[1] === "-" ? -size : size;
  }
  if (!/^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(word)) return null;
  const value = Math.fround(Number(word));
  return Number.isFinite(value) ? value : null; // outside the range of float32
}

// The windows along one axis. Each output has the start and span of its window, its taps inside the
// input as positions, and the number of taps that an average counts.
function axisWindows(name, size, window, stride, padding, dilation, ceilMode) {
  const span = (window - 1) * dilation + 1;
  let [low, high] = Array.isArray(padding) ? padding : [0, 0];
  if (padding === "SAME" || padding === "SAME_LOWER") {
    const total = Math.max((Math.ceil(size / stride) - 1) * stride + span - size, 0);
    low = padding === "SAME" ? Math.floor(total / 2) : Math.ceil(total / 2);
    high = total - low;
  }
  const rest = size + low + high - span;
  let count = Math.max(0, (ceilMode ? Math.ceil(rest / stride) : Math.floor(rest / stride)) + 1);
  if (ceilMode && count > 0 && (count - 1) * stride >= size + low) count -= 1;
  if (count === 0) {
    throw new Refusal(
      `The window spans ${span} ${name}, more than the padded input has: ${size + low + high}. ` +
        "Use a smaller window or more padding.",
    );
  }
  const outputs = [];
  for (let output = 0; output < count; output += 1) {
    const start = output * stride - low;
    const taps = Array.from({ length: window }, (_, tap) => start + tap * dilation);
    const real = taps.filter((at) => at >= 0 && at < size);
    if (real.length === 0) {
      throw new Refusal(
        `Window ${output} along the ${name} holds nothing but padding. Use less padding or a larger window.`,
      );
    }
    // An average counts explicit padding, but not the positions that ceil mode adds after it.
    outputs.push({ start, span, taps: real, counted: taps.filter((at) => at < size + high).length });
  }
  return { low, high, outputs };
}

function adaptiveWindows(size, count) {
  const outputs = [];
  for (let output = 0; output < count; output += 1) {
    const start = Math.floor((output * size) / count);
    const span = Math.ceil(((output + 1) * size) / count) - start;
    const taps = Array.from({ length: span }, (_, tap) => start + tap);
    outputs.push({ start, span, taps, counted: span });
  }
  return { low: 0, high: 0, outputs };
}

function layOut(settings, x) {
  const adaptive = ADAPTIVE.includes(settings.op);
  const taps = adaptive ? 1 : settings.window[0] * settings.window[1];
  if (taps > LARGEST) {
    throw new Refusal(`The window must have at most ${LARGEST} numbers; it has ${taps}.`);
  }
  const windows = [["rows", x.rows], ["columns", x.cols]].map(([name, size], axis) =>
    adaptive
      ? adaptiveWindows(size, settings.output_shape[axis])
      : axisWindows(
          name,
          size,
          settings.window[axis],
          settings.strides[axis],
          Array.isArray(settings.padding) ? settings.padding[axis] : settings.padding,
          settings.window_dilation[axis],
          settings.ceil_mode,
        ),
  );
  const least = windows.reduce((n, { outputs }) => n * Math.min(...outputs.map((output) => output.taps.length)), 1);
  if (settings.op === "rank" && (settings.rank < -least || settings.rank >= least)) {
    throw new Refusal(`The rank must be from ${-least} to ${least - 1}: a window has ${least} numbers.`);
  }
  const [rows, cols] = windows.map((axis) => axis.outputs.length);
  if (rows * cols > LARGEST) {
    throw new Refusal(`The output must have at most ${LARGEST} numbers; it would have ${rows * cols}.`);
  }
  return windows;
}

// The maximum or minimum of the values of one window, in row-major order, and each value's share of the
// output's cotangent. NaN wins against every number, and NaNs tie with each other.
function choose(values, kind, ties) {
  let best = values[0];
  for (const value of values) {
    if (Number.isNaN(value) || (kind === "max" ? value > best : value < best)) best = value;
    if (Number.isNaN(best)) break;
  }
  return share(values, best, ties);
}

// The value of a rank in ascending order; NaN is last.
const ranked = (values, rank) => [...values].sort((a, b) => Number.isNaN(a) - Number.isNaN(b) || a - b).at(rank);

function share(values, best, ties) {
  const tied = values.flatMap((value, at) => (value === best || Number.isNaN(best) && Number.isNaN(value) ? [at] : []));
  const shares = values.map(() => 0);
  if (ties === "split") tied.forEach((at) => { shares[at] = Math.fround(1 / tied.length); });
  else shares[ties === "last" ? tied[tied.length - 1] : tied[0]] = 1;
  return { value: best, shares };
}

function average(values, divisor) {
  const sum = Math.fround(values.reduce((total, value) => total + value, 0));
  return { value: Math.fround(sum / divisor), shares: values.map(() => Math.fround(1 / divisor)) };
}

// The p-norm. Absolute values are divided by the largest, so that no power overflows.
function norm(values, p) {
  const signs = values.map((value) => (value === 0 ? 0 : value > 0 ? 1 : -1)); // NaN gives -1
  const sizes = values.map(Math.abs);
  if (p === Infinity) {
    const { value, shares } = choose(sizes, "max", "first");
    return { value, shares: shares.map((share, at) => share * signs[at]) };
  }
  const largest = choose(sizes, "max", "first").value;
  if (p === 1) {
    return { value: Math.fround(sizes.reduce((total, size) => total + size, 0)), shares: signs };
  }
  if (largest === 0 || largest === Infinity) return { value: largest, shares: values.map(() => 0) };
  if (Number.isNaN(largest)) {
    const still = (size) => size === Infinity || size === 0;
    return { value: NaN, shares: sizes.map((size) => (still(size) ? 0 : NaN)) };
  }
  const total = sizes.reduce((sum, size) => sum + (size / largest) ** p, 0);
  const value = largest * total ** (1 / p);
  const shares = sizes.map((size, at) => (size === 0 ? 0 : Math.fround(signs[at] * (size / value) ** (p - 1))));
  return { value: Math.fround(value), shares };
}

function reduceWindow(settings, values, counted) {
  const { op, ties, p } = settings;
  if (op === "sum") return average(values, 1);
  if (op === "lp") return norm(values, p);
  if (op === "avg" && settings.divisor !== null) return average(values, settings.divisor);
  if (op === "avg") return average(values, settings.count_include_pad ? counted : values.length);
  if (op === "adaptive_avg") return average(values, values.length);
  if (op === "median") return share(values, ranked(values, values.length >> 1), ties);
  if (op === "rank") return share(values, ranked(values, settings.rank), ties);
  return choose(values, ["min", "erode"].includes(op) ? "min" : "max", op === "unpool" && ties === "split" ? "first" : ties);
}

// The pool of x: {input, output, links, windows}. links[o] lists the inputs of output o in row-major
// order, as [position in the input, share of o's cotangent].
function pool(settings, x) {
  const windows = layOut(settings, x);
  const [down, across] = windows.map((axis) => axis.outputs);
  const links = [];
  const values = [];
  for (const row of down) {
    for (const col of across) {
      const places = row.taps.flatMap((r) => col.taps.map((c) => r * x.cols + c));
      const found = reduceWindow(settings, places.map((at) => x.values[at]), row.counted * col.counted);
      values.push(found.value);
      links.push(places.map((at, tap) => [at, found.shares[tap]]));
    }
  }
  const pooled = { input: x, output: gridOf(down.length, across.length, values), links, windows };
  return settings.op === "unpool" ? unpool(pooled) : pooled;
}

// The pooled values at their indices, and zeros elsewhere. If several values have the same index, the
// last value stays and receives the cotangent; the others receive 0.
function unpool({ input: x, output: y, links, windows }) {
  const indices = links.map((places) => places.find(([, share]) => share === 1)[0]);
  const values = x.values.map(() => 0);
  const back = x.values.map(() => []);
  indices.forEach((index, at) => {
    values[index] = y.values[at];
    back[index] = [...back[index].map(([overwritten]) => [overwritten, 0]), [at, 1]];
  });
  return { input: y, output: gridOf(x.rows, x.cols, values), links: back, windows: null, source: x, indices, sourceWindows: windows };
}

// The cotangent of the input for the cotangent dy of the output: shares of dy, summed over windows.
function pullBack(pooled, dy) {
  const dx = pooled.input.values.map(() => 0);
  pooled.links.forEach((places, output) => {
    for (const [at, share] of places) dx[at] += share === 0 ? 0 : share * dy.values[output];
  });
  return gridOf(pooled.input.rows, pooled.input.cols, dx.map(Math.fround));
}

// Text

// The fewest digits from which parseNumber reads the same float32; nine always suffice.
function plain(value) {
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "inf").replace("NaN", "nan");
  const shorter = [6, 7, 8, 9].map((digits) => Number(value.toPrecision(digits)));
  return String(shorter.find((number) => Math.fround(number) === value) ?? shorter[3]);
}

// The pool as Python source.
function callOf(s, x) {
  const tuple = ([a, b]) => `(${a}, ${b})`;
  const names = { unpool: "max_pool_with_argmax", dilate: "dilate", erode: "erode" };
  const args = ["x"];
  if (ADAPTIVE.includes(s.op)) args.push(tuple(s.output_shape));
  else {
    if (s.op === "lp") args.push(s.p === Infinity ? 'float("inf")' : plain(s.p));
    if (s.op === "rank") args.push(String(s.rank));
    args.push(MORPHOLOGY.includes(s.op) ? `jnp.zeros(${tuple(s.window)})` : tuple(s.window), tuple(s.strides));
    const sides = [s.padding].flat(2);
    if (Array.isArray(s.padding) && new Set(sides).size === 1) args.push(String(sides[0]));
    else if (Array.isArray(s.padding)) args.push(`(${s.padding.map(tuple).join(", ")})`);
    else if (s.padding !== "VALID") args.push(`"${s.padding}"`);
    if (s.window_dilation.some((d) => d !== 1)) args.push(`window_dilation=${tuple(s.window_dilation)}`);
    if (s.ceil_mode) args.push("ceil_mode=True");
  }
  if (SELECTIONS.includes(s.op) && s.ties !== "first") args.push(`ties="${s.ties}"`);
  if (s.op === "avg" && !s.count_include_pad) args.push("count_include_pad=False");
  if (s.op === "avg" && s.divisor !== null) args.push(`divisor=${plain(s.divisor)}`);
  const call = `jaxpool.${names[s.op] ?? `${s.op}_pool`}(${args.join(", ")}, axes=(0, 1))`;
  return s.op === "unpool" ? `y, indices = ${call}\njaxpool.max_unpool(y, indices, (${x.rows}, ${x.cols}), axes=(0, 1))` : call;
}
