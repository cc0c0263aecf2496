// Layered layout (Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981).
//
// A container is laid out by itself: its boxes, among them its ports at the top and at the bottom, are put on layers,
// ordered within them, and given coordinates. A wire leads from one box to several, which share its way as far as they
// can: it is drawn once per layer, however many read the value. Long chains are cut into columns, so that a whole model
// fits on a screen.

const GAP_X = 22;          // between boxes of a layer
const GAP_WIRE = 12;       // between wires that pass a layer
const GAP_Y = 30;          // between layers
const GAP_PORT = 10;       // before and behind the ports of a container
const GAP_COLUMN = 56;     // between columns
const LANE = 6;            // between wires in the gap between columns
const ASPECT = 1.7;        // width by height that columns aim at
const TALL = 480;          // lower containers are not cut into columns
const BUDGET = 5;          // bends of wires per box; longer wires beyond that are drawn straight

// boxes: [{w, h}, ...]; wires: [{from, x, to: [{box, x}, ...]}, ...] with x from the left edge of the box, null where a
// wire may end anywhere on it. A box that is to stand below another by its middle, not by where a wire ends, is isCentred.
// first and last: boxes that belong at the top and at the bottom.
// Returns {x, y: of each box, w, h, wires: [[line, ...], ...]}, a line being [x1, y1, x2, y2, isCurved].
function layered(boxes, wires, first, last, wrap) {
  if (!boxes.length) return {x: [], y: [], w: 0, h: 0, wires: []};
  const ranks = rankBoxes(boxes, wires, first, last);
  const net = routeWires(boxes, wires, ranks);
  orderLayers(net);
  placeAcross(net);
  chooseEnds(net);
  placeDown(net);
  const width = wrap ? cutIntoColumns(net, wires) : spread(net);
  return {
    x: boxes.map((_, i) => net.vertices[i].x),
    y: boxes.map((_, i) => net.vertices[i].y),
    w: width,
    h: net.height,
    wires: drawWires(net, wires),
  };
}

// The largest and the smallest of what a function gives for items, of which there may be more than arguments of a call.
function largest(items, value, least = 0) {
  return items.reduce((most, item) => Math.max(most, value(item)), least);
}

function smallest(items, value) {
  return items.reduce((least, item) => Math.min(least, value(item)), Infinity);
}

function rankBoxes(boxes, wires, first, last) {
  const count = boxes.length;
  const outgoing = Array.from({length: count}, () => []);
  const missing = new Int32Array(count);
  for (const wire of wires) {
    for (const target of wire.to) {
      outgoing[wire.from].push(target.box);
      missing[target.box]++;
    }
  }
  const ranks = new Int32Array(count);
  const isFirst = new Set(first);
  const isLast = new Set(last);
  const order = [];
  for (let i = 0; i < count; i++) {
    ranks[i] = isFirst.has(i) || !first.length ? 0 : 1;
    if (!missing[i]) order.push(i);
  }
  for (let at = 0; at < order.length; at++) {
    for (const target of outgoing[order[at]]) {
      ranks[target] = Math.max(ranks[target], ranks[order[at]] + 1);
      if (!--missing[target]) order.push(target);
    }
  }
  // What nothing but ports lead to stands where it is needed, not at the top.
  const fedBy = new Int32Array(count);
  for (const wire of wires) if (!isFirst.has(wire.from)) for (const target of wire.to) fedBy[target.box]++;
  for (let at = order.length - 1; at >= 0; at--) {
    const i = order[at];
    if (!outgoing[i].length || isFirst.has(i) || fedBy[i]) continue;
    ranks[i] = Math.max(ranks[i], smallest(outgoing[i], (target) => ranks[target]) - 1);
  }
  const bottom = ranks.reduce((most, rank, i) => (isLast.has(i) ? most : Math.max(most, rank)), 0) + 1;
  for (const i of last) ranks[i] = Math.max(bottom, ranks[i]);
  return ranks;
}

