// Whether clients with long prompts keep others waiting: a flood of large bodies beside one stream that has nothing to do with them.
//
//   node bench/long-prompts.mjs [--rate 64] [--seconds 30] [--bytes 900000] [--kind mix] [--spaces] [--device-ms N] [--runs 1]
//
// kinds: spaces, letters, digits, mix (the three in turn), messages (tens of thousands of small ones), prompts (one body of 128
// prompts of 3,900 words). --spaces: a tokenizer whose longest token is 128 spaces and a context of 131,072, where no bound by
// length helps. --device-ms: the engine on a device that computes nothing and takes so long for a step, which shows what the
// server's thread costs by itself. Server, flood and watcher are processes of their own.
//
// Prints the longest and the 99th percentile of what /health took and of the gaps of the stream, without the flood and with it, the
// growth of the server's memory, and what became of the bodies.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const { values: flags } = parseArgs({
  options: {
    rate: { type: 'string', default: '64' },
    seconds: { type: 'string', default: '30' },
    bytes: { type: 'string', default: '900000' },
    kind: { type: 'string', default: 'mix' },
    runs: { type: 'string', default: '1' },
    spaces: { type: 'boolean', default: false },
    'device-ms': { type: 'string' },
    role: { type: 'string', default: 'watcher' },
    url: { type: 'string' },
    model: { type: 'string' },
  },
});
const [rate, seconds, bytes, runs] = [flags.rate, flags.seconds, flags.bytes, flags.runs].map(Number);

await { server, flood, watcher }[flags.role]();

async function server() {
  const { Engine } = await import('../dist/engine/engine.js');
  const { listen } = await import('../dist/server/index.js');
  const script =
    flags['device-ms'] === undefined
      ? {}
      : { workerScript: new URL('./instant-worker.mjs', import.meta.url) };
  const options = flags['device-ms'] === undefined ? { device: 'cpu' } : {};
  const context = flags.spaces ? {} : { maxContext: 4096 };
  const engine = await Engine.load(
    flags.model,
    { ...options, ...context, maxRows: 8, prefixCache: false },
    script,
  );
  const running = await listen({ engine, port: 0 });
  process.on('message', async () => {
    await running.close(1);
    await engine.close();
    process.disconnect();
  });
  process.send({ url: running.url });
}

async function flood() {
  const bodies = bodiesOf(flags.kind);
  const agent = new Agent({ keepAlive: true, maxSockets: 512 });
  const counts = {};
  let open = 0;
  const end = performance.now() + 1000 * seconds;
  const started = performance.now();
  for (let sent = 0; performance.now() < end; sent++) {
    await sleep(Math.max(0, started + (1000 * sent) / rate - performance.now()));
    open++;
    void post(agent, bodies[sent % bodies.length]).then((status) => {
      counts[status] = (counts[status] ?? 0) + 1;
      open--;
    });
  }
  const patience = performance.now() + 20_000;
  while (open > 0 && performance.now() < patience) await sleep(50);
  if (open > 0) counts.open = open;
  process.send(counts);
  process.disconnect();
  agent.destroy();
  process.exit();
}

function post(agent, { path, body }) {
  return new Promise((resolve) => {
    const headers = { 'content-type': 'application/json', 'content-length': body.length };
    const asked = request(`${flags.url}${path}`, { method: 'POST', agent, headers }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode));
      response.on('error', () => resolve('broken'));
    });
    asked.on('error', (error) => resolve(error.code ?? 'broken'));
    asked.end(body);
  });
}

function bodiesOf(kind) {
  const random = seeded(7);
  const pick = (letters) => {
    let text = '';
    for (let i = 0; i < bytes; i++) text += letters[Math.floor(random() * letters.length)];
    return text;
  };
  const prompt = (text) => ({
    path: '/v1/completions',
    body: Buffer.from(JSON.stringify({ prompt: text, max_tokens: 1 })),
  });
  const made = {
    spaces: () => [prompt(' '.repeat(bytes))],
    letters: () => [prompt(pick('abcdefghijklmnopqrstuvwxyz'))],
    digits: () => [prompt(pick('0123456789'))],
    mix: () => [made.spaces(), made.letters(), made.digits()].flat(),
    messages: () => {
      const messages = Array(Math.floor(bytes / 32)).fill({ role: 'user', content: 'a' });
      return [
        { path: '/v1/chat/completions', body: Buffer.from(JSON.stringify({ messages, max_tokens: 1 })) },
      ];
    },
    prompts: () => {
      const words = Array.from(
        { length: 3900 },
        () => ['dragon', 'house', 'river', 'stone'][Math.floor(random() * 4)],
      );
      return [prompt(Array(128).fill(words.join(' ')))];
    },
  };
  return made[kind]();
}

async function watcher() {
  const demo = fileURLToPath(new URL('../models/demo-text', import.meta.url));
  const model = flags.spaces ? await withSpaces(demo) : demo;
  try {
    for (let run = 0; run < runs; run++) await measure(model);
  } finally {
    if (model !== demo) await rm(model, { recursive: true });
  }
}

