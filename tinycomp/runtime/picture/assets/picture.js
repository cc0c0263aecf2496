// The graph on a canvas: boxes in boxes, wires between them, and a camera. What is outside the window is not drawn.

const HEADER = 26;         // of an open container
const PAD = 16;            // around what it holds
const BOX_HEIGHT = 46;
const MAX_BOX = 210;
const FONT = "system-ui, sans-serif";
const BORDERS = new Set(["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"]);
const rulerPen = document.createElement("canvas").getContext("2d");

// Joins the numbered data into objects: nodes with children, who makes a value, and who reads it in which scope.
class Graph {
  constructor(data) {
    this.data = data;
    this.nodes = data.nodes.map((node, index) => ({...node, index, children: [], isOpen: false, box: null}));
    this.root = {
      index: -1, kind: "root", op: data.model, label: data.model, target: "", sources: [], parent: -1, reads: [], writes: [],
      takes: data.inputs, gives: data.outputs, children: [], isOpen: true, calls: [], reasons: [], attributes: {},
    };
    for (const node of this.nodes) {
      const layer = node.layer < 0 ? null : data.accuracy.layers[node.layer];
      node.loss = layer && layer.best !== null && layer.alone !== null ? Math.max(0, layer.best - layer.alone) : 0;
      node.scope = node.parent < 0 ? this.root : this.nodes[node.parent];
      node.scope.children.push(node);
    }
    this.makers = new Map();
    this.readers = new Map();
    for (const node of this.nodes) {
      for (const value of node.writes) if (value >= 0) this.makers.set(value, node);
      node.reads.forEach((value, slot) => {
        if (value < 0 || data.values[value][3]) return;
        if (!this.readers.has(value)) this.readers.set(value, []);
        this.readers.get(value).push([node, slot]);
      });
    }
    for (const node of this.nodes) {
      node.hasInside = node.children.length > 0;
      node.isOpen = node.hasInside && node.kind !== "composite" && node.kind !== "function";
      node.isHost = !node.target && node.kind !== "body";
      node.isBorder = node.kind === "conversion" || BORDERS.has(node.op);
      // Control flow hands its operands on to its bodies under their own numbers.
      if (node.kind === "control" && node.hasInside) {
        const read = new Set(node.children.flatMap((body) => body.reads));
        node.takes = node.reads.map((value) => (read.has(value) ? value : -1));
        node.gives = node.writes;
      }
    }
    this.leaves = this.nodes.filter((node) => !node.hasInside);
    this.maxima = {
      seconds: largest(this.nodes, (node) => (node.kind === "region" ? 0 : node.seconds || 0)),
      macs: largest(this.nodes, (node) => (["region", "control"].includes(node.kind) ? 0 : node.macs)),
      loss: largest(this.nodes, (node) => node.loss),
    };
    this.totals = {
      seconds: data.profile ? data.profile.seconds : 0,
      macs: this.leaves.reduce((sum, node) => sum + node.macs, 0),
    };
  }

  isVisible(node) {
    for (let scope = node.scope; scope.index >= 0; scope = scope.scope) if (!scope.isOpen) return false;
    return true;
  }

  // The node itself, or the closed container that hides it.
  shown(node) {
    let seen = node;
    for (let scope = node.scope; scope.index >= 0; scope = scope.scope) if (!scope.isOpen) seen = scope;
    return seen;
  }

  reveal(node) {
    let changed = false;
    for (let scope = node.scope; scope.index >= 0; scope = scope.scope) {
      changed = changed || !scope.isOpen;
      scope.isOpen = true;
      scope.inner = scope.isOpen ? scope.inner : null;
    }
    if (changed) this.forgetAround(node);
    return changed;
  }

  forgetAround(node) {
    for (let each = node; each; each = each.scope) each.inner = null;
    this.root.inner = null;
  }

  // Visible nodes that data flows to from a node, or that it comes from.
  neighbours(node, goesDown) {
    const found = new Set();
    const waiting = (goesDown ? node.writes : node.reads).map((value, slot) => [value, node.scope, slot]);
    while (waiting.length) {
      const [value, scope] = waiting.pop();
      if (value < 0) continue;
      if (goesDown) {
        for (const [reader, slot] of this.readers.get(value) || []) {
          if (reader.isOpen && reader.takes[slot] >= 0 && reader.takes[slot] !== value) waiting.push([reader.takes[slot], reader]);
          else found.add(reader);
        }
        // What a body gives are the last results of the control flow that it belongs to.
        const outer = scope.kind === "body" ? scope.scope : scope;
        const skipped = scope.gives.length - outer.writes.length;
        scope.gives.forEach((given, i) => {
          if (given === value && scope.index >= 0 && outer.kind !== "root") waiting.push([outer.writes[i - skipped] ?? -1, outer.scope]);
        });
      } else {
        const maker = this.makers.get(value);
        const place = scope.takes.indexOf(value);
        if (maker && maker.isOpen && maker.kind !== "control") {
          waiting.push([maker.gives[maker.writes.indexOf(value)] ?? -1, maker]);
        } else if (maker) found.add(maker);
        else if (place >= 0 && scope.index >= 0) waiting.push([scope.reads[place], scope.scope]);
      }
    }
    return [...found].sort((a, b) => a.index - b.index);
  }
}

