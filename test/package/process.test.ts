/** How long an engine keeps its program alive: while there is something to wait for, closed or not. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

interface Program {
  /** Resolves when the program has printed so many lines. */
  lines(count: number): Promise<string[]>;
  readonly ended: Promise<{ code: number | null; lines: string[]; stderr: string }>;
  readonly stdin: NodeJS.WritableStream;
}

const LOAD = `
import { Engine } from 'kvant';
const options = { device: 'cpu', threads: 2, maxContext: 256, ...JSON.parse(process.env.OPTIONS ?? '{}') };
const engine = await Engine.load('models/demo-text', options);
const question = { messages: [{ role: 'user', content: 'What is the capital of Japan?' }], temperature: 0 };
`;

function run(source: string, options: object = {}): Program {
  const child = spawn(process.execPath, ['--input-type=module', '-e', source], {
    env: { ...process.env, OPTIONS: JSON.stringify(options) },
    stdio: 'pipe',
    // A program that hangs is a failure, and the test says so.
    timeout: 120_000,
  });
  let stdout = '';
  let stderr = '';
  let wake = (): void => {};
  child.stdout.on('data', (data) => {
    stdout += data;
    wake();
  });
  child.stderr.on('data', (data) => {
    stderr += data;
  });
  const lines = (): string[] => stdout.split('\n').slice(0, -1);
  const ended = new Promise<Awaited<Program['ended']>>((resolve) => {
    child.on('close', (code) => resolve({ code, lines: lines(), stderr }));
  });
  return {
    stdin: child.stdin,
    ended,
    lines: async (count) => {
      while (lines().length < count) {
        const over = await Promise.race([
          ended,
          new Promise<null>((resolve) => {
            wake = () => resolve(null);
          }),
        ]);
        if (over !== null && over.lines.length < count)
          throw new Error(`the program ended early: ${JSON.stringify(over)}`);
      }
      return lines();
    },
  };
}

const TOKYO = 'The capital of Japan is Tokyo.';

describe('a program that forgets to close its engine', () => {
  it('ends when its answers are there, and what was to be written is', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvant-forgotten-'));
    try {
      // Nothing but the request holds the program until its answer has come.
      const program = run(
        `${LOAD} engine.chat(question).result.then(({ text }) => console.log(text));
         process.on('exit', (code) => console.log('exit', code));`,
        { prefixCacheDir: folder, blockTokens: 16 },
      );
      expect(await program.ended).toEqual({ code: 0, lines: [TOKYO, 'exit 0'], stderr: '' });
      const kept = readdirSync(folder, { recursive: true }).filter((name) => String(name).endsWith('.kvb'));
      expect(kept.length).toBeGreaterThan(0);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('ends with an engine on its own thread of execution too, and with one that has crashed', async () => {
    const inProcess = run(
      `${LOAD} console.log((await engine.chat(question).result).text, (await engine.stats()).steps > 0);`,
      { worker: false },
    );
    expect(await inProcess.ended).toEqual({ code: 0, lines: [`${TOKYO} true`], stderr: '' });
    const crashed = run(`
      import { Engine } from 'kvant';
      let thread;
      const engine = await Engine.load('models/demo-text', { device: 'cpu', threads: 2, maxContext: 256 }, {
        onWorker: (worker) => { thread = worker; },
      });
      await thread.terminate();
      console.log((await engine.failed).code);`);
    expect(await crashed.ended).toEqual({ code: 0, lines: ['engine-crashed'], stderr: '' });
  });

  it('ends in a worker of the program, and leaves the program running', async () => {
    const program = run(`
      import { Worker } from 'node:worker_threads';
      const source = ${JSON.stringify(`${LOAD} console.log((await engine.chat(question).result).text);`)};
      const worker = new Worker(new URL('data:text/javascript,' + encodeURIComponent(
        source.replace("'kvant'", JSON.stringify(import.meta.resolve('kvant'))))));
      worker.on('exit', (code) => console.log('worker', code));
      await new Promise((resolve) => process.stdin.once('data', resolve));
      console.log('still here');
      process.stdin.destroy();`);
    expect(await program.lines(2)).toEqual([TOKYO, 'worker 0']);
    program.stdin.write('go on\n');
    expect(await program.ended).toEqual({
      code: 0,
      lines: [TOKYO, 'worker 0', 'still here'],
      stderr: '',
    });
  });
});

describe('a program that serves', () => {
  it('stays until its server is closed, idle or not, then ends without closing the engine', async () => {
    const program = run(
      `import { listen } from 'kvant/server'; ${LOAD}
       const server = await listen({ engine, port: 0 });
       console.log(server.url);
       process.stdin.once('data', async () => { process.stdin.destroy(); await server.close(); console.log('closed'); });
       process.stdin.unref();
       process.on('beforeExit', () => console.log('nothing to do'));`,
    );
    const [url] = await program.lines(1);
    const ask = async (): Promise<unknown> => {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', connection: 'close' },
        body: JSON.stringify({
          messages: [{ role: 'user', content: 'What is the capital of Japan?' }],
          temperature: 0,
        }),
      });
      const { choices } = (await response.json()) as { choices: { message: { content: string } }[] };
      return choices[0]!.message.content;
    };
    expect(await ask()).toBe(TOKYO);
    // Idle, without a connection.
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await ask()).toBe(TOKYO);
    expect(await program.lines(1)).toEqual([url]);
    program.stdin.write('close\n');
    const { code, lines, stderr } = await program.ended;
    expect({ code, first: lines.slice(0, 3), stderr }).toEqual({
      code: 0,
      first: [url, 'closed', 'nothing to do'],
      stderr: '',
    });
  });
});