// Puts a vertex for every box and for every layer that a wire passes, and links between neighbouring layers.
function routeWires(boxes, wires, ranks) {
  const vertices = boxes.map((box, i) => ({
    w: box.w, h: box.h, rank: ranks[i], box: i, x: 0, y: 0, place: 0, up: [], down: [],
  }));
  const length = wires.map((wire) => largest(wire.to, (target) => ranks[target.box]) - ranks[wire.from] - 1);
  const byLength = wires.map((_, i) => i).sort((a, b) => length[a] - length[b]);
  let bends = 0;
  const budget = 500 + BUDGET * boxes.length;
  const isFree = wires.map(() => false);
  for (const index of byLength) {
    bends += Math.max(0, length[index]);
    isFree[index] = bends > budget;
  }
  const links = [];
  const link = (upper, upperX, lower, end, wire) => {
    const isFree = end === null;
    const lowerX = isFree ? lower.w / 2 : end;
    // Boxes below one another make the trunk, which is to be straight; so are wires that pass by.
    const weight = upper.box < 0 && lower.box < 0 ? 8 : upper.box < 0 || lower.box < 0 ? 0.1 : 16;
    const upperPull = boxes[upper.box]?.isCentred ? upper.w / 2 : upperX;
    const lowerPull = boxes[lower.box]?.isCentred ? lower.w / 2 : lowerX;
    const made = {upper, upperX, lower, lowerX, wire, weight, isFree, upperPull, lowerPull};
    upper.down.push(made);
    lower.up.push(made);
    links.push(made);
  };
  wires.forEach((wire, index) => {
    if (isFree[index]) return;
    const chain = [[vertices[wire.from], wire.x]];
    for (let step = 1; step <= length[index]; step++) {
      const bend = {w: 0, h: 0, rank: ranks[wire.from] + step, box: -1, x: 0, y: 0, place: 0, up: [], down: [], wire: index};
      vertices.push(bend);
      link(...chain[step - 1], bend, 0, index);
      chain.push([bend, 0]);
    }
    for (const target of wire.to) {
      const above = chain[ranks[target.box] - ranks[wire.from] - 1];
      if (above) link(...above, vertices[target.box], target.x, index);
    }
  });
  const depth = vertices.reduce((most, v) => Math.max(most, v.rank), 0) + 1;
  const layers = Array.from({length: depth}, () => []);
  for (const vertex of vertices) layers[vertex.rank].push(vertex);
  const kept = layers.filter((layer) => layer.length);
  kept.forEach((layer, rank) => layer.forEach((v, place) => { v.rank = rank; v.place = place; }));
  return {vertices, links, layers: kept, isFree, height: 0};
}

// Sorts each layer by where its neighbours stand, back and forth, and keeps the order with the fewest crossings.
function orderLayers(net) {
  const sweeps = net.vertices.length > 5000 ? 6 : 14;
  let useless = 0;
  const save = () => net.layers.map((layer) => layer.slice());
  let best = save();
  let fewest = crossings(net);
  for (let sweep = 0; sweep < sweeps && fewest && useless < 4; sweep++) {
    const goesDown = sweep % 2 === 0;
    const order = goesDown ? net.layers : net.layers.slice().reverse();
    for (const layer of order) sortLayer(layer, goesDown);
    const count = crossings(net);
    useless++;
    if (count < fewest) {
      useless = 0;
      fewest = count;
      best = save();
    }
  }
  net.layers = best;
  for (const layer of best) layer.forEach((v, place) => { v.place = place; });
}

function sortLayer(layer, goesDown) {
  for (const vertex of layer) {
    const links = goesDown ? vertex.up : vertex.down;
    let sum = 0;
    for (const each of links) {
      const [other, x] = goesDown ? [each.upper, each.upperX] : [each.lower, each.lowerX];
      sum += other.place + (other.w ? x / other.w - 0.5 : 0) * 0.9;
    }
    vertex.wish = links.length ? sum / links.length : vertex.place;
  }
  layer.sort((a, b) => a.wish - b.wish || a.place - b.place);
  layer.forEach((vertex, place) => { vertex.place = place; });
}