class Picture {
  // caption: what lies over the top of the picture, if there is something.
  constructor(canvas, minimap, data, theme, events, caption) {
    this.caption = caption;
    this.canvas = canvas;
    this.minimap = minimap;
    this.graph = new Graph(data);
    this.data = data;
    this.theme = theme;
    this.events = events;
    this.camera = {x: 0, y: 0, k: 1};
    this.heat = "none";
    this.wraps = true;
    this.selected = null;
    this.hovered = null;
    this.matches = null;
    this.listen();
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    this.layout();
  }

  // ---- layout

  layout() {
    const {nodes, root} = this.graph;
    for (let index = nodes.length - 1; index >= 0; index--) {
      const node = nodes[index];
      if (node.isOpen && !node.inner && this.graph.isVisible(node)) this.layOut(node);
    }
    if (!root.inner) this.layOut(root);
    root.box = {x: 0, y: 0, w: root.inner.w, h: root.inner.h};
    for (const scope of [root, ...nodes]) {
      scope.isSeen = scope === root || (scope.scope.isSeen && scope.scope.isOpen);
      if (!scope.isOpen || !scope.isSeen) continue;
      const {dx, dy, at} = scope.inner;
      scope.children.forEach((child, i) => {
        child.box = {x: scope.box.x + dx + at.x[i], y: scope.box.y + dy + at.y[i], w: child.size.w, h: child.size.h};
      });
      scope.inner.ports.forEach((port, i) => {
        const place = scope.children.length + i;
        port.box = {x: scope.box.x + dx + at.x[place], y: scope.box.y + dy + at.y[place], w: port.w, h: port.h};
      });
    }
    this.seen = nodes.filter((node) => node.isSeen);
    this.drawMinimap();
    this.draw();
  }

  // Lays out what an open node holds, whose open children are laid out already.
  layOut(scope) {
    const isRoot = scope === this.graph.root;
    const ports = [];
    const boxes = scope.children.map((child) => {
      child.size = child.isOpen ? {w: child.inner.w, h: child.inner.h} : this.boxSize(child);
      return {...child.size, isCentred: child.isOpen && child.kind !== "region"};
    });
    const sources = new Map();
    const wires = [];
    const place = new Map(scope.children.map((child, i) => [child, i]));
    const wireOf = (value, from, x, source) => {
      if (!sources.has(value)) {
        sources.set(value, wires.length);
        wires.push({from, x, to: [], value, source, readers: []});
      }
      return wires[sources.get(value)];
    };
    const addPort = (value, slot, isInput) => {
      const name = this.data.values[value][0];
      const size = isRoot ? {w: Math.min(MAX_BOX, Math.max(80, width(name, "600 12px") + 30)), h: 36} : {w: 2, h: 0};
      boxes.push({...size});
      ports.push({...size, value, slot, isInput, name});
      return boxes.length - 1;
    };
    const first = [];
    scope.takes.forEach((value, slot) => {
      const isRead = (this.graph.readers.get(value) || []).some(([node]) => place.has(node));
      if (value < 0 || this.data.values[value][3] || (!isRead && !isRoot) || sources.has(value)) return;
      const box = addPort(value, slot, true);
      first.push(box);
      wireOf(value, box, boxes[box].w / 2, null);
    });
    const isControl = scope.kind === "control";
    for (const child of scope.children) {
      const outs = child.writes.map((value, i) => [value, i]).filter(([value]) => value >= 0);
      outs.forEach(([value, slot], i) => wireOf(value, place.get(child), this.outX(child, slot, i, outs.length), child));
    }
    for (const child of scope.children) {
      const flowing = child.reads.map((value, slot) => [value, slot]).filter(([value]) => sources.has(value));
      flowing.forEach(([value, slot]) => {
        const wire = wireOf(value);
        if (!child.isOpen && wire.to.some((t) => t.box === place.get(child))) return;
        const x = child.isOpen ? this.portX(child, child.takes[slot], true) : null;
        if (child.isOpen && x === null) return;
        wire.to.push({box: place.get(child), x});
        wire.readers.push(child);
      });
    }
    const last = [];
    scope.gives.forEach((value, slot) => {
      if (value < 0 || (!isControl && !sources.has(value))) return;
      const box = addPort(value, slot, false);
      last.push(box);
      if (isControl) {
        for (const body of scope.children) {
          wires.push({from: place.get(body), x: boxes[place.get(body)].w / 2, to: [{box, x: 1}], value, source: body, readers: []});
        }
      } else wireOf(value).to.push({box, x: boxes[box].w / 2});
    });
    const used = wires.filter((wire) => wire.to.length);
    const at = layered(boxes, used, first, last, this.wraps);
    const title = isRoot ? 0 : Math.min(320, width(this.title(scope), "600 12px") + 74);
    const inside = Math.max(at.w, title);
    scope.inner = {
      at, ports, wires: used, dx: PAD + (inside - at.w) / 2, dy: isRoot ? PAD : HEADER + PAD,
      w: inside + 2 * PAD, h: at.h + 2 * PAD + (isRoot ? 0 : HEADER),
    };
  }

