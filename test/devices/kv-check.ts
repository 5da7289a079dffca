/** Attention over stored K and V against float64 over what is stored. */
import { expect } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { kvFormatName } from '../../src/device/kv.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import type { DeviceSpec } from './devices.js';
import { attentionBound, STEPS } from './kv-cases.js';
import { worstRow } from './numbers.js';

/** Steps of a case on a device, each row within `bound` of float64. */
export async function checkKv(
  device: Device,
  spec: DeviceSpec,
  c: AttentionCase,
  steps = STEPS,
  bound = attentionBound(spec),
): Promise<void> {
  const bench = await Bench.open(device, c, 3 + c.headDim + c.heads);
  try {
    for (const [slots, lengths] of steps) {
      const { out, expected, halves, rows } = await bench.step(slots, lengths);
      const where = `${kvFormatName(c.key)}/${kvFormatName(c.value)} ${JSON.stringify(c)} slots ${slots} lengths ${lengths}`;
      const width = c.heads * c.headDim;
      const error = worstRow(out, expected, rows, width);
      // Operands of f16 on a GPU: at scores in the hundreds their rounding alone moves a row, by chance, and the rows of
      // a step with a score where the soft cap bends far more than others. How far it moves the worst is computed in
      // float64, for eight chances.
      const rounds = error >= bound && spec.kind === 'webgpu' && spec.precision === 'default';
      const moved = rounds ? halves().map((half) => worstRow(half, expected, rows, width)) : [];
      expect(error, where).toBeLessThan(bound + Math.SQRT2 * Math.max(0, ...moved));
    }
  } finally {
    await bench.close();
  }
}
