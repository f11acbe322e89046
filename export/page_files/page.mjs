// Runs the model of page.json on its stored inputs, compares, measures and draws. Everything is beside this file.

import * as ort from './onnxruntime-web/ort.wasm.min.mjs';
import { draw, storedText } from './graph.mjs';

const $ = (id) => document.getElementById(id);
const WARM = 3;
const SAMPLE_MS = 5;
const BUDGET_MS = 500; // for each kind of input
const SAMPLES = 60;

async function fetched(name) {
  const answer = await fetch(name, { cache: 'no-store' });
  if (!answer.ok) throw new Error(`${name}: HTTP ${answer.status}`);
  return answer.arrayBuffer();
}

// float16 in bits, for browsers without Float16Array.
function fromHalf(bits) {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : (sign * fraction * 2 ** -24);
}

const ARRAYS = { float32: Float32Array, float64: Float64Array, float16: globalThis.Float16Array ?? Uint16Array };

async function readCase(page, entry) {
  const [x, y, allowed] = await Promise.all([entry.x, entry.y, entry.allowed].map(fetched));
  return {
    ...entry,
    tensor: new ort.Tensor(page.dtype, new ARRAYS[page.dtype](x), entry.shape),
    want: new Float64Array(y),
    allowed: new Float64Array(allowed),
    rows: entry.shape.slice(0, -1).reduce((product, length) => product * length, 1),
  };
}

// The largest error and the largest share of what is allowed; rows whose allowance is nan aren't judged.
function compare(item, output) {
  const shape = [...item.shape.slice(0, -1), item.features];
  if (String(output.dims) !== String(shape)) return { error: NaN, share: NaN, why: `shape ${output.dims}, expected ${shape}` };
  const got = output.type === 'float16' && output.data instanceof Uint16Array ? Array.from(output.data, fromHalf) : output.data;
  let [error, share, left] = [0, 0, 0];
  for (let row = 0; row < item.rows; row += 1) {
    if (Number.isNaN(item.allowed[row])) {
      left += 1;
      continue;
    }
    for (let i = row * item.features; i < (row + 1) * item.features; i += 1) {
      const off = Math.abs(Number(got[i]) - item.want[i]);
      error = Math.max(error, off); // nan stays nan
      share = Math.max(share, off / item.allowed[row]);
    }
  }
  return { error, share, why: left ? `${left} rows near overflow not judged` : '' };
}

const pause = () => new Promise((done) => setTimeout(done));

function quantile(sorted, share) {
  const at = share * (sorted.length - 1);
  const low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}

async function measure(run) {
  let begin = performance.now();
  for (let i = 0; i < WARM; i += 1) await run();
  const once = (performance.now() - begin) / WARM;
  const calls = Math.max(1, Math.ceil(SAMPLE_MS / Math.max(once, 0.01)));
  const samples = [];
  const end = performance.now() + BUDGET_MS;
  while (samples.length < 5 || (samples.length < SAMPLES && performance.now() < end)) {
    begin = performance.now();
    for (let i = 0; i < calls; i += 1) await run();
    samples.push((performance.now() - begin) / calls);
    await pause(); // the page stays alive
  }
  samples.sort((a, b) => a - b);
  return { median: quantile(samples, 0.5), low: quantile(samples, 0.25), high: quantile(samples, 0.75), calls: calls * samples.length };
}

function row(table, cells) {
  const line = $(table).tBodies[0].insertRow();
  for (const [text, kind] of cells.map((cell) => [cell].flat())) {
    const cell = line.insertCell();
    cell.textContent = text;
    if (kind) cell.className = kind;
  }
  return line;
}

const time = (ms) => (ms < 1 ? `${(ms * 1000).toPrecision(3)} µs` : `${ms.toPrecision(3)} ms`);
const small = (error) => (error > 0 && error < 1e-3 ? error.toExponential(2) : error.toPrecision(3));
const percent = (share) => (share < 10 ? `${(100 * share).toPrecision(2)} %` : `${share.toPrecision(3)} times`);

function say(state, verdict, detail) {
  $('result').dataset.state = state;
  $('verdict').textContent = verdict;
  $('detail').textContent = detail;
}

