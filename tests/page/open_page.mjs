// node open_page.mjs NODE_MODULES CHROMIUM URL [SCREENSHOTS]
// Opens a page that export_page made in a real headless Chromium, waits for its verdict, and prints what it shows as one
// JSON document: texts, tables, the graph, requests, complaints, and how it fits windows, schemes and greyscale.

import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, program, url, screenshots] = process.argv.slice(2);
const { chromium } = (await import(pathToFileURL(join(resolve(modules), 'playwright-core/index.mjs')))).default;
const browser = await chromium.launch({
  executablePath: program,
  // The sandbox can't be had by root; only this machine's address resolves.
  args: ['--no-sandbox', '--disable-gpu', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
});

// In the page: what one can read, and how.
function look() {
  const table = (id) => Array.from(document.querySelectorAll(`#${id} tbody tr`), (tr) => Array.from(tr.cells, (td) => td.textContent));
  const boxes = Array.from(document.querySelectorAll('svg g'), (g) => ({
    box: (({ x, y, width, height }) => [x, y, width, height])(g.querySelector('rect').getBBox()),
    texts: Array.from(g.querySelectorAll('text'), (t) => ({ text: t.textContent, width: t.getBBox().width })),
    gelu: g.querySelector('rect').getAttribute('class') === 'gelu',
  }));
  return {
    title: document.title,
    heading: document.querySelector('h1').textContent,
    state: document.getElementById('result').dataset.state,
    verdict: document.getElementById('verdict').textContent,
    detail: document.getElementById('detail').textContent,
    text: document.body.innerText,
    parity: table('parity'),
    latency: table('latency'),
    nodes: table('nodes'),
    boxes,
    edges: document.querySelectorAll('svg > path').length,
    list: document.querySelector('details').open,
  };
}

// WCAG's contrast of every kind of text against what is behind it, and whether a colour has a hue.
function contrasts() {
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const rgba = numbers(at.tagName === 'g' ? getComputedStyle(at.querySelector('rect')).fill : getComputedStyle(at).backgroundColor);
      if (rgba.length === 3 || rgba[3] > 0) return rgba;
    }
    return [255, 255, 255];
  };
  const kinds = 'h1, h2, p, th, td, dt, dd, button, summary, svg text';
  return Array.from(document.querySelectorAll(kinds), (node) => {
    const style = getComputedStyle(node);
    const ink = numbers(node.tagName === 'text' ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(node))].sort((p, q) => q - p);
    return { kind: node.tagName, contrast: (a + 0.05) / (b + 0.05), grey: new Set(ink.slice(0, 3)).size === 1, paper: behind(node) };
  });
}

try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  const report = { requests: [], problems: [], console: [], widths: {}, schemes: {} };
  page.on('request', (request) => report.requests.push(request.url()));
  page.on('pageerror', (error) => report.problems.push(error.message));
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && report.console.push(message.text()));
  page.setDefaultTimeout(60_000);
  if (process.env.NO_FLOAT16ARRAY) await page.addInitScript('delete globalThis.Float16Array'); // as in older browsers
  await page.goto(url);
  await page.waitForSelector('#result[data-state=passed], #result[data-state=failed]');
  Object.assign(report, await page.evaluate(look));
  for (const [scheme, width] of [['light', 1280], ['dark', 1280], ['light', 320]]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize({ width, height: 900 });
    if (screenshots) await page.screenshot({ path: join(screenshots, `${scheme}-${width}.png`), fullPage: true });
    report.widths[width] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
    report.schemes[scheme] = await page.evaluate(contrasts);
  }
  if (report.state === 'passed') {
    await page.click('#again');
    await page.waitForSelector('#again:not([disabled])');
    report.again = (await page.evaluate(look)).latency;
    // Whatever a script tried: the page's own policy refuses other hosts.
    const said = report.console.length;
    report.elsewhere = await page.evaluate(() => fetch('http://127.0.0.1:1/').then(() => 'let through', (error) => error.name));
    report.refusal = report.console.splice(said).join('\n');
  }
  process.stdout.write(JSON.stringify(report));
} finally {
  await browser.close();
}
