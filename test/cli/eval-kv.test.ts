import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EvalKvReport } from '../../src/cli/eval/kv-report.js';
import { kvant } from './kvant.js';

const fixtures = 'test/fixtures/eval';

describe('kvant eval kv', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-eval-kv-'));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
  });

  it('judges formats over texts and question sets, whole and cut, and draws them', {
    timeout: 240_000,
  }, async () => {
    const out = join(folder, 'kv.json');
    const { code, stdout } = await kvant([
      ...['eval', 'kv', 'models/demo-text', '--device', 'cpu', '--threads', '1', '--max-context', '1024'],
      ...[
        '--formats',
        'f32',
        '--text',
        `${fixtures}/texts.jsonl.br`,
        '--set',
        `${fixtures}/eval-recall.jsonl.br`,
      ],
      ...['--limit', '3', '--max-prompt', '400', '--out', out, '--plots', folder],
    ]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^f32 +512 +32 .* yes$/m);
    const report = JSON.parse(await readFile(out, 'utf8')) as EvalKvReport;
    expect(report.texts.map(({ name, texts }) => [name, texts])).toEqual([
      ['texts', 3],
      ['eval-recall', 3],
    ]);
    const [f16, f32] = report.formats;
    expect([f16!.name, f32!.name]).toEqual(['f16', 'f32']);
    expect(f16!.whole.klMax).toBeLessThan(1e-12);
    expect(f32!.whole.klMean).toBeGreaterThan(0);
    expect(f32!.whole.klMean).toBeLessThan(1e-6);
    expect(f32!.size).toMatchObject({ keyBytes: 512, bitsPerValue: 32, bytesPerToken: 8 * 2 * 2 * 512 });
    expect(Object.keys(f32!.whole.groups)).toEqual(['texts plain', 'eval-recall 100-500']);
    // The model knows these answers, and how they end.
    expect(f16!.whole.groups['eval-recall 100-500']!.perplexity).toBeLessThan(1.1);
    for (const { identical, questions } of report.formats) {
      expect(identical).toBe(true);
      expect(questions).toMatchObject([{ questions: 3, right: 3, lost: [], cut: { identical: true } }]);
    }
    for (const name of ['kv-kl.svg', 'kv-recall.svg'])
      expect(await readFile(join(folder, name), 'utf8')).toMatch(/^<svg [\s\S]*f32[\s\S]*<\/svg>\n$/);
  });

  it('asks about pictures with every format, and scores nothing of them', { timeout: 240_000 }, async () => {
    const set = 'test/fixtures/eval/vision.jsonl.br';
    const run = (...args: string[]) =>
      kvant([
        ...['eval', 'kv', 'models/demo-vision', '--device', 'cpu', '--threads', '1', '--max-context', '1024'],
        ...['--formats', 'affine4', '--limit', '2', ...args],
      ]);
    const { code, stdout } = await run('--set', set, '--plots', folder, '--json');
    expect(code, stdout).toBe(0);
    const report = JSON.parse(stdout) as EvalKvReport;
    expect(report.texts).toEqual([{ name: 'vision', texts: 0, tokens: 0, scored: 0 }]);
    expect(report.formats.map(({ name }) => name)).toEqual(['f16', 'affine4']);
    for (const { size, questions } of report.formats) {
      expect(size.bytesPerToken).toBeGreaterThan(0);
      expect(questions).toMatchObject([{ questions: 2, right: 2, lost: [], cut: { identical: true } }]);
    }
    expect((await run('--set', set, '--no-cut')).stdout).toMatch(/^affine4 .* – +– +– +– +– +– +2 −0 \+0$/m);
    const refused = async (...args: string[]): Promise<unknown> =>
      JSON.parse((await run('--json', ...args)).stdout).error;
    expect(await refused('--set', set, '--no-questions')).toMatchObject({
      code: 'invalid-flags',
      where: '--no-questions',
    });
    expect(await refused('--text', set)).toMatchObject({
      code: 'invalid-text-set',
      fix: 'Give its file to --set.',
    });
  });

  it('says what it needs before it loads anything', async () => {
    const json = async (...args: string[]): Promise<string> =>
      JSON.parse((await kvant(['eval', 'kv', 'models/demo-text', '--json', ...args])).stdout).error.code;
    expect(await json()).toBe('invalid-flags');
    expect(await json('--text', 'x', '--formats', 'f17')).toBe('kv-format-unknown');
    expect(await json('--text', join(folder, 'absent.jsonl'))).toBe('file-not-readable');
    expect(await json('--text', 'package.json')).toBe('invalid-json');
  });
});
