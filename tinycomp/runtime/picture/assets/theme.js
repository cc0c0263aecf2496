// Colours and marks: every target has both, so that nothing is told by colour alone.

// Okabe and Ito's palette, which readers with any colour vision can tell apart, in a light and a dark tone each.
const TARGET_COLOURS = [
  ["#0072b2", "#56b4e9"], ["#009e73", "#2fc79b"], ["#9a5fb0", "#c79be0"], ["#b08a00", "#f0e442"],
  ["#56707f", "#9fb4c0"], ["#7a5c3e", "#c9a27e"],
];
const HOST_COLOUR = ["#c4500a", "#ff9d52"];
const MARKS = ["circle", "square", "triangle", "diamond", "pentagon", "cross"];
const HOST_MARK = "ring";

class Theme {
  constructor(targets) {
    this.targets = targets;
    this.refresh();
  }

  refresh() {
    const style = getComputedStyle(document.documentElement);
    this.isDark = style.getPropertyValue("--scheme").trim() === "dark";
    for (const name of ["ink", "muted", "surface", "panel", "line", "accent", "node", "hot", "search"]) {
      this[name] = style.getPropertyValue(`--${name}`).trim();
    }
  }

  colour(target) {
    const pair = target ? TARGET_COLOURS[this.place(target) % TARGET_COLOURS.length] : HOST_COLOUR;
    return pair[this.isDark ? 1 : 0];
  }

  mark(target) {
    return target ? MARKS[this.place(target) % MARKS.length] : HOST_MARK;
  }

  place(target) {
    return Math.max(0, this.targets.indexOf(target));
  }

  // Share of the largest, as a colour between the node's own and the hot one; the bar below a node tells it as well.
  heat(share) {
    return mixed(this.node, this.hot, 0.08 + 0.84 * Math.sqrt(share));
  }
}

function mixed(a, b, share) {
  const [from, to] = [a, b].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * share)).join(",")})`;
}

// Draws the mark of a target around (x, y).
function drawMark(pen, mark, x, y, size, colour) {
  pen.fillStyle = colour;
  pen.strokeStyle = colour;
  pen.lineWidth = size * 0.4;
  pen.beginPath();
  const corners = {square: [4, Math.PI / 4], triangle: [3, -Math.PI / 2], diamond: [4, 0], pentagon: [5, -Math.PI / 2]}[mark];
  if (corners) {
    for (let i = 0; i < corners[0]; i++) {
      const angle = corners[1] + (2 * Math.PI * i) / corners[0];
      pen.lineTo(x + size * 1.1 * Math.cos(angle), y + size * 1.1 * Math.sin(angle));
    }
    pen.closePath();
    pen.fill();
  } else if (mark === "cross") {
    pen.moveTo(x - size, y);
    pen.lineTo(x + size, y);
    pen.moveTo(x, y - size);
    pen.lineTo(x, y + size);
    pen.stroke();
  } else {
    pen.arc(x, y, mark === "ring" ? size * 0.8 : size, 0, 2 * Math.PI);
    if (mark === "ring") pen.stroke();
    else pen.fill();
  }
}

// Numbers for people.
function si(value, unit = "") {
  for (const [prefix, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= size) return `${Number((value / size).toPrecision(3))} ${prefix}${unit}`;
  }
  return `${Number(value.toPrecision(3))}${unit ? ` ${unit}` : ""}`;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(3)} ms` : `${(seconds * 1e6).toFixed(1)} µs`;
}

function percent(share) {
  return `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

// Makes an element. Texts are set as text, never as markup.
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  for (const child of children) if (child !== null && child !== undefined) made.append(child);
  return made;
}
