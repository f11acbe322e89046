// The model's graph as SVG: nodes in layers from the input down, long edges through places kept free for them.

const WIDTH = 250;
const HEIGHT = 62;
const GAP = 26;
const DROP = 44; // between layers
const LANE = 22; // width of a place that an edge runs through
const MOST = 150; // nodes; more than that nobody can read as a picture

function element(name, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// What stands inside a node's box for a value that is stored: its number, or its name and shape.
export function storedText(name, value) {
  return value.stored || `${name} (${value.shape || 'scalar'})`;
}

const isStored = (graph, name) => graph.values[name]?.stored !== undefined;

// Boxes: the inputs, the nodes, the outputs. Each { lines, gelu, from: [boxes], layer }.
function boxes(graph) {
  const maker = new Map();
  const all = [];
  const shape = (name) => (graph.values[name] ? `${name}: ${graph.values[name].shape}` : name);
  for (const name of graph.inputs) {
    const box = { lines: ['input', shape(name)], from: [], end: true };
    maker.set(name, box);
    all.push(box);
  }
  for (const node of graph.nodes) {
    const held = node.inputs.filter((name) => isStored(graph, name)).map((name) => storedText(name, graph.values[name]));
    const box = {
      lines: [node.op, held.join(', ') || node.attributes, node.outputs.map(shape).join(', ')],
      gelu: node.gelu,
      from: [...new Set(node.inputs.map((name) => maker.get(name)).filter(Boolean))],
      title: `${node.name} ${node.attributes}`.trim(),
    };
    for (const name of node.outputs) maker.set(name, box);
    all.push(box);
  }
  for (const name of graph.outputs) all.push({ lines: ['output', shape(name)], from: [maker.get(name)].filter(Boolean), end: true });
  for (const box of all) box.layer = 1 + Math.max(-1, ...box.from.map((source) => source.layer));
  return all;
}

// Layers of boxes and lanes, each set in an order that keeps edges short; edges as chains of these.
function arrange(all) {
  const layers = Array.from({ length: 1 + Math.max(0, ...all.map((box) => box.layer)) }, () => []);
  for (const box of all) layers[box.layer].push(box);
  const edges = [];
  const lanes = new Map(); // of one source, the edges that go further share a lane
  for (const box of all) {
    for (const source of box.from) {
      const chain = [source];
      for (let layer = source.layer + 1; layer < box.layer; layer += 1) {
        const key = `${all.indexOf(source)}.${layer}`;
        if (!lanes.has(key)) {
          const lane = { lane: true, from: [chain.at(-1)], layer };
          lanes.set(key, lane);
          layers[layer].push(lane);
        }
        chain.push(lanes.get(key));
      }
      edges.push([...chain, box]);
    }
  }
  const before = new Map();
  for (const chain of edges) chain.slice(1).forEach((box, i) => before.set(box, [...(before.get(box) ?? []), chain[i]]));
  const total = (layer) => layer.reduce((sum, box) => sum + (box.lane ? LANE : WIDTH) + GAP, -GAP);
  const widest = Math.max(...layers.map(total));
  layers.forEach((layer, row) => {
    const middle = (box) => {
      const sources = before.get(box) ?? [];
      return sources.reduce((sum, source) => sum + source.x, 0) / Math.max(1, sources.length);
    };
    layer.sort((a, b) => middle(a) - middle(b));
    let x = (widest - total(layer)) / 2;
    for (const box of layer) {
      box.width = box.lane ? LANE : WIDTH;
      box.x = x + box.width / 2;
      box.y = row * (HEIGHT + DROP);
      x += box.width + GAP;
    }
  });
  return { layers, edges, width: widest + 8, height: layers.length * (HEIGHT + DROP) - DROP + 8 };
}

function curve(chain) {
  const parts = [`M ${chain[0].x} ${chain[0].y + HEIGHT}`];
  chain.slice(1).forEach((box, i) => {
    const source = chain[i];
    const [y0, y1] = [source.y + HEIGHT, box.y];
    parts.push(`C ${source.x} ${y0 + DROP / 2} ${box.x} ${y1 - DROP / 2} ${box.x} ${y1}`);
    if (box.lane) parts.push(`L ${box.x} ${y1 + HEIGHT}`);
  });
  return parts.join(' ');
}

// An SVG, or null where there are too many nodes.
export function draw(graph) {
  if (graph.nodes.length > MOST) return null;
  const { layers, edges, width, height } = arrange(boxes(graph));
  const svg = element('svg', {
    viewBox: `-4 -4 ${width} ${height}`, width, height, role: 'img',
    'aria-label': `Graph of ${graph.nodes.length} operators from ${graph.inputs} to ${graph.outputs}`,
  });
  svg.style.minWidth = `${0.8 * width}px`; // smaller, and nobody could read it
  const arrow = element('marker', { id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: 'auto' });
  const head = element('path', { d: 'M 0 0 L 8 4 L 0 8' });
  arrow.append(head);
  svg.append(element('defs', {}, arrow));
  for (const chain of edges) svg.append(element('path', { d: curve(chain), 'marker-end': 'url(#arrow)' }));
  for (const box of layers.flat().filter((one) => !one.lane)) {
    const place = { x: box.x - WIDTH / 2, y: box.y, width: WIDTH, height: HEIGHT, rx: box.end ? HEIGHT / 2 : 4 };
    const group = element('g', { class: box.end ? 'end' : 'node' }, element('rect', { ...place, class: box.gelu ? 'gelu' : '' }));
    if (box.title) group.append(element('title', {}, box.title));
    const lines = box.lines.filter(Boolean);
    lines.forEach((line, i) => {
      const y = box.y + HEIGHT / 2 + 5 + (i - (lines.length - 1) / 2) * 17;
      group.append(element('text', { x: box.x, y, class: i === 0 ? 'op' : 'small' }, cut(line, i === 0 ? 26 : 32)));
    });
    svg.append(group);
  }
  return svg;
}
