// What kernels take, alone and in turns.

import { args, built } from '../options.mjs';
import { stageText } from '../webgpu-attend.mjs';
import { buffersOf, makeCase, queriesOf, SPLIT } from './cases.mjs';
import { bench, count, left, quick, report, save } from './context.mjs';
import { fits, isBytes, label, stageOf } from './kernels.mjs';
import { clocks } from './read.mjs';
import { Side } from './stored.mjs';

const { kvLayout } = await built('device/webgpu/kernels/kv-layout.js');
const { reduceStage } = await built('device/webgpu/kernels/attend-reduce.js');

const slicesAll = args.includes('--slices');
export const timing = quick ? { targetUs: 300, samples: 1 } : { targetUs: 5000, samples: 5, warmMs: 150 };
/** Bytes that launches go round through, so that none finds the cache of the one before. */
const ROUND = quick ? 2 ** 22 : 400 * 2 ** 20;

export async function timeCase(name, shape, positions, configs, reduces = [4, 8, 16]) {
  const pools = [];
  const made = new Map();
  let best = null;
  for (const config of configs) {
    if (left() < 5) break;
    const split = config.split ?? SPLIT;
    let c = made.get(split);
    if (c === undefined) {
      c = makeCase(shape, positions, split);
      c.buffers = buffersOf(c, queriesOf(c, 1).given);
      made.set(split, c);
    }
    if (!fits(c.shape, config)) continue;
    if (pools.length === 0) {
      const size = kvLayout(shape.key, c.place).bytes + kvLayout(shape.value, c.place).bytes;
      for (let i = 0; i < Math.min(16, Math.max(1, Math.ceil(ROUND / size))); i++)
        pools.push({
          keys: new Side('key', shape.key, c.place, 5 + i).buffer,
          values: new Side('value', shape.value, c.place, 55 + i).buffer,
        });
    }
    const { kvHeads, headDim } = shape;
    const tokens = positions.reduce((n, p) => n + p + 1, 0);
    const one = { headDim, kvHeads, blockTokens: 1, blocks: 1 };
    const tokenBytes = (f) => {
      const l = kvLayout(f, one);
      return 4 * (l.words * kvHeads + l.groups * l.metaHeads);
    };
    const bytes = tokens * (tokenBytes(shape.key) + tokenBytes(shape.value));
    let alone;
    for (const slices of isBytes(config) || slicesAll ? reduces : reduces.slice(0, 1)) {
      const row = { name, config: label(config), slices };
      try {
        const first = await bench.compile(stageText(stageOf(c.shape, config), c.facts));
        const second = await bench.compile(stageText(reduceStage(c.shape, slices), c.facts));
        const on = (kernel) => pools.map((p) => bench.launch(kernel, { ...c.buffers, ...p }));
        alone ??= await bench.time(on(first), timing);
        const a = on(first);
        const b = on(second);
        const both = await bench.time(
          pools.flatMap((_, i) => [a[i], b[i]]),
          timing,
        );
        row.us = both.us * 2;
        row.firstUs = alone.us;
        row.spread = both.spread;
        row.gbs = bytes / row.us / 1000;
        row.share = row.gbs / report.ceilings.readGBs;
        row.firstShare = bytes / row.firstUs / 1000 / report.ceilings.readGBs;
        if (best === null || row.us < best.us) best = row;
      } catch (error) {
        row.failed = String(error.message).slice(0, 300);
      }
      report.times.push(row);
      console.log(
        row.failed === undefined
          ? `${name.padEnd(34)} ${row.config.padEnd(34)} ${row.us.toFixed(1).padStart(8)} µs ${row.gbs.toFixed(0).padStart(6)} GB/s ${(row.share * 100).toFixed(1).padStart(5)} %  without reduce(${slices}) ${row.firstUs.toFixed(1)} µs ${(row.firstShare * 100).toFixed(1)} %`
          : `${name} ${row.config}: ${row.failed}`,
      );
    }
  }
  if (pools.length > 0) console.log(`  ${clocks()}`);
  for (const p of pools) for (const b of Object.values(p)) b.destroy();
  for (const c of made.values()) for (const b of Object.values(c.buffers)) b.destroy();
  save();
  return best;
}

export const rowsAt = (rows, context) => count(rows).map((i) => context - 1 - (i % 7));

/** Several kernels on one case in turns: medians of the rounds. */
export async function timeTurns(name, shape, positions, configs, rounds) {
  const cases = [];
  const { place } = makeCase(shape, positions);
  const pools = [];
  const size = kvLayout(shape.key, place).bytes + kvLayout(shape.value, place).bytes;
  for (let i = 0; i < Math.min(16, Math.max(1, Math.ceil(ROUND / size))); i++)
    pools.push({
      keys: new Side('key', shape.key, place, 5 + i).buffer,
      values: new Side('value', shape.value, place, 55 + i).buffer,
    });
  for (const config of configs) {
    const c = makeCase(shape, positions, config.split);
    if (!fits(c.shape, config)) continue;
    const buffers = buffersOf(c, queriesOf(c, 1).given);
    try {
      const first = await bench.compile(stageText(stageOf(c.shape, config), c.facts));
      const second = await bench.compile(stageText(reduceStage(c.shape, 4), c.facts));
      const launches = (kernel) => pools.map((p) => bench.launch(kernel, { ...buffers, ...p }));
      const [a, b] = [launches(first), launches(second)];
      cases.push({
        config,
        alone: a,
        both: pools.flatMap((_, i) => [a[i], b[i]]),
        times: [],
        firsts: [],
        buffers,
      });
    } catch (error) {
      console.log(`${name} ${label(config)}: ${String(error.message).slice(0, 300)}`);
    }
  }
  const quiet = { ...timing, samples: 3, warmMs: quick ? 0 : 40 };
  for (let r = 0; r < rounds; r++)
    for (const c of cases) {
      c.firsts.push((await bench.time(c.alone, quiet)).us);
      c.times.push((await bench.time(c.both, quiet)).us * 2);
    }
  const median = (list) => list.sort((x, y) => x - y)[list.length >> 1];
  const one = { headDim: shape.headDim, kvHeads: shape.kvHeads, blockTokens: 1, blocks: 1 };
  const tokenBytes = [shape.key, shape.value].reduce((sum, f) => {
    const l = kvLayout(f, one);
    return sum + 4 * (l.words * shape.kvHeads + l.groups * l.metaHeads);
  }, 0);
  const bytes = positions.reduce((n, p) => n + p + 1, 0) * tokenBytes;
  for (const c of cases) {
    const row = { name, config: label(c.config), us: median(c.times), firstUs: median(c.firsts) };
    row.gbs = bytes / row.us / 1000;
    row.share = row.gbs / report.ceilings.readGBs;
    report.times.push(row);
    console.log(
      `${name.padEnd(24)} ${row.config.padEnd(30)} ${row.us.toFixed(1).padStart(7)} µs ${row.gbs.toFixed(0).padStart(6)} GB/s ${(row.share * 100).toFixed(1).padStart(5)} %  alone ${row.firstUs.toFixed(1).padStart(7)} µs  (${c.times.map((t) => t.toFixed(1)).join(' ')})`,
    );
    for (const b of Object.values(c.buffers)) b.destroy();
  }
  for (const p of pools) for (const b of Object.values(p)) b.destroy();
  save();
}
