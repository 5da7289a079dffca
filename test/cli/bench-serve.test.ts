import { describe, expect, it } from 'vitest';
import type { EngineRatio } from '../../src/cli/bench/engine-command.js';
import type { ServeReport } from '../../src/cli/bench/serve-report.js';
import { kvant, kvantServe } from './kvant.js';

const small = ['--shapes', 'demo', '--vocab', '700', '--device', 'cpu', '--threads', '1'];

describe('kvant bench serve', () => {
  it('sends the server and an engine the same requests in turns', { timeout: 120_000 }, async () => {
    const { code, stdout, stderr } = await kvant([
      ...['bench', 'serve', ...small, '--clients', '3', '--requests', '2', '--rounds', '2', '--json'],
      ...['--prompt', '8,20', '--generate', '4,12', '--kv-bits', '8', '--kv-skip-layers=-1'],
    ]);
    expect(stderr).not.toContain('rror');
    expect(code).toBe(0);
    const report = JSON.parse(stdout) as ServeReport;
    expect(report).toMatchObject({ model: 'demo', clients: 3, rows: 3, requests: 6, rounds: 2 });
    for (const { tokensPerSecond, tokensPerPiece, ttftMs, gapMs } of [report.http, report.direct]) {
      expect(tokensPerSecond).toBeGreaterThan(0);
      expect(tokensPerPiece).toBeGreaterThanOrEqual(1);
      expect(ttftMs.p50).toBeGreaterThan(0);
      expect(ttftMs.p99).toBeGreaterThanOrEqual(ttftMs.p50);
      expect(gapMs.p99).toBeGreaterThan(0);
    }
    const { median, lowest, highest } = report.ratio;
    expect(median).toBeGreaterThanOrEqual(lowest);
    expect(highest).toBeGreaterThanOrEqual(median);
    if (process.platform === 'linux') expect(report.serverMicroseconds?.main).toBeGreaterThan(0);
  });

  it('says what is wrong: its own flags, and what the server says of the others', async () => {
    const error = async (...args: string[]): Promise<object> =>
      JSON.parse((await kvant(['bench', 'serve', ...args, '--json'])).stdout).error;
    expect(await error()).toMatchObject({ code: 'invalid-flags' });
    expect(await error(...small, '--prompt', '9,3')).toMatchObject({ code: 'invalid-flags' });
    expect(await error('no/such/folder/here')).toMatchObject({
      code: 'server-not-started',
      message: expect.stringContaining('no/such/folder'),
    });
  });
});

describe('kvant bench engine', () => {
  it('decodes through the engine and without it', { timeout: 120_000 }, async () => {
    const { code, stdout } = await kvant([
      ...['bench', 'engine', ...small, '--rows', '1,2', '--prompt', '300', '--generate', '24'],
      ...['--rounds', '2', '--json'],
    ]);
    expect(code).toBe(0);
    const { results, ...head } = JSON.parse(stdout) as { results: EngineRatio[] };
    expect(head).toMatchObject({ model: 'demo', prompt: 300, generate: 24, rounds: 2 });
    expect(results.map(({ rows }) => rows)).toEqual([1, 2]);
    for (const { engineMs, bareMs, ratio } of results) {
      expect(engineMs).toBeGreaterThan(0);
      expect(bareMs).toBeGreaterThan(0);
      expect(ratio.highest).toBeGreaterThanOrEqual(ratio.lowest);
    }
  });
});

describe('kvant serve --shapes', () => {
  it('serves made-up weights with made-up words', async () => {
    const { url, stop } = await kvantServe(small);
    const ask = async (path: string, body: object): Promise<{ choices: Record<string, unknown>[] }> => {
      const init = {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...body, max_tokens: 6, temperature: 0 }),
      };
      return (await (await fetch(`${url}/v1/${path}`, init)).json()) as {
        choices: Record<string, unknown>[];
      };
    };
    try {
      const chat = await ask('chat/completions', { messages: [{ role: 'user', content: 'Hi' }] });
      const { message, finish_reason } = chat.choices[0] as {
        message: { content: string };
        finish_reason: string;
      };
      // Nothing ends an answer of its own.
      expect(finish_reason).toBe('length');
      expect(message.content).not.toBe('');
      const text = await ask('completions', { prompt: [1, 2, 699] });
      expect(text.choices[0]?.text).not.toBe('');
    } finally {
      await stop('SIGTERM');
    }
  });
});