  outX(child, slot, i, count) {
    if (!child.isOpen) return child.size.w * (0.5 + ((i + 1) / (count + 1) - 0.5) * 0.8);
    return this.portX(child, child.gives[slot], false) ?? child.size.w / 2;
  }

  portX(child, value, isInput) {
    const {ports, at, dx} = child.inner;
    const index = ports.findIndex((port) => port.value === value && port.isInput === isInput);
    return index < 0 ? null : dx + at.x[child.children.length + index] + 1;
  }

  boxSize(node) {
    const text = Math.max(width(this.title(node), "600 12px"), Math.min(150, width(this.subtitle(node), "11px")));
    return {w: Math.round(Math.min(MAX_BOX, Math.max(92, text + 42 + (node.hasInside ? 14 : 0)))), h: BOX_HEIGHT};
  }

  title(node) {
    if (node.kind === "composite") return node.op.startsWith(`${node.target}.`) ? node.op.slice(node.target.length + 1) : node.op;
    return node.op;
  }

  subtitle(node) {
    if (node.kind === "region") return `${node.target}, ${node.children.length} steps`;
    // Of a composite, the node that does most of its work stands for it.
    const main = node.kind === "composite" && node.hasInside ? node.children.reduce((a, b) => (b.macs > a.macs ? b : a), node.children[0]) : node;
    const named = main.macs || node.kind !== "composite" ? main : node;
    return tail(named.sources[0] || named.label, 26);
  }

  // ---- camera

  resize() {
    const {clientWidth: w, clientHeight: h} = this.canvas.parentElement;
    const ratio = window.devicePixelRatio || 1;
    if (!w || !h) return;
    const isFirst = !this.w;
    Object.assign(this, {w, h, ratio});
    this.canvas.width = Math.round(w * ratio);
    this.canvas.height = Math.round(h * ratio);
    this.canvas.style.width = `${w}px`;
    this.canvas.style.height = `${h}px`;
    if (isFirst || this.isFitted) this.fit();
    else this.draw();
  }

  fit() {
    const {w, h} = this.graph.root.box;
    const top = this.caption ? this.caption.offsetTop + this.caption.offsetHeight : 0;
    const k = Math.min(1.25, (this.w - 24) / w, (this.h - top - 24) / h);
    this.camera = {k, x: (this.w - w * k) / 2, y: top + (this.h - top - h * k) / 2};
    this.isFitted = true;
    this.draw();
  }

  zoom(factor, x = this.w / 2, y = this.h / 2) {
    const {camera} = this;
    const k = Math.max(0.01, Math.min(4, camera.k * factor));
    camera.x = x - ((x - camera.x) * k) / camera.k;
    camera.y = y - ((y - camera.y) * k) / camera.k;
    camera.k = k;
    this.isFitted = false;
    this.draw();
  }

  centre(node, least = 0.7) {
    const {x, y, w, h} = node.box;
    const k = Math.max(this.camera.k, Math.min(least, (this.w - 40) / w, (this.h - 40) / h));
    this.isFitted = false;
    this.camera = {k, x: this.w / 2 - (x + w / 2) * k, y: this.h / 2 - (y + Math.min(h, this.h / k) / 2) * k};
    this.draw();
  }

  isInView(node) {
    const [x, y] = this.toScreen(node.box.x, node.box.y);
    return x >= 0 && y >= 0 && x + node.box.w * this.camera.k <= this.w && y + Math.min(node.box.h, 60) * this.camera.k <= this.h;
  }

  toScreen(x, y) {
    return [x * this.camera.k + this.camera.x, y * this.camera.k + this.camera.y];
  }

  toWorld(x, y) {
    return [(x - this.camera.x) / this.camera.k, (y - this.camera.y) / this.camera.k];
  }