async function measure(model) {
  const self = fileURLToPath(import.meta.url);
  const args = process.argv.slice(2);
  const env = { ...process.env, KVANT_STEP_MS: flags['device-ms'] ?? '0' };
  const child = fork(self, [...args, '--role', 'server', '--model', model], { env });
  const [{ url }] = await once(child, 'message');
  await watch(url, child.pid, sleep(3000));
  const before = await watch(url, child.pid, sleep(5000));
  const flooding = fork(self, [...args, '--role', 'flood', '--url', url]);
  const answers = once(flooding, 'message').then(([counts]) => counts);
  const during = await watch(url, child.pid, sleep(1000 * seconds + 1000));
  const counts = await answers;
  const after = await watch(url, child.pid, sleep(3000));
  child.send('stop');
  await once(child, 'exit');
  const load = loadavg()[0].toFixed(1);
  console.log(
    `${flags.kind}${flags.spaces ? ' (128 spaces)' : ''}, ${rate}/s of ${bytes} bytes for ${seconds} s; ${availableParallelism()} cores, load ${load}`,
  );
  for (const [name, { health, gaps, tokens, failed }] of Object.entries({ before, during, after }))
    console.log(
      `${name.padEnd(7)} /health p99 ${at(health, 0.99)} most ${at(health, 1)} of ${health.length} (${failed} failed); gap p99 ${at(gaps, 0.99)} most ${at(gaps, 1)} ms; ${tokens} tokens`,
    );
  const mb = (value) => (value / 1e6).toFixed(0);
  console.log(
    `memory  before ${mb(before.rss)} most ${mb(during.rss)} after ${mb(after.rss)} MB, grown by ${mb(during.rss - before.rss)}`,
  );
  console.log('answers', JSON.stringify(counts));
}

/** Asks after the health and reads a stream until it is told to stop. */
async function watch(url, pid, until) {
  const state = { over: false };
  const [health, stream, memory] = [healthOf(url, state), streamOf(url, state), memoryOf(pid, state)];
  await until;
  state.over = true;
  return { ...(await health), ...(await stream), rss: await memory };
}

async function healthOf(url, state) {
  const health = [];
  let failed = 0;
  while (!state.over) {
    const began = performance.now();
    const response = await fetch(`${url}/health`).catch(() => null);
    await response?.text();
    if (response?.status !== 200) failed++;
    health.push(performance.now() - began);
    await sleep(50);
  }
  return { health, failed };
}

async function streamOf(url, state) {
  const gaps = [];
  let tokens = 0;
  while (!state.over) {
    const body = JSON.stringify({
      messages: [{ role: 'user', content: 'Tell me a story.' }],
      max_tokens: 2000,
      ignore_eos: true,
      stream: true,
    });
    const controller = new AbortController();
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      body,
      signal: controller.signal,
    });
    if (response.status !== 200) {
      await response.text();
      await sleep(50);
      continue;
    }
    let last = null;
    for await (const chunk of response.body) {
      const now = performance.now();
      if (last !== null) gaps.push(now - last);
      last = now;
      tokens += Buffer.from(chunk).toString().split('data: ').length - 1;
      if (state.over) break;
    }
    controller.abort();
  }
  return { gaps, tokens };
}

async function memoryOf(pid, state) {
  let most = 0;
  while (!state.over) {
    const status = await readFile(`/proc/${pid}/status`, 'utf8');
    most = Math.max(most, 1024 * Number(/VmRSS:\s+(\d+)/.exec(status)[1]));
    await sleep(50);
  }
  return most;
}

function at(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return (sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN).toFixed(1);
}

/** The demo model with a tokenizer of bytes and runs of up to 128 spaces, and a context of 131,072. */
async function withSpaces(demo) {
  const folder = await mkdtemp(join(tmpdir(), 'kvant-spaces-'));
  await cp(demo, folder, { recursive: true });
  const path = join(folder, 'tokenizer.json');
  const tokenizer = JSON.parse(await readFile(path, 'utf8'));
  const { vocab } = tokenizer.model;
  const size = Object.keys(vocab).length;
  const tokens = Object.keys(vocab).filter((token) => [...token].length === 1);
  const runs = [1, 2, 4, 8, 16, 32, 64].map((n) => '\u0120'.repeat(n));
  tokens.push(...runs.map((run) => run + run));
  while (tokens.length < size) tokens.push(`filler ${tokens.length}`);
  tokenizer.model.vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));
  tokenizer.model.merges = runs.map((run) => [run, run]);
  await writeFile(path, JSON.stringify(tokenizer));
  const config = JSON.parse(await readFile(join(folder, 'config.json'), 'utf8'));
  await writeFile(
    join(folder, 'config.json'),
    JSON.stringify({ ...config, max_position_embeddings: 131_072 }),
  );
  return folder;
}

function seeded(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return state / 0x80000000;
  };
}
