import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RoundResult, runRound } from './serve.js';
import { BenchClient, type StreamTimes } from './serve-client.js';
import { drawLoad } from './serve-load.js';
import { serveReport, serveText } from './serve-report.js';
import { engineArguments } from './typed-flags.js';

describe('the requests', () => {
  // A token is a letter.
  const text = {
    tokenize: (of: string) => [...of].map((letter) => letter.charCodeAt(0)),
    detokenize: (ids: readonly number[]) => String.fromCharCode(...ids),
  };
  const spec = { requests: 500, prompt: [4, 64], generate: [8, 128], seed: 3 } as const;

  it('are of lengths even on a logarithmic scale, and the same for the same seed', () => {
    const load = drawLoad(spec, text);
    expect(drawLoad(spec, text)).toEqual(load);
    expect(drawLoad({ ...spec, seed: 4 }, text)).not.toEqual(load);
    for (const [of, from, to] of [
      [load.map((one) => one.text.length), 4, 64],
      [load.map((one) => one.maxTokens), 8, 128],
    ] as const) {
      expect(Math.min(...of)).toBeGreaterThanOrEqual(from);
      expect(Math.max(...of)).toBeLessThanOrEqual(to);
      // Half of them are below the middle of the scale.
      const below = of.filter((length) => length < Math.sqrt(from * to)).length;
      expect(Math.abs(below - 250)).toBeLessThan(50);
    }
  });
});

describe('the client', () => {
  let url: string;
  let answer: (response: ServerResponse) => void = () => {};
  const server = createServer((_, response) => answer(response));
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });

  const ask = async (says: (response: ServerResponse) => void): Promise<StreamTimes> => {
    answer = says;
    const client = new BenchClient(url, 1);
    try {
      return await client.stream({ text: 'Hi', maxTokens: 3 });
    } finally {
      client.close();
    }
  };
  const piece = (content: string): string => `data: {"choices":[{"delta":{"content":"${content}"}}]}\n\n`;
  const usage = 'data: {"choices":[],"usage":{"completion_tokens":3}}\n\n';

  it('reads events wherever they are cut, and counts as the server does', async () => {
    const whole = Buffer.from(`${piece('')}: quiet\n\n${piece('ü')}${piece('x')}${usage}data: [DONE]\n\n`);
    const { pieces, tokens, sent, ended } = await ask((response) => {
      let at = 0;
      const next = (): void => {
        if (at === whole.length) response.end();
        else response.write(whole.subarray(at, ++at), () => setImmediate(next));
      };
      next();
    });
    expect([pieces.length, tokens]).toEqual([2, 3]);
    expect([sent, ...pieces, ended]).toEqual([sent, ...pieces, ended].sort((a, b) => a - b));
  });

  it('takes no half answer and no error for an answer', async () => {
    await expect(ask((response) => response.end(piece('a')))).rejects.toThrow(/before it was done/);
    await expect(ask((response) => response.end('data: {"error":{"message":"No."}}\n\n'))).rejects.toThrow(
      'No.',
    );
    await expect(ask((response) => response.writeHead(503).end('busy'))).rejects.toThrow(/503: busy/);
    await expect(ask((response) => response.write(piece('a'), () => response.destroy()))).rejects.toThrow();
  });
});

describe('a round', () => {
  const load = Array.from({ length: 5 }, (_, i) => ({ text: String(i), maxTokens: 2 }));

  it('has each client send its own, one at a time', async () => {
    const order: string[] = [];
    const open = new Set<string>();
    const result = await runRound(load, 2, async ({ text, maxTokens }) => {
      open.add(text);
      expect(open.size).toBeLessThanOrEqual(2);
      order.push(text);
      const sent = performance.now();
      await new Promise((resolve) => setTimeout(resolve, 2));
      open.delete(text);
      return { sent, pieces: [sent + 1, sent + 2], ended: sent + 2, tokens: maxTokens };
    });
    expect([...order].sort()).toEqual(['0', '1', '2', '3', '4']);
    expect(order.filter((text) => Number(text) % 2 === 0)).toEqual(['0', '2', '4']);
    expect(result).toMatchObject({ tokens: 10, pieces: 10 });
    for (const ms of [...result.ttftMs, ...result.gapsMs]) expect(ms).toBeCloseTo(1, 9);
    expect([result.ttftMs.length, result.gapsMs.length]).toEqual([5, 5]);
  });

  it('does not count answers that are shorter than asked for', async () => {
    const short = async () => ({ sent: 0, pieces: [1], ended: 2, tokens: 1 });
    await expect(runRound(load, 2, short)).rejects.toThrow('10 tokens were asked for, and 5 came');
  });
});

it('the report compares rounds with their own turn', () => {
  const round = (tokensPerSecond: number, gap: number): RoundResult => ({
    tokensPerSecond,
    tokens: 100,
    pieces: 50,
    ttftMs: [10, 20],
    gapsMs: [gap],
    seconds: 1,
  });
  const head = { model: 'm', device: 'd', clients: 2, rows: 2, requests: 4 };
  const turns = [
    { http: round(90, 1), direct: round(100, 2), server: { main: 3, others: 5 } },
    { http: round(190, 3), direct: round(200, 2), server: { main: 1, others: 7 } },
    { http: round(40, 2), direct: round(50, 2), server: { main: 2, others: 6 } },
  ];
  const report = serveReport(head, turns);
  expect(report.ratio).toEqual({ median: 0.9, lowest: 0.8, highest: 0.95 });
  expect(report.bestRatio).toBe(0.95);
  expect(report.http).toMatchObject({ tokensPerSecond: 90, tokensPerPiece: 2, gapMs: { p50: 2 } });
  expect(report.http.ttftMs.p50).toBe(15);
  expect(report.serverMicroseconds).toEqual({ main: 20, others: 60 });
  expect(serveText(report)).toMatch(
    /ratio 0\.900 \(0\.800–0\.950\), of the best rounds 0\.950\n.*20\.0 µs a token/,
  );
  const untold = turns.map(({ http, direct }) => ({ http, direct }));
  expect(serveReport(head, untold).serverMicroseconds).toBeNull();
});

it('flags for another process are as they would be typed', () => {
  expect(
    engineArguments({
      device: 'cpu',
      softwareGpu: true,
      maxContext: 512,
      prefixCache: false,
      kvSkipLayers: [0, -1],
      quantize: '4',
    }),
  ).toEqual([
    '--device=cpu',
    '--software-gpu',
    '--quantize=4',
    '--max-context=512',
    '--no-prefix-cache',
    '--kv-skip-layers=0,-1',
  ]);
});
