"use strict";
// Marks for the selected number: its window, the elements that send and receive, and a
// description. Reads the state of page.js: pooled, dy, dx, pinned, pointed.

const KINDS = { max_pool: "maximum", min_pool: "minimum", avg_pool: "average", sum_pool: "sum", lp_pool: "norm", median_pool: "median", rank_pool: "element of this rank", dilate: "maximum", erode: "minimum", adaptive_max_pool: "maximum", adaptive_avg_pool: "average" };
const MOST_TERMS = 12; // in a sum that is written out

function mark() {
  const { side, at } = pointed ?? pinned;
  for (const cell of document.querySelectorAll("#board td")) {
    cell.classList.remove("current", "on", "reached", "tap");
    cell.tabIndex = -1;
    cell.removeAttribute("aria-selected");
  }
  document.querySelectorAll(".window").forEach((frame) => frame.remove());
  for (const panel of PANELS) {
    cellOf(panel, sideOf(panel) === pinned.side ? pinned.at : 0).tabIndex = 0;
    if (sideOf(panel) !== side) continue;
    cellOf(panel, at).classList.add("current");
    cellOf(panel, at).setAttribute("aria-selected", "true");
  }
  const links = linksOf(side, at);
  const [valued, sent] = side === "output" ? ["input", "gradient"] : ["output", "cotangent"];
  for (const { other, share } of links) {
    if (share !== 0) {
      cellOf(valued, other).classList.add("on");
      cellOf(sent, other).classList.add("reached");
    }
  }
  const outputs = side === "output" ? [at] : links.map(({ other }) => other);
  if (pooled.windows) outputs.forEach((output) => frame(output, outputs.length === 1));
  describe(side, at, links);
}

// The inputs of an output, or the outputs that read an input.
function linksOf(side, at) {
  if (side === "output") return pooled.links[at].map(([other, share]) => ({ other, share }));
  return pooled.links.flatMap((places, other) => places.filter(([input]) => input === at).map(([, share]) => ({ other, share })));
}

// Frame the window of an output; with `taps`, mark the elements of a window with gaps.
function frame(output, taps) {
  const { cols } = pooled.output;
  const axes = [pooled.windows[0][Math.floor(output / cols)], pooled.windows[1][output % cols]];
  const at = (r, c) => get("input").querySelector(`td[data-row="${r}"][data-col="${c}"]`);
  const first = at(axes[0].start, axes[1].start) ?? at(axes[0].taps[0], axes[1].taps[0]);
  const last = at(axes[0].last, axes[1].last) ?? at(axes[0].taps.at(-1), axes[1].taps.at(-1));
  const box = document.createElement("div");
  const gaps = axes.some(({ taps: real }) => real.length > 1 && real[1] - real[0] > 1);
  box.className = gaps ? "window gaps" : "window";
  const table = first.closest("table");
  const left = table.offsetLeft + first.offsetLeft - 2;
  const top = table.offsetTop + first.offsetTop - 2;
  box.style.cssText = `left:${left}px;top:${top}px;width:${table.offsetLeft + last.offsetLeft + last.offsetWidth + 2 - left}px;height:${table.offsetTop + last.offsetTop + last.offsetHeight + 2 - top}px`;
  get("input").querySelector(".scroll").append(box);
  if (gaps && taps) axes[0].taps.forEach((r) => axes[1].taps.forEach((c) => at(r, c).classList.add("tap")));
}

// Text

// The fewest digits that identify a float32.
function plain(value) {
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "inf").replace("NaN", "nan");
  const numbers = [6, 7, 8, 9].map((digits) => Number(value.toPrecision(digits)));
  return String(numbers.find((number) => Math.fround(number) === value) ?? value);
}

const even = (links) => links.length > 1 && links.every(({ share }) => share === links[0].share);

function describe(side, at, links) {
  const label = names();
  const going = links.filter(({ share }) => share !== 0);
  const [here, there] = side === "output" ? [pooled.output, pooled.input] : [pooled.input, pooled.output];
  const [own, others] = side === "output" ? ["output", "input"] : ["input", "output"];
  const said = [`${label[own][0]}${place(here, at)} = ${plain(here.values[at])}`];
  if (side === "output") {
    const target = ({ other }) => label.gradient[0] + place(there, other);
    const part = (share) => (share === 1 ? "" : `${written(share)} of it `);
    const to = even(going)
      ? `${part(going[0].share)}to each of ${listed(going.map(target))}`
      : listed(going.map((link) => `${part(link.share)}to ${target(link)}`));
    said[0] += `, the ${KINDS[pooled.op] ?? "result"} of ${counted(links, "number")} of ${label.input[0]}.`;
    said.push(`Its cotangent ${label.cotangent[0]}${place(here, at)} = ${plain(dy.values[at])} ${going.length ? `goes back ${to}` : "goes nowhere"}.`);
  } else {
    const unit = pooled.windows ? "window" : "output";
    said[0] += links.length ? `, in ${counted(links, unit)}: ${listed(links.map(({ other }) => label[others][0] + place(there, other)))}.` : `, in no ${unit}.`;
    const common = even(going) && going[0].share !== 1;
    const factor = ({ share }) => (common || share === 1 ? "" : `${written(share)} · `);
    const terms = going.map((link) => factor(link) + plain(dy.values[link.other]));
    const added = terms.length > MOST_TERMS ? `${terms.slice(0, MOST_TERMS).join(" + ")} + …` : terms.join(" + ");
    const sum = terms.length ? `${common ? `${written(going[0].share)} · (${added})` : added} = ` : "";
    const from = going.length ? `, from ${listed(going.map(({ other }) => label.cotangent[0] + place(there, other)))}` : ": nothing is sent here";
    said.push(`${label.gradient[0]}${place(here, at)} = ${sum}${plain(dx.values[at])}${from}.`);
  }
  get("detail").replaceChildren(...said.map((text) => Object.assign(document.createElement("p"), { textContent: text })));
  showEdit();
}

const counted = (links, unit) => (links.length === 1 ? `1 ${unit}` : `${links.length} ${unit}s`);
const listed = (words) => (words.length > MOST_TERMS ? `${words.slice(0, MOST_TERMS).join(", ")} and ${words.length - MOST_TERMS} more` : words.join(", "));

// A share as a fraction such as 1/3, or as a number if it is not a simple fraction.
function written(share) {
  for (let below = 2; below <= 64 && !Number.isInteger(share); below += 1) {
    const above = Math.round(share * below);
    if (above !== 0 && Math.abs(above / below - share) < 1e-6 * Math.abs(share)) return `${above}/${below}`;
  }
  return Number.isInteger(share) ? `${share}` : String(Number(share.toPrecision(4)));
}
