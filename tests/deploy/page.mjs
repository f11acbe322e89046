// What the page runs: a folder's cases in onnxruntime-web, everything from the server that the page came from.

import * as ort from '/modules/onnxruntime-web/dist/ort.wasm.min.mjs';
import { runCases, webPlace } from '/here/run_cases.mjs';

// Each case asks for its files at four levels.
const read = new Map();
const bytes = async (name) => {
  if (!read.has(name)) {
    const answer = await fetch(`/cases/${name}`);
    if (!answer.ok) throw new Error(`${name}: HTTP ${answer.status}`);
    read.set(name, new Uint8Array(await answer.arrayBuffer()));
  }
  return read.get(name).slice();
};

// Emscripten prints in a browser by the console that it finds at the first session.
let text = '';
console.log = (...parts) => (text += `${parts.join(' ')}\n`);
const printed = () => {
  const all = text;
  text = '';
  return all;
};

window.report = async () => {
  const { cases } = JSON.parse(new TextDecoder().decode(await bytes('cases.json')));
  const rows = await runCases(webPlace(ort, bytes, printed), cases);
  return { runtime: 'onnxruntime-web (WebAssembly in Chromium)', version: ort.env.versions.web, rows };
};