function describe(page) {
  document.title = `${page.model}: GELU in the browser`;
  $('title').textContent = page.model;
  $('formula').textContent = `gelu(x) = ${page.formula_text}`;
  $('oracle').textContent = page.oracle;
  const facts = {
    features: page.features.join(' → '),
    type: page.dtype,
    GELU: `${{ none: 'exact', tanh: 'tanh form', quick: 'quick form' }[page.formula]} ("${page.formula}"), written as ${page.form}`,
    ONNX: `opset ${page.opset}, IR version ${page.ir_version}`,
    size: `${page.size.toLocaleString('en')} bytes${page.data.length ? `, with ${page.data.join(', ')}` : ''}`,
    'SHA-256': page.sha256,
    'made by': page.producer,
    runtime: `onnxruntime-web ${ort.env.versions?.web ?? page.runtime}, WebAssembly, one thread`,
    browser: navigator.userAgent,
  };
  for (const [term, text] of Object.entries(facts)) {
    const [dt, dd] = [document.createElement('dt'), document.createElement('dd')];
    [dt.textContent, dd.textContent] = [term, text];
    $('facts').append(dt, dd);
  }
}

function drawGraph(graph) {
  const picture = draw(graph);
  if (picture) {
    $('graph').append(picture);
    $('graph').scrollLeft = ($('graph').scrollWidth - $('graph').clientWidth) / 2; // the input is in the middle
  } else $('legend').textContent = `${graph.nodes.length} operators, too many for a picture: see the list.`;
  $('legend').hidden = picture && !graph.nodes.some((node) => node.gelu);
  $('nodes').closest('details').open = !picture;
  const named = (name) => (graph.values[name]?.stored === undefined ? name : storedText(name, graph.values[name]));
  for (const node of graph.nodes) {
    row('nodes', [node.op, node.inputs.map(named).join(', '), node.outputs.join(', '), node.attributes]);
  }
}

async function checkHash(page, model) {
  if (!crypto.subtle) return 'the hash was not checked, as this page is not from localhost or by https';
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', model));
  const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
  if (found !== page.sha256) throw new Error(`${page.model} has SHA-256 ${found}, expected ${page.sha256}`);
  return 'the model has the hash that it was exported with';
}

async function open(page) {
  ort.env.wasm.numThreads = 1; // more would need headers that plain servers don't send
  ort.env.logLevel = 'error';
  const model = await fetched(page.model);
  const hash = await checkHash(page, model);
  const externalData = await Promise.all(page.data.map(async (name) => ({ path: name, data: new Uint8Array(await fetched(name)) })));
  const session = await ort.InferenceSession.create(new Uint8Array(model), {
    executionProviders: ['wasm'], graphOptimizationLevel: 'all', logSeverityLevel: 3, externalData,
  });
  return { session, hash };
}

async function main() {
  say('running', 'running…', 'loading the model');
  const page = JSON.parse(new TextDecoder().decode(await fetched('page.json')));
  describe(page);
  drawGraph(page.graph);
  const { session, hash } = await open(page);
  const cases = await Promise.all(page.cases.map((entry) => readCase(page, entry)));
  const run = async (item) => (await session.run({ [page.input]: item.tensor }))[page.output];
  const found = [];
  for (const item of cases) {
    const { error, share, why } = compare(item, await run(item));
    const passed = share <= 1; // nan doesn't
    found.push({ error, share, passed });
    row('parity', [item.label, passed ? '✓ passed' : '✗ FAILED', [small(error), 'number'], [percent(share), 'number'],
      item.shape.join(' × '), why]);
  }
  const wrong = found.filter((one) => !one.passed).length;
  const error = Math.max(...found.map((one) => one.error));
  const share = Math.max(...found.map((one) => one.share));
  const rows = cases.reduce((sum, item) => sum + item.rows, 0);
  const detail = `largest error ${small(error)} over ${rows} rows, ${percent(share)} of what is allowed; ${hash}`;

  const latencies = async () => {
    $('again').disabled = true;
    $('latency').tBodies[0].replaceChildren();
    for (const item of cases.filter((one) => one.timed)) {
      const { median, low, high, calls } = await measure(() => run(item));
      row('latency', [item.label, [time(median), 'number'], [`${time(low)} to ${time(high)}`, 'number'],
        [Math.round((1000 * item.rows) / median).toLocaleString('en'), 'number'], [String(calls), 'number']]);
    }
    $('again').disabled = false;
  };
  $('again').addEventListener('click', latencies);
  say('running', 'running…', 'measuring');
  await latencies();
  if (wrong) say('failed', '✗ FAILED', `${wrong} of ${cases.length} kinds of input differ: ${detail}`);
  else say('passed', '✓ passed', detail);
}

main().catch((error) => say('failed', "✗ FAILED: it can't be run", String(error?.message ?? error)));
