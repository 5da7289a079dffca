/** Attention over float K and V against float64. */
import { expect } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { KvFormat } from '../../src/device/kv.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import type { DeviceSpec } from './devices.js';
import { F16, F32, STEPS } from './kv-cases.js';
import { worstRow } from './numbers.js';

export type AttentionSteps = readonly (readonly [slots: number[], lengths: number[]])[];

/**
 * f32 arithmetic on stored values, or f16 operands on a GPU. A key that lies halfway between two f16 numbers may be
 * stored as either, for it is rotated in f32 here and in f64 there.
 */
export function attentionCheckBound(spec: DeviceSpec, format: KvFormat = F32): number {
  // A software adapter has no f16.
  const halves = spec.kind === 'webgpu' && spec.precision === 'default' && !spec.slow;
  if (halves) return 2e-3;
  return format === F16 ? 1e-3 : 1e-4;
}

/** What every attention is held to; quantised K and V have two steps more, of longer contexts. */
export const AWKWARD: AttentionSteps = STEPS.slice(0, 6);

/** Steps of a case on a device: rotated queries and each row of the result against float64. */
export async function checkAttention(
  device: Device,
  spec: DeviceSpec,
  c: AttentionCase,
  steps: AttentionSteps,
): Promise<void> {
  const bench = await Bench.open(device, c, 1 + c.headDim + c.heads);
  try {
    const width = c.heads * c.headDim;
    const given = c.heads * (c.valueDim ?? c.headDim);
    for (const [slots, lengths] of steps) {
      const { out, expected, q, expectedQ, rows } = await bench.step(slots, lengths);
      const where = `${JSON.stringify(c)} slots ${slots} lengths ${lengths}`;
      expect(worstRow(q, expectedQ, rows, width), `q of ${where}`).toBeLessThan(
        attentionCheckBound(spec, F32),
      );
      expect(worstRow(out, expected, rows, given), where).toBeLessThan(attentionCheckBound(spec, c.key));
    }
  } finally {
    await bench.close();
  }
}