// Counts pairs of links between neighbouring layers that cross: pairs of ends that are out of order.
function crossings(net) {
  let total = 0;
  for (const layer of net.layers) {
    const ends = [];
    for (const {down} of layer) {
      if (down.length > 1) down.sort((a, b) => a.upperX - b.upperX || a.lower.place - b.lower.place);
      for (const {lower, lowerX} of down) ends.push(lower.place + (lower.w ? lowerX / lower.w : 0.5) * 0.9);
    }
    total += inversions(Float64Array.from(ends));
  }
  return total;
}

// Counts pairs that are out of order, by merging; sorts the array on the way.
function inversions(array) {
  let from = array;
  let into = new Float64Array(array.length);
  let count = 0;
  for (let width = 1; width < array.length; width *= 2) {
    for (let start = 0; start < array.length; start += 2 * width) {
      const middle = Math.min(start + width, array.length);
      const end = Math.min(start + 2 * width, array.length);
      let [left, right] = [start, middle];
      for (let at = start; at < end; at++) {
        if (left < middle && (right >= end || from[left] <= from[right])) into[at] = from[left++];
        else {
          into[at] = from[right++];
          count += middle - left;
        }
      }
    }
    [from, into] = [into, from];
  }
  return count;
}

// Gives each vertex the place that its neighbours ask for, as near as its layer allows, back and forth.
function placeAcross(net) {
  for (const layer of net.layers) {
    let x = 0;
    for (const vertex of layer) {
      vertex.x = x;
      x += vertex.w + (vertex.box < 0 ? GAP_WIRE : GAP_X);
    }
    for (const vertex of layer) vertex.x -= x / 2;
  }
  for (let sweep = 0; sweep < 9; sweep++) {
    const goesDown = sweep % 2 === 0;
    const order = goesDown ? net.layers : net.layers.slice().reverse();
    for (const layer of order) alignLayer(layer, goesDown);
  }
}

function alignLayer(layer, goesDown) {
  const blocks = [];
  let offset = 0;
  for (const vertex of layer) {
    let sum = 0;
    let weight = 0;
    let heaviest = 0;
    const pull = (each, x) => {
      if (each.weight > heaviest) [sum, weight, heaviest] = [0, 0, each.weight];
      if (each.weight < heaviest) return;
      sum += each.weight * x;
      weight += each.weight;
    };
    if (goesDown) for (const each of vertex.up) pull(each, each.upper.x + each.upperPull - each.lowerPull);
    else for (const each of vertex.down) pull(each, each.lower.x + each.lowerPull - each.upperPull);
    const wish = weight ? sum / weight : vertex.x;
    const strength = weight || 0.1;
    // Isotonic regression by pooling adjacent violators: distances kept, squares of departures least.
    let block = {sum: (wish - offset) * strength, weight: strength, members: [vertex], offsets: [offset]};
    while (blocks.length && blocks[blocks.length - 1].sum / blocks[blocks.length - 1].weight > block.sum / block.weight) {
      const before = blocks.pop();
      before.sum += block.sum;
      before.weight += block.weight;
      for (const member of block.members) before.members.push(member);
      for (const each of block.offsets) before.offsets.push(each);
      block = before;
    }
    blocks.push(block);
    offset += vertex.w + (vertex.box < 0 ? GAP_WIRE : GAP_X);
  }
  for (const block of blocks) {
    const start = block.sum / block.weight;
    block.members.forEach((vertex, i) => { vertex.x = start + block.offsets[i]; });
  }
}

