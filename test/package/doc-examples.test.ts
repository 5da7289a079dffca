/** Programs of docs/in-your-app.md that need nothing but kvant; those of frameworks run with `npm run test:bundlers`. */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { docExamples } from './doc-examples.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'kvant-examples-'));

beforeAll(() => {
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(root, join(folder, 'node_modules/kvant'));
  for (const [name, text] of docExamples()) if (!name.includes('/')) writeFileSync(join(folder, name), text);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** Runs `work` with the example's address while it serves. */
async function serving(name: string, work: (url: string) => Promise<void>): Promise<number | null> {
  const port = await freePort();
  const child = spawn(process.execPath, [name], {
    cwd: folder,
    env: { ...process.env, MODEL: join(root, 'models/demo-text'), PORT: String(port) },
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: 120_000,
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  try {
    await new Promise<void>((resolve, reject) => {
      child.stdout.on('data', (data) => /Ready/.test(String(data)) && resolve());
      ended.then((code) => reject(new Error(`${name} ended with ${code}`)));
    });
    await work(`http://127.0.0.1:${port}`);
  } finally {
    child.kill('SIGTERM');
  }
  return ended;
}

describe('examples of the page', () => {
  it('names every example that is run, here or with the bundlers', () => {
    expect([...docExamples().keys()].sort()).toEqual(
      [
        'engine.mjs',
        'http.mjs',
        'express.mjs',
        'fastify.mjs',
        'serve.mjs',
        'next.config.mjs',
        'app/api/ask/route.js',
      ].sort(),
    );
  });

  it("Node's own server answers, and says why it refuses", async () => {
    await serving('http.mjs', async (url) => {
      const ask = (q: string): Promise<Response> => fetch(`${url}/?q=${encodeURIComponent(q)}`);
      expect(await (await ask('What is the capital of Japan?')).text()).toBe(
        'The capital of Japan is Tokyo.',
      );
      const refused = await ask('1234567890'.repeat(1200));
      expect(refused.status).toBe(400);
      expect(await refused.text()).toContain('Shorten the messages');
    });
  });

  it('the OpenAI protocol is spoken until SIGTERM, then the process ends', async () => {
    const code = await serving('serve.mjs', async (url) => {
      const models = (await (await fetch(`${url}/v1/models`)).json()) as { data: unknown[] };
      expect(models.data).toHaveLength(1);
    });
    expect(code).toBe(0);
  });
});
