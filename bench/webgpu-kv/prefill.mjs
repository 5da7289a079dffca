// Prompt tiles on subgroup matrices: checked at 200 tokens after 100, timed at 4,096.

import { built } from '../options.mjs';
import { stageText } from '../webgpu-attend.mjs';
import { relativeError } from '../webgpu-harness.mjs';
import { buffersOf, makePrompt, queriesOf, reference, shapeOf } from './cases.mjs';
import { affine, bench, features, lanes, report, turbo } from './context.mjs';
import { formats } from './formats.mjs';
import { Side } from './stored.mjs';
import { timing } from './time.mjs';

const { prefillFits } = await built('device/webgpu/kernels/attend-prefill-plan.js');
const { prefillStage } = await built('device/webgpu/kernels/attend-prefill.js');
const { turnStage } = await built('device/webgpu/kernels/attend-reduce.js');

export async function checkAndTimePrefill() {
  const m = features.matrices.find(
    (x) => x.M === 16 && x.N === 16 && x.K === 16 && x.component === 'f16' && x.result === 'f32',
  );
  if (m === undefined) console.log('prefill: no matrices of 16 × 16 × 16');
  report.prefill = [];
  const config = m && {
    matrix: { m: 16, n: 16, k: 16, component: 'f16', result: 'f32' },
    subgroupSize: lanes,
    keys: 64,
    rows: 64,
    workgroupBytes: features.workgroupBytes,
  };
  const stagesOf = (c) => {
    const first = prefillStage(c.shape, config);
    return c.shape.value.kind === 'turboquant' ? [first, turnStage(c.shape)] : [first];
  };
  for (const [name, [key, value]] of Object.entries({
    ...formats,
    turbo4: [turbo(4), turbo(4)],
    'turbo2/8': [turbo(2), turbo(8)],
    'affine3/5': [affine(3), affine(5)],
    'affine6/2': [affine(6), affine(2)],
  })) {
    if (m === undefined) break;
    const row = { name };
    try {
      const shape = shapeOf(32, 8, 128, key, value);
      for (const [length, position, timed] of [
        [200, 100, false],
        [4096, 0, true],
      ]) {
        if (timed && !(name in formats)) continue;
        const c = makePrompt(shape, length, position);
        if (!prefillFits(c.shape, config)) throw new Error('does not fit');
        const keys = new Side('key', key, c.place, 5);
        const values = new Side('value', value, c.place, 6);
        const some = new Float32Array(timed ? c.rows * 32 * 128 : 0).map((_, i) => ((i % 7) - 3) / 10);
        const { plain, given } = timed ? { plain: some, given: some } : queriesOf(c, 2);
        const buffers = buffersOf(c, given);
        const all = { ...buffers, keys: keys.buffer, values: values.buffer };
        const launches = [];
        for (const stage of stagesOf(c))
          launches.push(bench.launch(await bench.compile(stageText(stage, c.facts)), all));
        if (timed) {
          const t = await bench.time(launches, timing);
          row.us = t.us * launches.length;
          row.alone = (await bench.time(launches.slice(0, 1), timing)).us;
        } else {
          bench.run(launches);
          const out = await bench.readFloats(buffers.out, c.rows * 32 * 128, 'f32');
          row.error = 0;
          for (const [r, head] of [
            [0, 0],
            [77, 13],
            [199, 31],
          ]) {
            const at = (r * 32 + head) * 128;
            const error = relativeError(
              out.subarray(at, at + 128),
              reference(c, keys, values, plain, r, head, 0),
            );
            row.error = Math.max(row.error, Number.isNaN(error) ? Number.POSITIVE_INFINITY : error);
          }
        }
        for (const b of [...Object.values(buffers), keys.buffer, values.buffer]) b.destroy();
      }
    } catch (error) {
      row.failed = String(error.message).slice(0, 600);
    }
    report.prefill.push(row);
    const float = report.prefill.find((r) => r.name === 'f16');
    console.log(
      `prefill ${name.padEnd(10)} ${row.failed ?? `error ${row.error.toExponential(1)}${row.us === undefined ? '' : `, 4096 tokens ${row.us.toFixed(0)} µs (${(row.us - row.alone).toFixed(0)} to turn back), ${(float.us / row.us).toFixed(2)} × f16`}`}`,
    );
  }
}
