import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CompareReport } from '../../src/cli/bench/compare-report.js';
import { kvant } from './kvant.js';

const small = ['bench', 'compare', '--shapes', 'demo', '--vocab', '256', '--device', 'cpu', '--threads', '1'];
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-compare-'));
});
afterAll(() => rm(folder, { recursive: true }));

describe('kvant bench compare', () => {
  it('measures cases beside a peer and the floor, and draws them', { timeout: 120_000 }, async () => {
    const [peer, out, plot] = ['peer.jsonl', 'out.json', 'plot.svg'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ];
    await writeFile(peer, 'gpu false\n{"kv":"f16","N":2,"P":24,"prefill_tok_s":100,"decode_tok_s":10}\n');
    const { code, stdout } = await kvant([
      ...small,
      ...['--rows', '1,2', '--prompt', '24', '--generate', '16', '--repeats', '1'],
      ...['--peer', peer, '--out', out, '--plot', plot],
    ]);
    expect(code).toBe(0);
    const report = JSON.parse(await readFile(out, 'utf8')) as CompareReport;
    expect(report).toMatchObject({ model: 'demo', vocab: 256, kv: 'f16/f16', peer });
    const { readBandwidth, products, launchSeconds } = report.ceilings;
    // Null where a busy machine gave no two readings alike.
    if (readBandwidth !== null) expect(readBandwidth).toBeGreaterThan(0);
    if (products !== null) expect(products.operationsPerSecond).toBeGreaterThan(0);
    if (launchSeconds !== null) expect(launchSeconds).toBeGreaterThan(0);
    expect(
      report.results.map((one) => `${one.case} ${one.rows} ${one.peer?.tokensPerSecond ?? '–'}`),
    ).toEqual(['decode 1 –', 'decode 2 10', 'prefill 1 –', 'prefill 2 100']);
    for (const one of report.results) {
      expect(one.tokensPerSecond).toBeGreaterThan(0);
      if (one.floor === null) continue;
      expect(one.floor.tokensPerSecond).toBeGreaterThan(0);
      expect(one.floor.share).toBeCloseTo(one.tokensPerSecond / one.floor.tokensPerSecond, 6);
    }
    expect(stdout).toMatch(/measured in this run: .*\n\ncase .*bound by\n(decode .*\n){2}(prefill .*\n){2}$/);
    const svg = await readFile(plot, 'utf8');
    // Ours and the floor of four cases, and the peer of two.
    const floors = report.results.filter(({ floor }) => floor !== null).length;
    expect(svg.match(/height="16"/g)).toHaveLength(6 + floors);
  });

  it('says what it needs before it loads anything', async () => {
    const error = async (...args: string[]): Promise<object> =>
      JSON.parse((await kvant([...args, '--json'])).stdout).error;
    expect(await error('bench', 'compare')).toMatchObject({ code: 'invalid-flags' });
    expect(await error(...small, '--cases', 'chat')).toMatchObject({ code: 'invalid-flags' });
    expect(await error(...small, '--peer', join(folder, 'none'))).toMatchObject({
      code: 'peer-file-missing',
    });
    const wrong = join(folder, 'wrong.json');
    await writeFile(wrong, '{"N": 1}');
    expect(await error(...small, '--peer', wrong)).toMatchObject({
      code: 'peer-file-invalid',
      fix: expect.stringContaining('prefill_tok_s'),
    });
    await writeFile(wrong, '{"N": 5, "P": 7, "decode_tok_s": 1}');
    expect(await error(...small, '--peer', wrong)).toMatchObject({ code: 'peer-no-match', where: '--peer' });
  });
});