// Lets wires that may end anywhere on a box end below where they come from, in that order and apart from each other.
function chooseEnds(net) {
  for (const vertex of net.vertices) {
    const free = vertex.up.filter((each) => each.isFree);
    if (!free.length) continue;
    const margin = Math.min(16, vertex.w / 4);
    const apart = Math.min(14, (vertex.w - 2 * margin) / Math.max(1, free.length - 1));
    free.sort((a, b) => a.upper.x + a.upperX - b.upper.x - b.upperX);
    let least = margin;
    for (const each of free) {
      each.lowerX = Math.max(least, Math.min(vertex.w - margin, each.upper.x + each.upperX - vertex.x));
      least = each.lowerX + apart;
    }
    let most = vertex.w - margin;
    for (const each of free.reverse()) {
      each.lowerX = Math.min(each.lowerX, most);
      most = each.lowerX - apart;
    }
  }
}

function placeDown(net) {
  const last = net.layers[net.layers.length - 1];
  let y = 0;
  net.tops = [];
  net.bottoms = [];
  net.layers.forEach((layer) => {
    const height = largest(layer, (vertex) => vertex.h);
    const slanted = layer.reduce((n, v) => n + v.down.filter(isSlanted).length, 0);
    if (layer === last && !height && net.layers.length > 1) y += GAP_PORT - GAP_Y;
    net.tops.push(y);
    for (const vertex of layer) vertex.y = y;
    y += height;
    net.bottoms.push(y);
    y += (height ? GAP_Y : GAP_PORT) + Math.min(60, 5 * Math.sqrt(slanted));
  });
  net.height = net.bottoms[net.bottoms.length - 1] || 0;
}

function isSlanted(each) {
  return Math.abs(each.upper.x + each.upperX - each.lower.x - each.lowerX) > 1;
}

// Moves everything to start at 0, narrows the bands that no box stands in, and returns the width.
function spread(net) {
  const boxes = net.vertices.filter((v) => v.box >= 0).sort((a, b) => a.x - b.x);
  const bends = net.vertices.filter((v) => v.box < 0);
  const edge = smallest(net.vertices, (v) => v.x);
  const bands = [];
  let right = boxes[0].x + boxes[0].w;
  for (const box of boxes) {
    if (box.x > right + GAP_COLUMN) {
      const wires = new Set(bends.filter((v) => v.x > right && v.x < box.x).map((v) => v.wire)).size;
      const room = Math.max(GAP_X, (wires + 1) * GAP_WIRE);
      if (room < box.x - right) bands.push({from: right, to: box.x, room});
    }
    right = Math.max(right, box.x + box.w);
  }
  let end = 0;
  for (const vertex of net.vertices) {
    let x = vertex.x - edge;
    for (const {from, to, room} of bands) {
      const share = Math.max(0, Math.min(1, (vertex.x - from) / (to - from)));
      x -= share * (to - from - room);
    }
    vertex.x = x;
    end = Math.max(end, x + vertex.w);
  }
  return end;
}

