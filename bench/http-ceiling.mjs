// What serving costs beside the device: the server's main thread per token and per request, the engine's thread per step.
//
//   node bench/http-ceiling.mjs [--clients 64] [--tokens 200] [--step-ms 10] [--rounds 3] [--prof DIR]
//
// The real engine thread, server, sockets and streams on a device that computes nothing and answers after --step-ms (0: at once;
// then tokens come faster than they can be sent, and several go in one event). Clients are in this process, the server in
// another. Prints CPU time of its threads, as Linux counts it: no wall clock, so that what else the machine does counts
// little. --prof writes a profile of the server's threads.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { BenchClient } from '../dist/cli/bench/serve-client.js';
import { drawLoad } from '../dist/cli/bench/serve-load.js';
import { threadTimes, timesSince } from '../dist/cli/bench/thread-times.js';

const { values: flags } = parseArgs({
  options: {
    clients: { type: 'string', default: '64' },
    tokens: { type: 'string', default: '200' },
    prompt: { type: 'string', default: '64' },
    'step-ms': { type: 'string', default: '10' },
    rounds: { type: 'string', default: '3' },
    prof: { type: 'string' },
    server: { type: 'boolean', default: false },
  },
});
const [clients, tokens, prompt, rounds] = [flags.clients, flags.tokens, flags.prompt, flags.rounds].map(
  Number,
);
const model = fileURLToPath(new URL('../models/demo-text', import.meta.url));

if (flags.server) await server();
else await control();

async function server() {
  const { Engine } = await import('../dist/engine/engine.js');
  const { listen } = await import('../dist/server/index.js');
  const engine = await Engine.load(
    model,
    { maxRows: clients, maxContext: 4096, prefixCache: false },
    { workerScript: new URL('./instant-worker.mjs', import.meta.url) },
  );
  const running = await listen({ engine, port: 0 });
  process.on('message', async (message) => {
    if (message === 'stats') process.send({ steps: (await engine.stats()).steps });
    else if (message.direct) {
      await Promise.all(message.direct.map((one) => read(engine, one)));
      process.send({ done: true });
    } else {
      await running.close(1000);
      await engine.close();
      process.disconnect();
    }
  });
  process.send({ url: running.url });
}

async function read(engine, { text, maxTokens }) {
  const generation = engine.chat({
    messages: [{ role: 'user', content: text }],
    temperature: 0,
    maxTokens,
    ignoreEos: true,
  });
  for await (const delta of generation) if (delta.error) throw delta.error;
}

async function control() {
  const { Tokenizer } = await import('../dist/text/tokenizer.js');
  const tokenizer = await Tokenizer.load(model);
  const text = {
    tokenize: (of, options) => [...tokenizer.encode(of, options)],
    detokenize: (ids) => tokenizer.decode(ids),
  };
  const load = (generate) =>
    drawLoad({ requests: clients, prompt: [prompt, prompt], generate: [generate, generate], seed: 1 }, text);
  const child = fork(fileURLToPath(import.meta.url), [...process.argv.slice(2), '--server'], {
    env: { ...process.env, KVANT_STEP_MS: flags['step-ms'] },
    execArgv: flags.prof === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${flags.prof}`],
  });
  const [{ url }] = await once(child, 'message');
  const ask = async (message) => {
    child.send(message);
    return (await once(child, 'message'))[0];
  };
  const client = new BenchClient(url, clients);
  const http = async (requests) => {
    const answers = await Promise.all(requests.map((one) => client.stream(one)));
    return answers.reduce((sum, { pieces }) => sum + pieces.length, 0);
  };
  const direct = async (requests) => {
    await ask({ direct: requests });
    return 0;
  };
  const measure = async (run, generate) => {
    const requests = load(generate);
    const { steps } = await ask('stats');
    const before = await threadTimes(child.pid);
    const started = performance.now();
    const events = await run(requests);
    const wall = performance.now() - started;
    const after = await threadTimes(child.pid);
    const counted = (await ask('stats')).steps - steps;
    const main = after.get(child.pid) - before.get(child.pid);
    const engine = timesSince(before, after).find(({ thread }) => thread !== child.pid).ms;
    return { wall, events, steps: counted, main, engine, tokens: clients * generate };
  };
  // For the compilers.
  for (let i = 0; i < 2; i++) for (const run of [http, direct]) await measure(run, tokens);
  console.log(`${clients} clients, ${tokens} tokens each, a step of ${flags['step-ms']} ms`);
  const least = {};
  for (let round = 0; round < rounds; round++)
    for (const [name, run] of Object.entries({ http, direct })) {
      const short = await measure(run, 1);
      const long = await measure(run, tokens);
      const more = long.tokens - short.tokens;
      const one = {
        'main µs/token': (1000 * (long.main - short.main)) / more,
        'main µs/request': (1000 * short.main) / clients,
        'engine µs/step': (1000 * long.engine) / long.steps,
        'tokens/event': long.tokens / long.events,
        'tok/s': (1000 * long.tokens) / long.wall,
      };
      least[name] ??= one;
      for (const key of Object.keys(one))
        if (key.includes('µs')) least[name][key] = Math.min(least[name][key], one[key]);
      console.log(name.padEnd(7), show(one));
    }
  for (const [name, one] of Object.entries(least)) console.log(`least: ${name.padEnd(7)}`, show(one));
  client.close();
  child.send('stop');
  await once(child, 'exit');
}

function show(one) {
  return Object.entries(one)
    .map(([key, value]) => `${key} ${value.toFixed(value > 1000 ? 0 : 2)}`)
    .join(', ');
}
