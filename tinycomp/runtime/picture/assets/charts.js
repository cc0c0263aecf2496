// Charts over time: the calls of a profiled run, the buffers of an arena, and what layers lose. All zoom and pan
// along time alone.

class Chart {
  constructor(holder, theme, events) {
    Object.assign(this, {theme, events, from: 0, until: 1, hovered: null});
    this.canvas = element("canvas", {tabIndex: 0});
    this.tip = element("div", {className: "tip", role: "status"});
    this.holder = element("div", {className: "chart"}, this.canvas, this.tip);
    holder.append(this.holder);
    new ResizeObserver(() => this.draw()).observe(this.holder);
    const at = (event) => {
      const bounds = this.canvas.getBoundingClientRect();
      return [event.clientX - bounds.left, event.clientY - bounds.top];
    };
    let down = null;
    let moved = 0;
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY * 0.0015), at(event)[0]);
    }, {passive: false});
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      down = at(event)[0];
      moved = 0;
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const [x, y] = at(event);
      if (down !== null) {
        moved += Math.abs(x - down);
        this.shift(((down - x) / this.w) * (this.until - this.from));
        down = x;
      }
      this.hover(this.itemAt(x, y), x, y);
    });
    this.canvas.addEventListener("pointerup", (event) => {
      down = null;
      const item = this.itemAt(...at(event));
      if (moved < 4 && item) this.events.picked(item);
    });
    this.canvas.addEventListener("pointerleave", () => this.hover(null, 0, 0));
    this.canvas.addEventListener("keydown", (event) => {
      const width = this.until - this.from;
      if (event.key === "+") this.zoom(0.8, this.w / 2);
      else if (event.key === "-") this.zoom(1.25, this.w / 2);
      else if (event.key === "ArrowLeft") this.shift(-0.1 * width);
      else if (event.key === "ArrowRight") this.shift(0.1 * width);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  zoom(factor, x) {
    const anchor = this.from + (x / this.w) * (this.until - this.from);
    const width = Math.min(1, Math.max(1e-5, (this.until - this.from) * factor));
    this.from = Math.max(0, Math.min(1 - width, anchor - (x / this.w) * width));
    this.until = this.from + width;
    this.draw();
  }

  shift(by) {
    const width = this.until - this.from;
    this.from = Math.max(0, Math.min(1 - width, this.from + by));
    this.until = this.from + width;
    this.draw();
  }

  hover(item, x, y) {
    this.hovered = item;
    this.tip.textContent = item ? item.tip : "";
    this.tip.hidden = !item;
    if (item) {
      this.tip.style.left = `${Math.min(x + 14, Math.max(0, this.w - this.tip.offsetWidth - 8))}px`;
      this.tip.style.top = `${Math.min(y + 14, Math.max(0, this.h - this.tip.offsetHeight - 4))}px`;
    }
    this.draw();
  }

  // Items are {start, end} as shares of the width, {top, height} in pixels from above, colour, text and tip.
  itemAt(x, y) {
    const share = this.from + (x / this.w) * (this.until - this.from);
    const slack = (1.5 / this.w) * (this.until - this.from);
    const found = (this.placed || []).filter((i) => share >= i.start - slack && share <= i.end + slack && y >= i.top && y <= i.top + i.height);
    return found.length ? found[found.length - 1] : null;
  }

  draw() {
    const {clientWidth: w, clientHeight: h} = this.holder;
    if (!w || !h) return;
    Object.assign(this, {w, h});
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = w * ratio;
    this.canvas.height = h * ratio;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    this.placed = this.items(w, h);
    const across = (share) => ((share - this.from) / (this.until - this.from)) * w;
    pen.textBaseline = "middle";
    for (const item of this.placed) {
      const x = across(item.start);
      const width = Math.max(1, across(item.end) - x - 1);
      if (x > w || x + width < 0) continue;
      pen.fillStyle = item.colour;
      pen.fillRect(x, item.top, width, Math.max(1, item.height - 1));
      if (item === this.hovered || item.isChosen) {
        pen.lineWidth = 2;
        pen.strokeStyle = item.isChosen ? this.theme.accent : this.theme.ink;
        pen.strokeRect(x + 1, item.top + 1, Math.max(1, width - 2), Math.max(1, item.height - 3));
      }
      const seen = Math.min(w, x + width) - Math.max(0, x);
      if (item.text && seen > 34 && item.height > 13) {
        pen.fillStyle = this.theme.ink;
        pen.font = `11px ${FONT}`;
        pen.fillText(fitted(pen, item.text, seen - 12), Math.max(0, x) + 6, item.top + Math.min(item.height / 2, 12));
      }
    }
    this.axis(pen, w, h);
  }

  axis(pen, w, h) {
    pen.fillStyle = this.theme.muted;
    pen.font = `10px ${FONT}`;
    const step = niceStep(((this.until - this.from) * this.extent()) / Math.max(2, w / 110));
    for (let value = Math.ceil((this.from * this.extent()) / step) * step; value <= this.until * this.extent() + step / 1e6; value += step) {
      const x = ((value / this.extent() - this.from) / (this.until - this.from)) * w;
      pen.fillRect(x, h - 18, 1, 4);
      pen.fillText(this.label(value), Math.min(x + 3, w - 50), h - 9);
    }
  }
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-12)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

// The calls of one run, end to end, under the steps that made them.
class Timeline extends Chart {
  constructor(holder, picture, theme, events) {
    super(holder, theme, events);
    this.picture = picture;
    this.calls = picture.data.calls;
    this.whole = this.calls.reduce((sum, call) => sum + call.seconds, 0) || 1;
    this.slowest = largest(this.calls, (call) => call.seconds);
    this.canvas.ariaLabel = "Timeline of the kernel calls of one run";
  }

  extent() { return this.whole; }

  label(value) { return duration(value); }

  items(w, h) {
    const {theme, picture, calls} = this;
    const found = [];
    const height = Math.min(46, Math.max(16, (h - 34) / 2));
    let clock = 0;
    let step = null;
    calls.forEach((call) => {
      const start = clock / this.whole;
      clock += call.seconds;
      const end = clock / this.whole;
      const target = picture.data.targets.includes(call.target) ? call.target : "";
      if (step && step.text === call.step) step.end = end;
      else {
        step = {
          start, end, top: 6, height, text: call.step, colour: mixed(theme.node, theme.colour(target), 0.45),
          nodes: picture.graph.nodes.filter((node) => node.kind === "region" && node.op === call.step).map((node) => node.index),
        };
        if (!step.nodes.length) step.nodes = call.nodes;
        found.push(step);
      }
      const name = call.algorithm ? `${call.kernel}, ${call.algorithm}` : call.kernel;
      const rates = [call.gflops ? `${call.gflops.toFixed(1)} GFLOP/s` : "", call.peak ? `${percent(call.peak)} of peak` : "", call.bytes ? si(call.bytes, "B") : ""];
      const nodes = call.nodes.map((index) => picture.graph.nodes[index].label).join(", ");
      found.push({
        start, end, top: 8 + height, height, text: name, nodes: call.nodes, colour: theme.heat(call.seconds / this.slowest),
        tip: [`${name}: ${duration(call.seconds)}, ${percent(call.seconds / this.whole)}`, nodes, ...rates].filter(Boolean).join("\n"),
        isChosen: picture.selected && call.nodes.some((index) => this.isWithin(index)),
      });
    });
    for (const each of found) if (!each.tip) each.tip = `${each.text}: ${duration((each.end - each.start) * this.whole)}, ${percent(each.end - each.start)}`;
    return found;
  }

  isWithin(index) {
    const {selected} = this.picture;
    for (let node = this.picture.graph.nodes[index]; node && node.index >= 0; node = node.scope) if (node === selected) return node.kind !== "region";
    return false;
  }
}

// When each buffer of an arena is in use, and where it lies.
class ArenaChart extends Chart {
  constructor(holder, picture, theme, events) {
    super(holder, theme, events);
    this.picture = picture;
    this.arena = picture.data.arenas[0];
    this.canvas.ariaLabel = "Buffers of an arena: calls from left to right, bytes from below";
    this.bySource = new Map();
    for (const node of picture.graph.leaves) for (const source of node.sources) if (!this.bySource.has(source)) this.bySource.set(source, node.index);
  }

  show(arena) {
    Object.assign(this, {arena, from: 0, until: 1});
    this.draw();
  }

  extent() { return Math.max(1, this.arena.calls.length); }

  label(value) { return Number.isInteger(value) ? `call ${value}` : ""; }

  items(w, h) {
    const {arena, theme, picture} = this;
    const count = this.extent();
    const room = h - 26;
    const most = largest(arena.blocks, (block) => block[1], 1);
    const colour = theme.colour((picture.graph.nodes.find((node) => node.op === arena.region) || {}).target);
    return arena.blocks.map(([offset, size, first, last]) => {
      const [kernel, sources] = arena.calls[first] || ["", ""];
      const height = Math.max(1.5, (size / arena.size) * room);
      const nodes = sources.split(", ").filter((name) => this.bySource.has(name)).map((name) => this.bySource.get(name));
      return {
        start: first / count, end: Math.min(1, (last + 1) / count), top: 4 + room - (offset / arena.size) * room - height, height, nodes,
        colour: mixed(theme.node, colour, 0.25 + 0.5 * (size / most)), text: si(size, "B"),
        tip: `${si(size, "B")} at byte ${offset}\nwritten by call ${first}: ${kernel} ${sources}\nlast used by call ${Math.min(last, count - 1)}: ${(arena.calls[Math.min(last, count - 1)] || [""])[0]}`,
        isChosen: picture.selected && nodes.includes(picture.selected.index),
      };
    }).sort((a, b) => b.height - a.height);
  }
}

// Signal to noise of every layer, in order, and below it where its errors lie, in steps.
class AccuracyChart extends Chart {
  constructor(holder, picture, theme, events) {
    super(holder, theme, events);
    this.picture = picture;
    this.accuracy = picture.data.accuracy;
    this.canvas.ariaLabel = "Layers from left to right: signal to noise upwards, and errors in steps below";
  }

  extent() { return Math.max(1, this.accuracy.layers.length); }

  label(value) { return Number.isInteger(value) ? `layer ${value + 1}` : ""; }

  items(w, h) {
    const {accuracy, theme, picture} = this;
    const count = this.extent();
    const rows = accuracy.edges.length + 1;
    const names = 18;
    const room = (h - 26 - names) * 0.68;
    const cell = (h - 34 - names - room) / rows;
    const most = largest(accuracy.layers, (layer) => Math.max(0, ...[layer.best, layer.alone, layer.here].filter(isFinite)), 1);
    const kinds = [["alone", 0.55], ["here", 0.3], ["target", 0.8]].filter(([kind]) => accuracy.layers.some((layer) => layer[kind] !== null));
    const found = [];
    accuracy.layers.forEach((layer, at) => {
      const nodes = picture.graph.nodes.filter((node) => node.layer === at).map((node) => node.index);
      const chosen = picture.selected && picture.selected.layer === at;
      const departs = layer.departs || layer.target_departs;
      const own = departs ? theme.hot : theme.colour(picture.data.targets[0]);
      const tip = accuracyFacts(accuracy, layer).map(([name, text]) => (text ? `${name}: ${text}` : "")).filter(Boolean).join("\n");
      const bar = (from, until, decibels, colour) => {
        const height = Math.max(1, (Math.min(most, Math.max(0, decibels)) / most) * room);
        found.push({start: (at + from) / count, end: (at + until) / count, top: names + 4 + room - height, height, colour, text: "", tip, nodes});
      };
      found.push({start: at / count, end: (at + 1) / count, top: 2, height: names, colour: theme.panel, text: layer.name, tip, nodes, isChosen: chosen});
      bar(0.02, 0.98, layer.best ?? 0, mixed(theme.node, theme.muted, 0.18));
      kinds.forEach(([kind, share], place) => {
        const width = 0.8 / kinds.length;
        bar(0.1 + place * width, 0.1 + (place + 1) * width, layer[kind] ?? most, mixed(theme.node, own, departs ? 1 : share));
      });
      const top = largest(layer.histogram, (share) => share, 1e-9);
      layer.histogram.forEach((share, bin) => {
        if (!share) return;
        found.push({
          start: (at + 0.1) / count, end: (at + 0.9) / count, top: names + 12 + room + (rows - 1 - bin) * cell, height: cell, nodes,
          colour: mixed(theme.node, own, 0.12 + 0.88 * Math.sqrt(share / top)), text: "",
          tip: `${layer.name}\n${percent(share)} of the numbers are ${binText(accuracy.edges, bin)} steps off`,
        });
      });
    });
    return found;
  }
}

function binText(edges, bin) {
  if (bin === 0) return `less than ${edges[0]}`;
  return bin === edges.length ? `more than ${edges[bin - 1]}` : `${edges[bin - 1]} to ${edges[bin]}`;
}

// What is known of a layer, as pairs of a name and a text.
function accuracyFacts(accuracy, layer) {
  const ratio = (decibels) => (decibels === null ? "exact" : `${decibels.toFixed(1)} dB`);
  const isOnTarget = layer.apart !== null;
  return [
    ["layer", layer.name],
    ["rounding alone", ratio(layer.best)],
    ["layer by itself", `${ratio(layer.alone)}${layer.departs ? ", departs" : ""}`],
    ["with those before", ratio(layer.here)],
    ["on the target", isOnTarget ? ratio(layer.target) : ""],
    ["target beside the model", isOnTarget ? `${ratio(layer.agreement)}, up to ${layer.apart} steps${layer.target_departs ? ", departs" : ""}` : ""],
    ["outside of the range", layer.clipped ? percent(layer.clipped) : ""],
  ];
}
