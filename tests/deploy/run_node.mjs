// node run_node.mjs NODE_MODULES node|wasm FOLDER [OPTIMISED_FOLDER]
// Runs a folder of cases in onnxruntime-node ("node") or in onnxruntime-web's WebAssembly under node ("wasm") and
// prints one JSON document.

import fs from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { runCases, webPlace } from './run_cases.mjs';

const [modules, kind, folder, optimised] = process.argv.slice(2);
const bytes = (name) => readFile(join(folder, name));
const load = async (path) => {
  const library = await import(pathToFileURL(resolve(modules, path)));
  return library.default?.InferenceSession ? library.default : library;
};

async function nodePlace() {
  const ort = await load('onnxruntime-node/dist/index.js');
  const saved = (item, level) => join(optimised, `${item.id}.${level}.onnx`);
  return {
    ort,
    bytes,
    open: (item, options) => ort.InferenceSession.create(resolve(folder, item.model), options),
    options: (item, level) => ({ executionProviders: ['cpu'],
      ...(optimised && { optimizedModelFilePath: saved(item, level) }) }),
    row: (item, level) => optimised && { optimised: saved(item, level) },
  };
}

// Emscripten prints in node by fs.writeSync(1, text), not by the console.
const { writeSync } = fs;
function catchPrinted() {
  let text = '';
  fs.writeSync = (file, data, ...rest) => (file === 1 ? (text += data) && data.length : writeSync(file, data, ...rest));
  return () => {
    const all = text;
    text = '';
    return all;
  };
}

const web = kind === 'wasm';
const place = web ? webPlace(await load('onnxruntime-web/dist/ort.node.min.mjs'), bytes, catchPrinted()) : await nodePlace();
const { cases } = JSON.parse(await bytes('cases.json'));
const rows = await runCases(place, cases);
fs.writeSync = writeSync; // process.stdout uses it too
const runtime = web ? 'onnxruntime-web (WebAssembly in node)' : 'onnxruntime-node';
const { versions } = place.ort.env;
process.stdout.write(JSON.stringify({ runtime, version: versions[web ? 'web' : 'node'], engine: `node ${process.version}`, rows }));
