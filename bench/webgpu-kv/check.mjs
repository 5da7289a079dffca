// Kernels beside float64.

import { args, built, option } from '../options.mjs';
import { stageText } from '../webgpu-attend.mjs';
import { relativeError } from '../webgpu-harness.mjs';
import { buffersOf, makeCase, queriesOf, reference, shapeOf } from './cases.mjs';
import { affine, bench, F16, F32, quick, report, save, turbo } from './context.mjs';
import { BYTES, fits, label, stageOf, WIDE } from './kernels.mjs';
import { Side } from './stored.mjs';

const { kvFormatName } = await built('device/kv.js');
const { reduceStage } = await built('device/webgpu/kernels/attend-reduce.js');

export async function check(shape, positions, config, sharp, slices = 4) {
  const c = makeCase(shape, positions, config.split);
  const row = {
    name: `${kvFormatName(shape.key)}/${kvFormatName(shape.value)} ${shape.heads}/${shape.kvHeads}×${shape.headDim}${shape.window === null ? '' : ` w${shape.window}`}${shape.softcap === null ? '' : ` cap${shape.softcap}`} q×${sharp}`,
    config: label(config),
  };
  try {
    if (!fits(c.shape, config)) {
      row.skipped = true;
      report.checks.push(row);
      return;
    }
    const keys = new Side('key', shape.key, c.place, 5);
    const values = new Side('value', shape.value, c.place, 6);
    const { plain, given } = queriesOf(c, sharp);
    const buffers = buffersOf(c, given);
    const all = { ...buffers, keys: keys.buffer, values: values.buffer };
    const stages = [stageOf(c.shape, config), reduceStage(c.shape, slices)];
    const launches = [];
    for (const stage of stages)
      launches.push(bench.launch(await bench.compile(stageText(stage, c.facts)), all));
    bench.run(launches);
    const out = await bench.readFloats(buffers.out, c.rows * shape.heads * shape.headDim, 'f32');
    let worst = 0;
    for (let r = 0; r < c.rows; r++)
      for (const head of new Set([0, shape.heads - 1, (r * 5 + 1) % shape.heads])) {
        const ref = reference(c, keys, values, plain, r, head);
        const at = (r * shape.heads + head) * shape.headDim;
        const error = relativeError(out.subarray(at, at + shape.headDim), ref);
        worst = Number.isNaN(error) ? Number.NaN : Math.max(worst, error);
      }
    row.error = worst;
    row.bound = 2e-3;
    row.good = worst < 2e-3;
    for (const b of [...Object.values(buffers), keys.buffer, values.buffer]) b.destroy();
  } catch (error) {
    row.failed = String(error.message).slice(0, 700);
  }
  report.checks.push(row);
  if (row.failed !== undefined || !row.good)
    console.log(`check ${row.name} ${row.config}: ${row.failed ?? `error ${row.error}`}`);
}

export async function checkAll() {
  const pairs = [
    [F16, F16],
    [F32, F32],
    [affine(8), affine(8)],
    [affine(4), affine(4)],
    [turbo(3), turbo(4)],
    [turbo(4), turbo(4)],
    [turbo(2), turbo(3)],
    [turbo(8), turbo(8)],
    [affine(8, 32), affine(4, 32)],
    [affine(4, 128), affine(8, 128)],
    [affine(2), affine(3)],
    [affine(3), affine(2)],
    [affine(6), affine(5)],
    [affine(5), affine(6)],
    [affine(8), turbo(4)],
    [F16, turbo(3)],
    [turbo(3), F16],
  ];
  const context = quick ? [70, 5] : [700, 255, 256];
  const config = { threads: 64, unroll: 4, valueUnroll: 4 };
  const bytes = pairs.filter((p) => p.every((f) => f.kind === 'affine'));
  for (const [key, value] of [...bytes, [affine(2), affine(2)]].slice(
    ...option('--pairs', '0,99').split(',').map(Number),
  ))
    for (const shape of [
      shapeOf(8, 2, 128, key, value),
      shapeOf(6, 2, 128, key, value, { window: 300 }),
      shapeOf(4, 4, 128, key, value, { softcap: 2 }),
    ])
      for (const sharp of quick ? [2] : [2, 8])
        await check(shape, quick ? [600, 5] : [1500, 700, 255, 256, 1], BYTES, sharp);
  for (const [key, value] of args.includes('--bytes') ? [] : pairs) {
    await check(shapeOf(8, 2, 128, key, value), context, config, 2);
    if (quick) continue;
    await check(shapeOf(8, 2, 128, key, value), context, config, 8);
    if (pairs.findIndex((p) => p[0] === key && p[1] === value) > 5) continue;
    await check(shapeOf(8, 1, 128, key, value), context, config, 2);
    await check(shapeOf(4, 2, 64, key, value), context, config, 2);
    await check(shapeOf(3, 3, 256, key, value), context, config, 2);
  }
  for (const [key, value] of args.includes('--bytes') ? [] : pairs.slice(0, 6)) {
    await check(shapeOf(14, 2, 128, key, value), context, config, 2);
    await check(shapeOf(8, 2, 128, key, value, { window: 100 }), context, config, 2);
    if (quick) continue;
    await check(shapeOf(8, 2, 128, key, value, { softcap: 2 }), context, config, 2);
    for (const more of [
      { threads: 128, unroll: 2, valueUnroll: 2, ahead: true },
      { threads: 256, unroll: 2, valueUnroll: 4, dot: false },
      WIDE,
    ])
      await check(shapeOf(32, 8, 128, key, value), context, more, 2);
    for (const shape of [{}, { window: 300 }, { softcap: 2 }])
      await check(shapeOf(8, 2, 128, key, value, shape), [1500, 700, 255, 256], { ...config, split: 512 }, 2);
  }
  const done = report.checks.filter((r) => r.error !== undefined);
  const bad = report.checks.filter((r) => r.failed !== undefined || r.good === false);
  console.log(
    `checked ${done.length}, ${bad.length} wrong, ${report.checks.filter((r) => r.skipped).length} have no fast kernel`,
  );
  const byName = new Map();
  for (const r of done) {
    const name = `${r.name.split(' ')[0]} ${r.name.split(' ').at(-1)}`;
    byName.set(name, Math.max(byName.get(name) ?? 0, r.error));
  }
  for (const [name, error] of byName) console.log(`  worst ${name.padEnd(30)} ${error.toExponential(1)}`);
  save();
}