  nodeAt(screenX, screenY) {
    const [x, y] = this.toWorld(screenX, screenY);
    for (let i = this.seen.length - 1; i >= 0; i--) {
      const {box} = this.seen[i];
      if (x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.y + box.h) return this.seen[i];
    }
    return null;
  }

  // ---- what the user does

  select(node, options = {}) {
    this.selected = node;
    if (node && options.reveal && this.graph.reveal(node)) this.layout();
    if (node && options.centre && (options.always || !this.isInView(node))) this.centre(node);
    this.draw();
    if (!options.isSilent) this.events.selected(node);
  }

  toggle(node) {
    if (!node || !node.hasInside) return;
    const [x, y] = this.toScreen(node.box.x, node.box.y);
    node.isOpen = !node.isOpen;
    this.graph.forgetAround(node);
    this.layout();
    this.camera.x += x - (node.box.x * this.camera.k + this.camera.x);
    this.camera.y += y - (node.box.y * this.camera.k + this.camera.y);
    this.draw();
  }

  // Opens or closes all nodes of some kinds.
  setOpen(kinds, isOpen) {
    for (const node of this.graph.nodes) {
      if (node.hasInside && kinds.includes(node.kind)) node.isOpen = isOpen;
      node.inner = null;
    }
    this.graph.root.inner = null;
    this.layout();
    this.fit();
  }

  setWrap(wraps) {
    this.wraps = wraps;
    for (const node of [this.graph.root, ...this.graph.nodes]) node.inner = null;
    this.layout();
    this.fit();
  }

  move(key) {
    const {selected, seen} = this;
    if (!selected) return this.select(seen.find((node) => !node.isOpen) || seen[0] || null, {centre: true});
    if (key === "ArrowDown" || key === "ArrowUp") {
      const next = this.graph.neighbours(selected, key === "ArrowDown")[0];
      return next ? this.select(this.graph.shown(next), {centre: true}) : undefined;
    }
    const sign = key === "ArrowRight" ? 1 : -1;
    const {box} = selected;
    let best = null;
    let bestCost = Infinity;
    for (const node of seen) {
      if (node === selected || node.isOpen) continue;
      const dx = sign * (node.box.x + node.box.w / 2 - box.x - box.w / 2);
      const dy = Math.abs(node.box.y + node.box.h / 2 - box.y - box.h / 2);
      const cost = dx + 4 * dy;
      if (dx > 1 && cost < bestCost) [best, bestCost] = [node, cost];
    }
    return best ? this.select(best, {centre: true}) : undefined;
  }