// Cuts layers into columns where few wires pass, and returns the width of them all.
function cutIntoColumns(net) {
  const width = spread(net);
  const columns = Math.round(Math.sqrt((ASPECT * net.height) / (width + GAP_COLUMN)));
  net.columnOf = new Int32Array(net.layers.length);
  if (columns < 2 || net.height < TALL) return width;
  const passing = net.layers.map((layer) => new Set(layer.flatMap((v) => v.down.map((each) => each.wire))).size);
  const most = largest(passing, (count) => count, 4);
  const wanted = net.height / columns;
  const starts = [0];
  const gutters = [];
  let begin = 0;
  while (net.height - net.tops[begin] > wanted * 1.35) {
    let best = -1;
    let bestCost = Infinity;
    for (let rank = begin; rank < net.layers.length - 1; rank++) {
      const size = net.bottoms[rank] - net.tops[begin];
      if (size < wanted * 0.5) continue;
      const cost = (2 * Math.abs(size - wanted)) / wanted + passing[rank] / most;
      if (cost < bestCost) [best, bestCost] = [rank, cost];
    }
    if (best < 0) break;
    begin = best + 1;
    gutters.push(Math.max(GAP_COLUMN, 32 + LANE * passing[best]));
    starts.push(begin);
  }
  let x = 0;
  let height = 0;
  net.columns = [];
  starts.forEach((start, column) => {
    const end = column + 1 < starts.length ? starts[column + 1] : net.layers.length;
    const members = net.layers.slice(start, end).flat();
    const left = smallest(members, (v) => v.x);
    const right = largest(members, (v) => v.x + v.w);
    const top = net.tops[start];
    for (const vertex of members) {
      vertex.x += x - left;
      vertex.y -= top;
    }
    for (let rank = start; rank < end; rank++) {
      net.columnOf[rank] = column;
      net.tops[rank] -= top;
      net.bottoms[rank] -= top;
    }
    net.columns.push({left: x, right: x + right - left, bottom: net.bottoms[end - 1]});
    height = Math.max(height, net.bottoms[end - 1]);
    x += right - left + (gutters[column] || 0);
  });
  net.height = height + (starts.length > 1 ? 24 : 0);
  if (starts.length > 1) for (const vertex of net.vertices) vertex.y += 12;
  if (starts.length > 1) for (let rank = 0; rank < net.layers.length; rank++) { net.tops[rank] += 12; net.bottoms[rank] += 12; }
  return x;
}

function drawWires(net, wires) {
  const lines = wires.map(() => []);
  const lanes = new Map();
  for (const each of net.links) {
    const x1 = each.upper.x + each.upperX;
    const x2 = each.lower.x + each.lowerX;
    const y1 = each.upper.box < 0 ? net.bottoms[each.upper.rank] : each.upper.y + each.upper.h;
    const y2 = net.tops[each.lower.rank];
    if (net.columns && net.columnOf[each.upper.rank] !== net.columnOf[each.lower.rank]) {
      const column = net.columns[net.columnOf[each.upper.rank]];
      const lane = lanes.get(column) || 0;
      lanes.set(column, lane + 1);
      const x = column.right + 22 + lane * LANE;
      const below = net.height - Math.max(1, 8 - lane * 3);
      const above = Math.max(1, 8 - lane * 3);
      lines[each.wire].push(
        [x1, y1, x1, below, 0], [x1, below, x, below, 0], [x, below, x, above, 0], [x, above, x2, above, 0], [x2, above, x2, y2, 0],
      );
    } else {
      const bottom = net.bottoms[each.upper.rank];
      if (y1 < bottom) lines[each.wire].push([x1, y1, x1, bottom, 0]);
      lines[each.wire].push([x1, Math.max(y1, bottom), x2, y2, 1]);
    }
  }
  for (const vertex of net.vertices) {
    if (vertex.box < 0) lines[vertex.wire].push([vertex.x, net.tops[vertex.rank], vertex.x, net.bottoms[vertex.rank], 0]);
  }
  wires.forEach((wire, index) => {
    if (!net.isFree[index]) return;
    const from = net.vertices[wire.from];
    for (const target of wire.to) {
      const to = net.vertices[target.box];
      lines[index].push([from.x + wire.x, from.y + from.h, to.x + (target.x ?? to.w / 2), to.y, 1]);
    }
  });
  return lines.map(joined);
}

// Joins upright lines of one wire that go on from each other.
function joined(lines) {
  const isUpright = ([x1, , x2]) => Math.abs(x1 - x2) < 0.5;
  const upright = lines.filter(isUpright).map(([x1, y1, , y2]) => [Math.round(x1 * 2) / 2, Math.min(y1, y2), Math.max(y1, y2)]);
  upright.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const kept = lines.filter((line) => !isUpright(line));
  let last = null;
  for (const [x, top, bottom] of upright) {
    if (last && last[0] === x && top <= last[3] + 1) last[3] = Math.max(last[3], bottom);
    else kept.push((last = [x, top, x, bottom, 0]));
  }
  return kept;
}
