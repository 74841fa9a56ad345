// A person with Chromium and a keyboard, and no mouse, at the gateway's page `/connect`: opens a link,
// agrees, connects a server, agrees, logs in, goes back to the list, and revokes.
//
//     node connect_browser.mjs CHROMIUM LINK SERVER FOLDER
//
// Prints one line of JSON for each page: its title, its text and what has the focus. Leaves pictures
// of the pages in FOLDER.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [browser, link, server, folder] = process.argv.slice(2);
const MOST_TABS = 20;
const PATIENCE_MS = 20_000;

const profile = mkdtempSync(join(tmpdir(), 'connect-'));
const flags = ['--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--remote-debugging-port=0', '--window-size=800,560'];
const child = spawn(browser, [...flags, `--user-data-dir=${profile}`, 'about:blank'], { stdio: ['ignore', 'ignore', 'pipe'] });

const limit = setTimeout(() => end(new Error('it takes too long')), 60_000);
function end(fault) {
  clearTimeout(limit);
  child.once('exit', () => {
    rmSync(profile, { recursive: true, force: true });
    if (fault) console.error(fault);
    process.exit(fault ? 1 : 0);
  });
  child.kill();
}

/** The address of the page's debugger. */
async function findPage() {
  let said = '';
  for await (const piece of child.stderr) {
    said += piece;
    const port = said.match(/listening on ws:\/\/[^:]+:(\d+)\//)?.[1];
    if (!port) continue;
    const pages = await (await fetch(`http://127.0.0.1:${port}/json/list`)).json();
    return pages.find(({ type }) => type === 'page').webSocketDebuggerUrl;
  }
  throw new Error(said);
}

async function walk() {
  const socket = new WebSocket(await findPage());
  await new Promise((resolve, reject) => Object.assign(socket, { onopen: resolve, onerror: reject }));
  let next = 0;
  const waiting = new Map();
  let loaded = () => {};
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.method === 'Page.loadEventFired') loaded();
    const { resolve, reject } = waiting.get(message.id) ?? {};
    if (message.error) reject?.(new Error(message.error.message));
    else resolve?.(message.result);
  };
  const send = (method, params = {}) =>
    new Promise((resolve, reject) => {
      waiting.set((next += 1), { resolve, reject });
      socket.send(JSON.stringify({ id: next, method, params }));
    });
  const evaluate = async (expression) =>
    (await send('Runtime.evaluate', { expression, returnByValue: true })).result.value;
  const press = async (key, code, text) => {
    const event = { key, code: key, windowsVirtualKeyCode: code, text };
    await send('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', ...event });
    await send('Input.dispatchKeyEvent', { type: 'keyUp', ...event });
  };
  const focused = () =>
    evaluate(`(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()`);
  const whenLoaded = (act) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('no page comes')), PATIENCE_MS);
      loaded = () => {
        clearTimeout(timer);
        resolve();
      };
      act().catch(reject);
    });
  const tell = async (picture) => {
    const page = { title: await evaluate('document.title'), url: await evaluate('location.pathname') };
    page.text = await evaluate('document.body.innerText');
    page.focus = await focused();
    process.stdout.write(`${JSON.stringify(page)}\n`);
    if (!picture) return;
    const { data } = await send('Page.captureScreenshot', { format: 'png' });
    writeFileSync(join(folder, `${picture}.png`), Buffer.from(data, 'base64'));
  };
  /** Goes on by the keyboard to what has this name, and presses Enter. */
  const choose = async (name) => {
    for (let tabs = 0; (await focused()) !== name; tabs += 1) {
      if (tabs === MOST_TABS) throw new Error(`the keyboard does not reach ${name}`);
      await press('Tab', 9);
    }
    await whenLoaded(() => press('Enter', 13, '\r'));
  };
  await send('Page.enable');
  await whenLoaded(() => send('Page.navigate', { url: link }));
  await tell();
  await choose('Continue');
  await tell();
  await choose(`Connect ${server}`);
  await tell('connect-consent');
  await choose('Continue');
  await tell();
  await choose('your connections');
  await tell('connect-list');
  await choose(`Revoke ${server}`);
  await tell();
}

walk().then(() => end(), end);
