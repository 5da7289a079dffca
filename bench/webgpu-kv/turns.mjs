// Two kinds of kernels beside what there is else for their formats: checked, then timed in turns.

import { option } from '../options.mjs';
import { shapeOf } from './cases.mjs';
import { check } from './check.mjs';
import { affine, left, quick, report, turbo } from './context.mjs';
import { BYTES, QUADS, WIDE } from './kernels.mjs';
import { measureRead } from './read.mjs';
import { rowsAt, timeTurns } from './time.mjs';

/** Attention by quads. */
export async function quadsInTurns() {
  const contexts = quick ? [70, 5] : [700, 256, 255, 1];
  for (const [key, value] of [
    [affine(8), affine(8)],
    [affine(8), affine(4)],
    [affine(4, 128), affine(8, 32)],
  ]) {
    await check(shapeOf(8, 2, 128, key, value), contexts, QUADS, 8);
    await check(shapeOf(6, 2, 128, key, value, { window: 300 }), contexts, QUADS, 2);
    await check(shapeOf(4, 4, 128, key, value, { softcap: 2 }), contexts, QUADS, 2);
  }
  await check(shapeOf(4, 2, 64, affine(4), affine(8)), contexts, QUADS, 2);
  const worst = Math.max(...report.checks.map((r) => (r.good ? r.error : Number.POSITIVE_INFINITY)));
  console.log(`quads: ${report.checks.length} checks, worst error ${worst.toExponential(1)}`);
  await measureRead('before');
  for (const [rows, context] of quick
    ? [[2, 300]]
    : [
        [4, 20000],
        [32, 4000],
      ])
    for (const [name, format, other] of [
      ['affine8', affine(8), WIDE],
      ['affine4', affine(4), BYTES],
    ])
      if (left() > 5)
        await timeTurns(
          `${name} ${rows} × ${context}`,
          shapeOf(32, 8, 128, format, format),
          rowsAt(rows, context),
          [other, QUADS],
          quick ? 1 : 3,
        );
}

/** Attention on matrices of bytes. */
export async function bytesInTurns() {
  const contexts = quick ? [70, 5] : [1500, 700, 256, 255, 1];
  for (const [key, value] of [
    [affine(4), affine(4)],
    [turbo(3), turbo(4)],
    [turbo(2), turbo(3)],
    [affine(8), affine(8)],
    [affine(4, 128), turbo(4)],
    [turbo(4), affine(3)],
  ]) {
    await check(shapeOf(8, 2, 128, key, value), contexts, BYTES, 8);
    await check(shapeOf(6, 2, 128, key, value, { window: 300 }), contexts, BYTES, 2);
    await check(shapeOf(3, 3, 128, key, value, { softcap: 2 }), contexts, BYTES, 2);
  }
  const worst = Math.max(...report.checks.map((r) => (r.good ? r.error : Number.POSITIVE_INFINITY)));
  console.log(`bytes: ${report.checks.length} checks, worst error ${worst.toExponential(1)}`);
  await measureRead('before');
  const turns = (
    quick
      ? [[2, 300]]
      : [
          [4, 20000],
          [32, 4000],
          [4, 8000],
        ]
  ).flatMap(([rows, context]) =>
    [
      ['affine4', affine(4), affine(4), [WIDE, BYTES]],
      ['turbo3.5', turbo(3), turbo(4), [{ ...WIDE, valueUnroll: 4 }, BYTES]],
      ['affine8', affine(8), affine(8), [QUADS, BYTES]],
      ['turbo4', turbo(4), turbo(4), [BYTES]],
      ['affine2', affine(2), affine(2), [WIDE, BYTES]],
    ].map((format) => [rows, context, ...format]),
  );
  for (const [rows, context, name, key, value, configs] of turns.slice(
    ...option('--turns', '0,99').split(',').map(Number),
  ))
    if (left() > 5)
      await timeTurns(
        `${name} ${rows} × ${context}`,
        shapeOf(32, 8, 128, key, value),
        rowsAt(rows, context),
        configs,
        quick ? 1 : Number(option('--rounds', '3')),
      );
}
