import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random } from '../../../test/devices/numbers.js';
import { rowCases, tokensOf } from '../../../test/devices/sampling-cases.js';
import { specOfRow } from '../../../test/devices/sampling-reference.js';
import { Sampler } from '../../../test/devices/sampling-run.js';
import { held } from '../../../test/setup/held.js';
import { openTestDevice } from '../../../test/setup/swiftshader.js';
import { FEATURE } from '../sampling.js';
import type { WebGpuDevice } from './device.js';
import type { StepFacts, Workgroups } from './kernel.js';
import { sampleKernel } from './kernels/sample.js';

const VOCAB = 200;

describe('GpuSamplerRows', () => {
  // One for all tests: its kernels compile for half a minute in software.
  let d: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device: d, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await d[Symbol.asyncDispose]();
  });

  it('sends what is new of a history that went on, and all of one that did not', async () => {
    const sampler = await Sampler.make(d, VOCAB);
    const dry = { multiplier: 1, window: 40 };
    const row = { repetition: { penalty: 1.3, window: 30 }, frequency: 0.5, dry };
    const tokens = tokensOf(VOCAB, 200, new Random(8));
    const sync = (history: readonly number[]) =>
      sampler.sync(0, { row, tokens: { history, promptLength: tokens.promptLength } });
    await sync(tokens.history);
    let sent = 0;
    const { queue } = raw;
    const write = queue.writeBuffer.bind(queue);
    queue.writeBuffer = (...rest: Parameters<typeof write>) => {
      sent += (rest[2] as Uint32Array).byteLength;
      return write(...rest);
    };
    const cost = async (history: readonly number[]): Promise<number> => {
      sent = 0;
      await sync(history);
      return sent;
    };
    const { history } = tokens;
    expect(await cost(history)).toBe(0);
    // The head, 40 lengths, and for each of two tokens itself and three counts.
    expect(await cost([...history, 5, 6])).toBeLessThanOrEqual(16 + 160 + 2 * 16);
    const whole = 2 * VOCAB * 4;
    expect(await cost(history)).toBeGreaterThan(whole);
    const other = history.map((id, i) => (i === history.length - 9 ? (id + 1) % VOCAB : id));
    expect(await cost(other)).toBeGreaterThan(whole);
    expect(await cost(other)).toBe(0);
    queue.writeBuffer = write;
    await sampler.program.dispose();
  });

  it('makes nothing on the device in a step, whatever its rows ask for', async () => {
    const sampler = await Sampler.make(d, VOCAB);
    const random = new Random(4);
    const tokens = tokensOf(VOCAB, 40, random);
    const rows = Object.values(rowCases(VOCAB, tokens, random)).map((row) => ({ row, tokens }));
    for (const [slot, row] of rows.entries()) await sampler.sync(slot, row);
    await sampler.program.prepare(rows.length, rows.length);
    await sampler.program.prepare(1, 1);
    const before = { ...held(d), created: d.created };
    const logits = rows.map(() => random.normals(VOCAB, 2));
    for (let n = 0; n < 5; n++) await sampler.draw(logits, rows);
    for (const [slot, row] of rows.entries()) await sampler.draw([logits[slot]!], [row], [slot]);
    expect({ ...held(d), created: d.created }).toEqual(before);
    await sampler.program.dispose();
    expect(d.stats().samplerBytes).toBe(0);
  });

  it('refuses a draw with state that was not synced, and masks that fit nothing', async () => {
    const sampler = await Sampler.make(d, VOCAB);
    const tokens = { history: [1, 2, 1, 2], promptLength: 2 };
    const logits = [new Random(1).normals(VOCAB)];
    const repetition = { row: { repetition: { penalty: 1.2 } }, tokens };
    await expect(sampler.draw(logits, [repetition])).rejects.toMatchObject({ code: 'invalid-step' });
    await sampler.sync(0, repetition);
    expect(() => sampler.rows.setMask(0, new Uint32Array(7))).toThrow(/not synced for a mask/);
    await sampler.draw(logits, [repetition]);
    const counted = { row: { frequency: 1 }, tokens };
    await expect(sampler.draw(logits, [counted])).rejects.toMatchObject({ code: 'invalid-step' });
    await sampler.sync(0, { row: { mask: [1] }, tokens });
    expect(() => sampler.rows.setMask(0, new Uint32Array(3))).toThrow(/7 are needed/);
    const long = Int32Array.from({ length: 5000 }, () => 1);
    await expect(sampler.rows.sync(1, specOfRow(repetition.row), long, 0)).rejects.toMatchObject({
      code: 'invalid-step',
    });
    await sampler.program.dispose();
  });
});

describe('the launches of the sampler', () => {
  const capabilities = { workgroupBytes: 49152, workgroupThreads: 1024 } as Parameters<
    typeof sampleKernel
  >[0];
  const { stages } = sampleKernel(capabilities, { vocab: 151936, stride: 151936, rows: 32 });
  function launched(facts: Partial<StepFacts>): string[] {
    const all = {
      tokens: 1,
      outputs: 1,
      sequences: 1,
      items: 0,
      itemRows: 0,
      itemSplits: 1,
      tiles: 0,
      tileParts: 1,
      ahead: 0,
    };
    const out: Workgroups = [0, 0, 0];
    return stages
      .filter((stage) => {
        stage.workgroups({ ...all, features: 0, dryWindow: 0, maxTopK: 0, filteredRows: 0, ...facts }, out);
        return out.every((n) => n > 0);
      })
      .map((stage) => stage.label.replace(' [151936]', '').replace('sample ', ''));
  }

  it('are two for a step without extras, and others only where a row asks', () => {
    const full = ['chunks with features', 'rows with features'];
    expect(launched({})).toEqual(['chunks', 'rows']);
    expect(launched({ maxTopK: 40, filteredRows: 1 })).toEqual(['chunks', 'rows']);
    expect(launched({ maxTopK: 0xffffffff, filteredRows: 1 })).toEqual(['chunks', 'histogram', 'rows']);
    expect(launched({ features: FEATURE.REPETITION | FEATURE.COUNTS })).toEqual(full);
    expect(
      launched({ features: FEATURE.BIAS | FEATURE.MASK | FEATURE.BANNED, maxTopK: 40, filteredRows: 1 }),
    ).toEqual(full);
    // What a record tells is a matter of workgroups, not of a launch.
    expect(launched({ features: FEATURE.LOGPROBS })).toEqual(full);
    expect(launched({ features: FEATURE.DRY, dryWindow: 9 })).toEqual(['matches', ...full]);
    expect(launched({ features: FEATURE.DRY, dryWindow: 0 })).toEqual(full);
    expect(launched({ features: FEATURE.TYPICAL, filteredRows: 1 })).toEqual([
      full[0],
      'histogram with features',
      full[1],
    ]);
  });

  it('bind no more storage buffers than every device has', () => {
    for (const { bindings } of stages)
      expect(bindings.filter((b) => b.access !== 'uniform').length).toBeLessThanOrEqual(8);
  });
});
