// node run_chromium.mjs NODE_MODULES CHROMIUM FOLDER
// Runs a folder of cases in onnxruntime-web in a real headless Chromium and prints one JSON document. The page is
// served from 127.0.0.1; every other host is refused, and a request to one is listed in the report ("outside").

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, extname, join, normalize, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const [modules, program, folder] = process.argv.slice(2);
const roots = { here: dirname(fileURLToPath(import.meta.url)), modules: resolve(modules), cases: resolve(folder) };
const types = { '.mjs': 'text/javascript', '.wasm': 'application/wasm' };
const html = '<!doctype html><title>gelu_fast</title><script type="module" src="/here/page.mjs"></script>';

const server = createServer(async (request, response) => {
  const [, root, ...rest] = normalize(new URL(request.url, 'http://page').pathname).split('/');
  try {
    const body = root === '' ? html : await readFile(join(roots[root], ...rest));
    response.setHeader('Content-Type', root === '' ? 'text/html' : (types[extname(rest.at(-1))] ?? 'application/octet-stream'));
    response.end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const address = `http://127.0.0.1:${server.address().port}`;

const { chromium } = (await import(pathToFileURL(join(roots.modules, 'playwright-core/index.mjs')))).default;
const browser = await chromium.launch({
  executablePath: program,
  // The sandbox can't be had by root; only this machine's address resolves.
  args: ['--no-sandbox', '--disable-gpu', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
});
try {
  const page = await browser.newPage();
  const outside = [];
  const problems = [];
  page.on('request', (request) => request.url().startsWith(`${address}/`) || outside.push(request.url()));
  page.on('pageerror', (error) => problems.push(error.message));
  page.setDefaultTimeout(60_000);
  await page.goto(`${address}/`);
  await page.waitForFunction('window.report').catch((error) => {
    throw new Error([...problems, error.message].join('\n'));
  });
  const report = await page.evaluate('window.report()');
  process.stdout.write(JSON.stringify({ ...report, engine: `Chromium ${browser.version()}`, outside }));
} finally {
  await browser.close();
  server.close();
}