  listen() {
    const {canvas} = this;
    const pointers = new Map();
    let moved = 0;
    const at = (event) => {
      const bounds = canvas.getBoundingClientRect();
      return [event.clientX - bounds.left, event.clientY - bounds.top];
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey) {
        this.camera.x -= event.deltaY || event.deltaX;
        this.draw();
      } else this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), ...at(event));
    }, {passive: false});
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, at(event));
      moved = pointers.size > 1 ? 99 : 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = at(event);
      const before = pointers.get(event.pointerId);
      if (!before) {
        const node = this.nodeAt(x, y);
        if (node !== this.hovered) {
          this.hovered = node;
          canvas.style.cursor = node ? "pointer" : "grab";
          this.draw();
        }
        return;
      }
      if (pointers.size === 2) {
        const other = [...pointers.entries()].find(([id]) => id !== event.pointerId)[1];
        const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
        this.zoom(distance([x, y], other) / Math.max(1, distance(before, other)), ...other);
      } else {
        this.isFitted = false;
        this.camera.x += x - before[0];
        this.camera.y += y - before[1];
        moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
        if (moved > 4) canvas.style.cursor = "grabbing";
        this.draw();
      }
      pointers.set(event.pointerId, [x, y]);
    });
    const lift = (event) => {
      const [x, y] = at(event);
      const wasDown = pointers.delete(event.pointerId);
      canvas.style.cursor = "grab";
      if (!wasDown || moved > 4 || event.type !== "pointerup") return;
      const node = this.nodeAt(x, y);
      if (node && node.hasInside && this.isOnToggle(node, x, y)) this.toggle(node);
      else this.select(node);
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("dblclick", (event) => {
      const node = this.nodeAt(...at(event));
      if (node) this.toggle(node.hasInside ? node : node.scope.index >= 0 && node.scope.kind === "composite" ? node.scope : null);
    });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key.startsWith("Arrow")) this.move(event.key);
      else if (event.key === "Enter" || event.key === " ") this.toggle(this.selected);
      else return;
      event.preventDefault();
    });
    this.minimap.addEventListener("pointerdown", (event) => this.goTo(event));
    this.minimap.addEventListener("pointermove", (event) => { if (event.buttons) this.goTo(event); });
  }

  isOnToggle(node, x, y) {
    const [left, top] = this.toScreen(node.box.x + node.box.w, node.box.y);
    const size = HEADER * this.camera.k;
    return this.camera.k > 0.3 && x > left - size && y < top + (node.isOpen ? size : node.box.h * this.camera.k);
  }

  goTo(event) {
    const bounds = this.minimap.getBoundingClientRect();
    const {scale, x, y} = this.mapped;
    this.camera.x = this.w / 2 - ((event.clientX - bounds.left - x) / scale) * this.camera.k;
    this.camera.y = this.h / 2 - ((event.clientY - bounds.top - y) / scale) * this.camera.k;
    this.draw();
  }

  // ---- drawing

  draw() {
    if (this.isWaiting || !this.w) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      this.paint();
    });
  }

  paint() {
    const {theme, camera, w, h} = this;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = theme.surface;
    pen.fillRect(0, 0, w, h);
    pen.setTransform(this.ratio * camera.k, 0, 0, this.ratio * camera.k, this.ratio * camera.x, this.ratio * camera.y);
    const [left, top] = this.toWorld(0, 0);
    const [right, bottom] = this.toWorld(w, h);
    this.window = {left, top, right, bottom};
    this.paintWires(pen, this.graph.root);
    this.paintPorts(pen);
    for (const node of this.seen) {
      if (!this.isInWindow(node.box)) continue;
      pen.globalAlpha = this.matches && !this.matches.has(node) && !node.isOpen ? 0.25 : 1;
      if (node.isOpen) {
        this.paintContainer(pen, node);
        this.paintWires(pen, node);
      } else this.paintBox(pen, node);
    }
    pen.globalAlpha = 1;
    if (this.selected) this.paintFlow(pen, this.selected);
    for (const scope of [this.graph.root, ...this.seen]) if (scope.isOpen && this.isInWindow(scope.box)) this.paintLabels(pen, scope);
    this.paintWindowOnMinimap();
  }

  isInWindow(box, margin = 0) {
    const {left, top, right, bottom} = this.window;
    return box.x - margin < right && box.x + box.w + margin > left && box.y - margin < bottom && box.y + box.h + margin > top;
  }

  paintContainer(pen, node) {
    const {theme, camera} = this;
    const {x, y, w, h} = node.box;
    const colour = theme.colour(node.target);
    const isRegion = node.kind === "region";
    rounded(pen, x, y, w, h, isRegion ? 12 : 8);
    pen.fillStyle = mixedWith(theme.surface, colour, isRegion ? 0.1 : 0.05);
    pen.fill();
    pen.setLineDash(node.isHost ? [7, 5] : node.kind === "composite" || node.kind === "body" ? [3, 3] : []);
    pen.lineWidth = isRegion ? 2.5 : 1.2;
    pen.strokeStyle = colour;
    pen.stroke();
    pen.setLineDash([]);
    if (node === this.selected || node === this.hovered) this.paintRing(pen, node, isRegion ? 12 : 8);
    // Titles of regions stay readable from afar.
    const size = Math.max(1, Math.min(1.9, 9 / (12 * camera.k), w / 150));
    if (12 * camera.k * size < 5) {
      if (isRegion && w * camera.k > 90) this.paintFarTitle(pen, node, colour);
      return;
    }
    pen.save();
    pen.translate(x + 14, y + HEADER / 2 + 2 + (size > 1 ? (size - 1) * 4 : 0));
    pen.scale(size, size);
    drawMark(pen, theme.mark(node.target), 0, 0, 5, colour);
    pen.fillStyle = theme.ink;
    pen.font = `600 12px ${FONT}`;
    pen.textBaseline = "middle";
    pen.fillText(fitted(pen, this.title(node), (w - 62) / size), 12, 0.5);
    const drawn = pen.measureText(fitted(pen, this.title(node), (w - 62) / size)).width;
    const note = this.figure(node);
    pen.font = `11px ${FONT}`;
    if (note && drawn + pen.measureText(note).width < (w - 76) / size) {
      pen.fillStyle = theme.muted;
      pen.fillText(note, 20 + drawn, 0.5);
    }
    pen.restore();
    this.paintToggle(pen, x + w - 15, y + HEADER / 2 + 2, true);
  }

  // Above the frame, since there is no room for letters inside that could be read.
  paintFarTitle(pen, node, colour) {
    const {theme, camera} = this;
    const size = 10 / camera.k;
    const y = node.box.y - size * 0.6;
    drawMark(pen, theme.mark(node.target), node.box.x + size * 0.5, y, size * 0.4, colour);
    pen.fillStyle = theme.ink;
    pen.font = `600 ${size}px ${FONT}`;
    pen.textBaseline = "middle";
    pen.fillText(fitted(pen, `${this.title(node)}  ${this.figure(node)}`, node.box.w - size * 1.2), node.box.x + size * 1.2, y);
  }

  paintToggle(pen, x, y, isOpen) {
    pen.strokeStyle = this.theme.muted;
    pen.lineWidth = 1.6;
    pen.beginPath();
    if (isOpen) {
      pen.moveTo(x - 4, y - 2);
      pen.lineTo(x, y + 2);
      pen.lineTo(x + 4, y - 2);
    } else {
      pen.moveTo(x - 2, y - 4);
      pen.lineTo(x + 2, y);
      pen.lineTo(x - 2, y + 4);
    }
    pen.stroke();
  }

  paintRing(pen, node, radius) {
    const {x, y, w, h} = node.box;
    rounded(pen, x - 3, y - 3, w + 6, h + 6, radius + 3);
    pen.lineWidth = node === this.selected ? Math.max(3, 2 / this.camera.k) : 1.5;
    pen.strokeStyle = node === this.selected ? this.theme.accent : this.theme.muted;
    pen.stroke();
  }

  share(node) {
    const most = this.heat === "none" ? 0 : this.graph.maxima[this.heat];
    return most ? (node[this.heat] || 0) / most : 0;
  }

  // The figure that the heat shows, else the MACs, as text.
  figure(node) {
    if (this.heat === "seconds" && node.seconds) {
      return `${duration(node.seconds)} · ${percent(node.seconds / this.graph.totals.seconds)}`;
    }
    if (this.heat === "macs" && node.macs) return `${si(node.macs)} MACs · ${percent(node.macs / this.graph.totals.macs)}`;
    if (this.heat === "loss" && node.loss) return `${node.loss.toFixed(1)} dB lost`;
    if (node.kind === "region") return [node.macs ? `${si(node.macs)} MACs` : "", duration(node.seconds)].filter(Boolean).join(" · ");
    return "";
  }

  paintBox(pen, node) {
    const {theme, camera} = this;
    const {x, y, w, h} = node.box;
    const colour = theme.colour(node.target);
    const radius = node.isBorder ? h / 2 : 7;
    const isFar = camera.k < 0.5;
    if (h * camera.k < 5) return this.paintSpeck(pen, node, colour);
    if (node.hasInside) {
      rounded(pen, x + 3, y + 4, w, h, radius);
      pen.fillStyle = mixedWith(theme.node, colour, 0.35);
      pen.fill();
    }
    rounded(pen, x, y, w, h, radius);
    pen.fillStyle = this.heat !== "none" ? theme.heat(this.share(node)) : mixedWith(theme.node, colour, isFar ? 0.3 : node.isHost ? 0.2 : 0.1);
    pen.fill();
    pen.lineWidth = node.isHost ? 2.2 : isFar ? 2 : 1.2;
    pen.setLineDash(node.isHost ? [5, 3] : []);
    pen.strokeStyle = colour;
    pen.stroke();
    pen.setLineDash([]);
    if (this.matches && this.matches.has(node)) {
      rounded(pen, x - 3, y - 3, w + 6, h + 6, radius + 3);
      pen.lineWidth = Math.max(3, 2.5 / camera.k);
      pen.strokeStyle = theme.search;
      pen.stroke();
    }
    if (node === this.selected || node === this.hovered) this.paintRing(pen, node, radius);
    const share = this.share(node);
    if (share > 0) {
      pen.fillStyle = theme.ink;
      pen.fillRect(x + 8, y + h - 5, Math.max(1, (w - 16) * share), 3);
    }
    if (12 * camera.k < 6.2) return this.paintFarBox(pen, node);
    drawMark(pen, theme.mark(node.target), x + 15, y + 17, 5, colour);
    pen.fillStyle = theme.ink;
    pen.textBaseline = "middle";
    pen.font = `600 12px ${FONT}`;
    pen.fillText(fitted(pen, this.title(node), w - 36 - (node.hasInside ? 14 : 0)), x + 27, y + 17);
    pen.fillStyle = theme.muted;
    pen.font = `11px ${FONT}`;
    pen.fillText(fitted(pen, this.figure(node) || this.subtitle(node), w - 26), x + 12, y + 33);
    if (node.hasInside) this.paintToggle(pen, x + w - 13, y + 17, false);
  }

  // From very far: a spot of colour; hosts keep an edge.
  paintSpeck(pen, node, colour) {
    const {theme} = this;
    const {x, y, w, h} = node.box;
    pen.fillStyle = this.heat !== "none" ? theme.heat(this.share(node)) : colour;
    pen.fillRect(x, y, w, h);
    const ring = node === this.selected ? theme.accent : this.matches && this.matches.has(node) ? theme.search : node.isHost ? colour : null;
    if (!ring) return;
    pen.lineWidth = 3 / this.camera.k;
    pen.strokeStyle = ring;
    pen.strokeRect(x, y, w, h);
  }

  // From afar: the mark and one line in large letters, as long as they can be read.
  paintFarBox(pen, node) {
    const {theme, camera} = this;
    const {x, y, w, h} = node.box;
    const size = Math.max(Math.min(24, 8.5 / camera.k, (12 * (w - 36)) / width(this.title(node), "600 12px")), Math.min(24, 5 / camera.k));
    if (9 * camera.k < 1) return;
    if (size * camera.k < 4.2) return drawMark(pen, theme.mark(node.target), x + w / 2, y + h / 2, 10, theme.colour(node.target));
    drawMark(pen, theme.mark(node.target), x + 16, y + h / 2, 7, theme.colour(node.target));
    pen.fillStyle = theme.ink;
    pen.textBaseline = "middle";
    pen.font = `600 ${size}px ${FONT}`;
    pen.fillText(fitted(pen, this.title(node), w - 33), x + 28, y + h / 2 + 1);
  }

  paintPorts(pen) {
    const {theme} = this;
    for (const port of this.graph.root.inner.ports) {
      const {x, y, w, h} = port.box;
      if (!this.isInWindow(port.box)) continue;
      rounded(pen, x, y, w, h, h / 2);
      pen.fillStyle = theme.panel;
      pen.fill();
      pen.lineWidth = 1.5;
      pen.strokeStyle = theme.muted;
      pen.stroke();
      if (24 * this.camera.k < 5) continue;
      pen.textBaseline = "middle";
      pen.textAlign = "center";
      pen.fillStyle = theme.ink;
      if (12 * this.camera.k < 6.2) {
        pen.font = `600 ${Math.min(22, 8.5 / this.camera.k, (12 * (w - 16)) / width(port.name, "600 12px"))}px ${FONT}`;
        pen.fillText(port.name, x + w / 2, y + h / 2 + 1);
        pen.textAlign = "start";
        continue;
      }
      pen.font = `600 12px ${FONT}`;
      pen.fillText(fitted(pen, port.name, w - 20), x + w / 2, y + 12);
      pen.fillStyle = theme.muted;
      pen.font = `10px ${FONT}`;
      pen.fillText(fitted(pen, this.data.values[port.value][1], w - 20), x + w / 2, y + 26);
      pen.textAlign = "start";
    }
  }

  paintWires(pen, scope) {
    const {theme, camera} = this;
    const {at, wires, dx, dy} = scope.inner;
    const x = scope.box.x + dx;
    const y = scope.box.y + dy;
    const crossing = [];
    pen.globalAlpha = 1;
    pen.beginPath();
    wires.forEach((wire, index) => {
      if (this.crossesBorder(wire)) crossing.push(index);
      else for (const line of at.wires[index]) this.trace(pen, line, x, y);
    });
    if (scope.index >= 0) this.tracePorts(pen, scope, x, y);
    pen.lineWidth = Math.max(1.3, 0.7 / camera.k);
    pen.strokeStyle = theme.line;
    pen.stroke();
    if (!crossing.length) return;
    pen.beginPath();
    for (const index of crossing) for (const line of at.wires[index]) this.trace(pen, line, x, y);
    pen.lineWidth = Math.max(3, 1.6 / camera.k);
    pen.strokeStyle = theme.colour("");
    pen.stroke();
  }

  // Leads the wires of a container on to its frame, but not through its title.
  tracePorts(pen, scope, x, y) {
    const {at, ports} = scope.inner;
    const {box} = scope;
    const title = box.x + 34 + width(this.title(scope), "600 12px") + width(this.figure(scope), "11px");
    ports.forEach((port, i) => {
      const place = scope.children.length + i;
      const [portX, portY] = [x + at.x[place] + 1, y + at.y[place]];
      pen.moveTo(portX, portY);
      if (!port.isInput) pen.lineTo(portX, box.y + box.h);
      else pen.lineTo(portX, portX > title && portX < box.x + box.w - 30 ? box.y : box.y + HEADER);
    });
  }

  // How many bytes cross a border, in the middle of the longest line of the wire.
  paintLabels(pen, scope) {
    const {at, wires, dx, dy} = scope.inner;
    if (11 * this.camera.k < 3.2) return;
    wires.forEach((wire, index) => {
      if (!this.crossesBorder(wire)) return;
      const length = ([x1, y1, x2, y2]) => Math.abs(x1 - x2) + Math.abs(y1 - y2);
      const longest = at.wires[index].reduce((best, line) => (length(line) > length(best) ? line : best));
      const [x1, y1, x2, y2] = longest;
      this.paintLabel(pen, si(this.data.values[wire.value][2], "B"), scope.box.x + dx + (x1 + x2) / 2, scope.box.y + dy + (y1 + y2) / 2);
    });
  }

  // Whether a value goes from one target to another, or between a target and the host.
  crossesBorder(wire) {
    const {source} = wire;
    return source !== null && wire.readers.some((reader) => reader.target !== source.target);
  }

  paintLabel(pen, text, x, y) {
    pen.font = `600 11px ${FONT}`;
    const w = pen.measureText(text).width + 12;
    rounded(pen, x - w / 2, y - 9, w, 18, 9);
    pen.fillStyle = this.theme.colour("");
    pen.fill();
    pen.fillStyle = this.theme.surface;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(text, x, y + 0.5);
    pen.textAlign = "start";
  }

  // The wires of the selected node, above everything else.
  paintFlow(pen, node) {
    if (!node.isSeen || !node.scope.inner) return;
    const {inner, box, children} = node.scope;
    const place = children.indexOf(node);
    pen.beginPath();
    inner.wires.forEach((wire, index) => {
      if (wire.from !== place && !wire.to.some((target) => target.box === place)) return;
      for (const line of inner.at.wires[index]) this.trace(pen, line, box.x + inner.dx, box.y + inner.dy);
    });
    pen.lineWidth = Math.max(2.5, 1.6 / this.camera.k);
    pen.strokeStyle = this.theme.accent;
    pen.stroke();
  }

  trace(pen, [x1, y1, x2, y2, isCurved], x, y) {
    const {left, top, right, bottom} = this.window;
    if (Math.max(x1, x2) + x < left || Math.min(x1, x2) + x > right || Math.max(y1, y2) + y < top || Math.min(y1, y2) + y > bottom) return;
    pen.moveTo(x + x1, y + y1);
    if (!isCurved || Math.abs(x1 - x2) < 0.5 || this.camera.k < 0.1) pen.lineTo(x + x2, y + y2);
    else {
      const middle = (y1 + y2) / 2;
      pen.bezierCurveTo(x + x1, y + middle, x + x2, y + middle, x + x2, y + y2);
    }
  }

  drawMinimap() {
    const {w, h} = this.graph.root.box;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [180, 120];
    const scale = Math.min(width / w, height / h);
    this.mapped = {scale, x: (width - w * scale) / 2, y: (height - h * scale) / 2};
    this.map = document.createElement("canvas");
    this.map.width = width * ratio;
    this.map.height = height * ratio;
    const pen = this.map.getContext("2d");
    pen.scale(ratio, ratio);
    pen.translate(this.mapped.x, this.mapped.y);
    pen.scale(scale, scale);
    for (const node of this.seen) {
      const {box} = node;
      const colour = this.theme.colour(node.target);
      pen.fillStyle = node.isOpen ? mixedWith(this.theme.surface, colour, 0.18) : colour;
      pen.fillRect(box.x, box.y, Math.max(box.w, 1.5 / scale), Math.max(box.h, 1 / scale));
    }
    this.minimap.width = width * ratio;
    this.minimap.height = height * ratio;
  }

  paintWindowOnMinimap() {
    const pen = this.minimap.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.minimap.width, this.minimap.height);
    pen.drawImage(this.map, 0, 0);
    pen.scale(ratio, ratio);
    const {scale, x, y} = this.mapped;
    const {left, top, right, bottom} = this.window;
    const {box} = this.graph.root;
    this.minimap.style.visibility = left <= 0 && top <= 0 && right >= box.w && bottom >= box.h ? "hidden" : "visible";
    pen.lineWidth = 1.5;
    pen.strokeStyle = this.theme.accent;
    pen.strokeRect(x + left * scale, y + top * scale, (right - left) * scale, (bottom - top) * scale);
  }
}

function width(text, font) {
  rulerPen.font = `${font} ${FONT}`;
  return rulerPen.measureText(text).width;
}

function tail(text, length) {
  return text.length <= length ? text : `…${text.slice(text.length - length + 1)}`;
}

// The text, cut off where it is wider than there is room.
function fitted(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
}

function rounded(pen, x, y, w, h, radius) {
  pen.beginPath();
  pen.roundRect(x, y, w, h, Math.min(radius, w / 2, h / 2));
}

const mixes = new Map();
function mixedWith(a, b, share) {
  const key = a + b + share;
  if (!mixes.has(key)) mixes.set(key, mixed(a, b, share));
  return mixes.get(key);
}
