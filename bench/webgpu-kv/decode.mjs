// Every format of one row a sequence, timed, and the best of its kernels.

import { args, option } from '../options.mjs';
import { shapeOf } from './cases.mjs';
import { quick, report } from './context.mjs';
import { formats } from './formats.mjs';
import { BYTES, WIDE } from './kernels.mjs';
import { measureRead } from './read.mjs';
import { rowsAt, timeCase } from './time.mjs';

const model = option('--model', quick ? '4,2,64' : '32,8,128')
  .split(',')
  .map(Number);
const common = [WIDE];
const onBytes = [BYTES];
/** Runs of planes of V by one lane, or by two. */
const runs = [32, 16].map((valueDims) => ({ ...WIDE, valueDims }));
const own = {
  f16: [
    { threads: 64, unroll: 4, valueUnroll: 4 },
    { threads: 128, unroll: 4, valueUnroll: 8 },
  ],
  affine8: onBytes,
  affine4: onBytes,
  turbo4: runs,
  'turbo3.5': runs,
};
export async function timeDecode() {
  const bests = [];
  await measureRead('before');
  for (const [rows, context] of quick
    ? [[2, 300]]
    : [
        [4, 20000],
        [32, 4000],
      ]) {
    for (const [name, [key, value]] of Object.entries(formats)) {
      const best = await timeCase(
        `${name} ${rows} × ${context}`,
        shapeOf(...model, key, value),
        rowsAt(rows, context),
        [...common, ...own[name]].slice(0, quick ? 2 : undefined),
      );
      if (best !== null) bests.push({ ...best, format: name, rows });
    }
  }
  if (!quick && args.includes('--one'))
    for (const [rows, context] of [
      [1, 4096],
      [1, 20000],
    ])
      for (const [name, [key, value]] of Object.entries(formats))
        await timeCase(
          `${name} ${rows} × ${context}`,
          shapeOf(...model, key, value),
          rowsAt(rows, context),
          [
            { threads: 256, unroll: 2, valueUnroll: 4 },
            { threads: 64, unroll: 4, valueUnroll: name === 'f16' ? 4 : 8 },
            ...(name === 'f16' ? [] : onBytes.slice(0, 1)),
          ],
          [4],
        );
  await measureRead('after');
  console.log('\nbest');
  for (const b of bests) {
    const float = bests.find((f) => f.format === 'f16' && f.rows === b.rows);
    console.log(
      `${b.name.padEnd(26)} ${b.config.padEnd(34)} ${b.us.toFixed(1).padStart(8)} µs ${b.gbs.toFixed(0).padStart(6)} GB/s ${(b.share * 100).toFixed(1).padStart(5)} %  ${(float.us / b.us).toFixed(2)} × f16`,
    );
  }
  report.bests = bests;
}
