// Decode attention over quantised KV: every fast kernel against float64, then its time.
//
//   node bench/webgpu-kv.mjs [--only check,time,prefill] [--seconds 300] [--json FILE] [--quick]
//     [--bytes] [--pairs FROM,TO]                       check the kernel on matrices of bytes alone, and a part of its cases
//     [--model HEADS,KV_HEADS,DIM]                      what is timed; Llama-8B's if omitted
//     [--one] [--slices]                                time one row as well, and every reduce of every kernel
//   node bench/webgpu-kv.mjs --only quads               attention by quads: checked, then timed against the others in turns
//   node bench/webgpu-kv.mjs --only bytes               the same on matrices of bytes
//     [--turns FROM,TO] [--rounds N]                    a part of what is timed; rounds of turns
//
// Needs a build (npm run build). A cache is filled with hashed words, which the host decodes again on its own.

import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { args, built, countdown, option } from './options.mjs';
import { stageText } from './webgpu-attend.mjs';
import { arenaWord, Bench, f16, fillHashed, normals, openDevice, relativeError } from './webgpu-harness.mjs';

const load = (path) => built(`device/${path}`);
const { decodeStage } = await load('webgpu/kernels/attend-decode.js');
const { decodeFits } = await load('webgpu/kernels/attend-decode-plan.js');
const { bytesStage } = await load('webgpu/kernels/attend-bytes.js');
const { bytesFits, itemScoreBytes } = await load('webgpu/kernels/attend-bytes-plan.js');
const { quadsStage } = await load('webgpu/kernels/attend-quads.js');
const { quadsFits } = await load('webgpu/kernels/attend-quads-plan.js');
const { reduceStage, turnStage } = await load('webgpu/kernels/attend-reduce.js');
const { prefillStage } = await load('webgpu/kernels/attend-prefill.js');
const { prefillFits } = await load('webgpu/kernels/attend-prefill-plan.js');
const { kvLayout, kvTables } = await load('webgpu/kernels/kv-layout.js');
const { codesInRuns, liesTurned } = await load('webgpu/kernels/kv-formats/list.js');
const { allRows } = await load('webgpu/kernels/kv-rows.js');
const { codeNumbers } = await load('webgpu/kernels/plane-codes.js');
const { kvFormatName } = await load('kv.js');
const { turboCodebook } = await load('turboquant/codebooks.js');
const { turboRotation, unrotate } = await load('turboquant/rotation.js');

const only = option('--only', 'check,time').split(',');
const seconds = Number(option('--seconds', '300'));
const jsonPath = option('--json', null);
const quick = args.includes('--quick');
const left = countdown(seconds);

const opened = await openDevice();
const bench = new Bench(opened);
const { features } = bench;
const lanes = features.subgroupSize;
const report = { device: opened.info, features, ceilings: {}, checks: [], times: [] };
const save = () => jsonPath && writeFileSync(jsonPath, JSON.stringify(report, null, 1));
console.log(
  `${opened.info.device} ${opened.info.description}, f16 ${features.f16}, subgroups of ${lanes}, workgroup memory ${features.workgroupBytes}`,
);
if (lanes === 0) throw new Error('subgroups of one size are needed');

const affine = (bits, groupSize = 64) => ({ kind: 'affine', bits, groupSize });
const turbo = (bits) => ({ kind: 'turboquant', bits });
const F16 = { kind: 'float', dtype: 'f16' };
const F32 = { kind: 'float', dtype: 'f32' };
const BLOCK = 32;
const count = (n) => Array.from({ length: n }, (_, i) => i);

// --- storage

/** What a word of a side is, from its hash: codes as they come, floats and scales and norms in a sane range. */
function masks(format) {
  if (format.kind === 'float')
    return {
      and: format.dtype === 'f16' ? 0x83ff83ff : 0x807fffff,
      or: format.dtype === 'f16' ? 0x38003800 : 0x3f000000,
    };
  if (format.kind === 'affine')
    // scale in [1, 2) · 2^-bits, bias in (-1, -1/2]
    return { and: 0x03ff03ff, or: (0xb8000000 | ((15 - format.bits) << 10)) >>> 0 };
  return { and: 0x03ff03ff, or: 0x48004800 };
}

class Side {
  constructor(which, format, place, seed) {
    Object.assign(this, { which, format, place, seed });
    this.layout = kvLayout(format, place);
    const { and, or } = masks(format);
    Object.assign(this, { and, or });
    this.buffer = bench.buffer(this.layout.bytes);
    const words = Math.ceil(this.layout.bytes / 4);
    const from = format.kind === 'float' ? 0 : this.layout.metaAt;
    fillHashed(bench, this.buffer, words, { seed, and, or, from });
    const tables = kvTables(format, place.headDim, which);
    if (tables.length > 0) bench.device.queue.writeBuffer(this.buffer, this.layout.tablesAt * 4, tables);
  }

  word(i) {
    const h = arenaWord(i, this.seed);
    return this.format.kind === 'float' || i >= this.layout.metaAt ? ((h & this.and) | this.or) >>> 0 : h;
  }

  /** Codes of the vector that is `row` among all, from the layout as it is documented. */
  #codes(row) {
    const { format, place, layout } = this;
    const { headDim } = place;
    const first = row * layout.words;
    if (liesTurned({ name: this.which === 'value' ? 'values' : 'keys', format, headDim })) {
      const numbers = codeNumbers(headDim, format.bits, this.which);
      // Of 16 vectors: four rows of words, of which each has four of them, a byte each, and two dims in that.
      const own = row % 16;
      const at = (row - own) * layout.words + (own % 4) * (headDim / 2);
      return count(headDim).map((d) =>
        numbers.indexOf((this.word(at + (d >> 1)) >>> ((own >> 2) * 8 + (d & 1) * 4)) & 15),
      );
    }
    if (codesInRuns(format)) {
      const { bits } = format;
      const numbers = codeNumbers(headDim, bits, this.which);
      return count(headDim).map((d) => {
        const length = Math.min(32, headDim - (d & ~31));
        let number = 0;
        for (let b = 0; b < bits; b++) {
          const field = (d & 3) * 8 + ((d >> 2) & 1) * 4;
          const word = (d & 31) >> 3;
          const run = (d >> 5) * 96;
          const inField = word < 3 ? run + word * 32 + field + b : run + b * 32 + field + 3;
          const at =
            bits === 3 ? inField : (d & ~31) * bits + b * length + (d & 3) * (length / 4) + ((d & 31) >> 2);
          number |= ((this.word(first + (at >> 5)) >>> (at & 31)) & 1) << b;
        }
        return numbers.indexOf(number);
      });
    }
    const { bits } = format;
    if (bits === 3) {
      return count(headDim).map((d) => {
        const base = first + Math.floor(d / 32) * 3;
        const pair = (d % 32) >> 1;
        const six =
          pair < 15
            ? (this.word(base + Math.floor(pair / 5)) >>> ((pair % 5) * 6)) & 63
            : count(3).reduce((s, j) => s | ((this.word(base + j) >>> 30) << (2 * j)), 0);
        return (six >> (3 * (d & 1))) & 7;
      });
    }
    return count(headDim).map((d) => {
      let code = 0;
      for (let b = 0; b < bits; b++) {
        const at = d * bits + b;
        code |= ((this.word(first + (at >> 5)) >>> (at & 31)) & 1) << b;
      }
      return code;
    });
  }

  /** A stored vector as attention reads it. */
  vector(block, kv, t) {
    const { format, layout, place } = this;
    const { headDim, kvHeads, blockTokens } = place;
    const row = (block * kvHeads + kv) * blockTokens + t;
    const first = row * layout.words;
    if (format.kind === 'float') {
      const bits = new Uint32Array(1);
      return Float64Array.from(count(headDim), (d) => {
        if (format.dtype === 'f16') return f16(this.word(first + (d >> 1)) >>> (d & 1 ? 16 : 0));
        bits[0] = this.word(first + d);
        return new Float32Array(bits.buffer)[0];
      });
    }
    const codes = this.#codes(row);
    if (format.kind === 'affine') {
      return Float64Array.from(codes, (c, d) => {
        const w = this.word(layout.metaAt + row * layout.groups + Math.floor(d / format.groupSize));
        return c * f16(w) + f16(w >>> 16);
      });
    }
    const w = this.word(layout.metaAt + (block * layout.metaHeads + (kv >> 1)) * blockTokens + t);
    const norm = f16(kv & 1 ? w >>> 16 : w);
    const { centroids } = turboCodebook(headDim, format.bits, this.which);
    return unrotate(
      turboRotation(headDim, this.which),
      Float64Array.from(codes, (c) => centroids[c] * norm),
    );
  }
}

// --- cases

const SPLIT = 256;
/** Rows of one token each at `positions`, an item for every `split` positions; blocks dealt in hashed order. */
function makeCase(shape, positions, split = SPLIT) {
  const each = positions.map((p) => Math.floor(p / BLOCK) + 1);
  const blocks = each.reduce((a, b) => a + b, 0);
  const maxBlocksPerSlot = Math.max(...each);
  const order = count(blocks).sort((a, b) => arenaWord(a, 77) - arenaWord(b, 77));
  const tables = new Uint32Array(positions.length * maxBlocksPerSlot);
  let dealt = 0;
  each.forEach((n, s) => {
    for (let i = 0; i < n; i++) tables[s * maxBlocksPerSlot + i] = order[dealt++];
  });
  const splits = positions.map((p) => Math.floor(p / split) + 1);
  const items = splits.reduce((a, b) => a + b, 0);
  const rows = positions.length;
  const itemsAt = 3 + rows;
  const rowsAt = itemsAt + items;
  const step = new Uint32Array((rowsAt + rows) * 4);
  step.set([rows, 0, rows, items, rows, 0, itemsAt, split / SPLIT, itemsAt, rowsAt, rowsAt + rows, 0]);
  let item = 0;
  positions.forEach((p, r) => {
    step.set([0, r, p, 0], (3 + r) * 4);
    step.set([r, item, splits[r], r], (rowsAt + r) * 4);
    for (let i = 0; i < splits[r]; i++) step.set([r, i, r, p], (itemsAt + item++) * 4);
  });
  return {
    shape: { ...shape, blockTokens: BLOCK, maxBlocksPerSlot, maxItems: items, rows: allRows(blocks) },
    place: { headDim: shape.headDim, kvHeads: shape.kvHeads, blockTokens: BLOCK, blocks },
    facts: { tokens: rows, outputs: 0, sequences: rows, items, itemRows: rows, tiles: 0 },
    positions,
    tables,
    step,
    items,
    rows,
  };
}

/** A prompt chunk of `length` tokens from `position` on, as tiles of 16. */
function makePrompt(shape, length, position) {
  const blocks = Math.ceil((position + length) / BLOCK);
  const tables = Uint32Array.from(count(blocks).sort((a, b) => arenaWord(a, 77) - arenaWord(b, 77)));
  const tiles = Math.ceil(length / 16);
  const tilesAt = 3 + length;
  const step = new Uint32Array((tilesAt + tiles) * 4);
  step.set([length, 0, 1, 0, 0, tiles, tilesAt, 1, tilesAt, tilesAt, tilesAt, 0]);
  for (let i = 0; i < length; i++) step.set([0, 0, position + i, 0], (3 + i) * 4);
  for (let i = 0; i < tiles; i++)
    step.set([i * 16, Math.min(16, length - i * 16), position + i * 16, 0], (tilesAt + i) * 4);
  return {
    shape: { ...shape, blockTokens: BLOCK, maxBlocksPerSlot: blocks, maxItems: 0, rows: allRows(blocks) },
    place: { headDim: shape.headDim, kvHeads: shape.kvHeads, blockTokens: BLOCK, blocks },
    facts: { tokens: length, outputs: 0, sequences: 1, items: 0, itemRows: 0, tiles, tileParts: 1 },
    positions: count(length).map((i) => position + i),
    tables,
    step,
    items: 1,
    rows: length,
  };
}

const shapeOf = (heads, kvHeads, headDim, key, value, more = {}) => ({
  heads,
  kvHeads,
  headDim,
  key,
  value,
  scale: 1 / Math.sqrt(headDim),
  window: null,
  softcap: null,
  ...more,
});

function buffersOf(c, q) {
  const { heads, headDim } = c.shape;
  return {
    step: bench.upload(c.step),
    q: bench.upload(q),
    tables: bench.upload(c.tables),
    out: bench.buffer(c.rows * heads * headDim * 4),
    scratchSums: bench.buffer(c.items * heads * headDim * 4),
    scratchTops: bench.buffer(c.items * heads * 8),
    scratchScores: bench.buffer(c.items * itemScoreBytes(c.shape)),
  };
}

/** Queries as the kernel gets them: turned like the keys where those are. */
function queriesOf(c, sharp) {
  const { heads, headDim, key } = c.shape;
  const plain = normals(c.rows * heads * headDim, 99).map((v) => v * sharp);
  if (key.kind !== 'turboquant') return { plain, given: plain };
  const rotation = turboRotation(headDim, 'key');
  // R is orthogonal: R x of each basis vector are its columns, and the inverse of Rᵀ is R.
  const columns = count(headDim).map((d) =>
    unrotate(
      rotation,
      Float64Array.from({ length: headDim }, (_, i) => (i === d ? 1 : 0)),
    ),
  );
  const given = new Float32Array(plain.length);
  for (let at = 0; at < plain.length; at += headDim)
    for (let d = 0; d < headDim; d++) {
      let sum = 0;
      for (let i = 0; i < headDim; i++) sum += columns[d][i] * plain[at + i];
      given[at + d] = sum;
    }
  return { plain, given };
}

function reference(c, keys, values, q, row, head, sequence = row) {
  const { shape } = c;
  const { heads, kvHeads, headDim, maxBlocksPerSlot, window, softcap } = shape;
  const kv = Math.floor(head / (heads / kvHeads));
  const position = c.positions[row];
  const low = window === null ? 0 : Math.max(0, position - window + 1);
  const scores = [];
  const blockOf = (t) => c.tables[sequence * maxBlocksPerSlot + Math.floor(t / BLOCK)];
  for (let t = low; t <= position; t++) {
    const k = keys.vector(blockOf(t), kv, t % BLOCK);
    let s = 0;
    for (let d = 0; d < headDim; d++) s += q[(row * heads + head) * headDim + d] * k[d];
    s *= shape.scale;
    scores.push(softcap === null ? s : softcap * Math.tanh(s / softcap));
  }
  const top = Math.max(...scores);
  const out = new Float64Array(headDim);
  let total = 0;
  scores.forEach((s, i) => {
    const w = Math.exp(s - top);
    total += w;
    const v = values.vector(blockOf(low + i), kv, (low + i) % BLOCK);
    for (let d = 0; d < headDim; d++) out[d] += w * v[d];
  });
  return out.map((x) => x / total);
}

const found = features.matrices.find((x) => x.component === 'i8' && x.M === 16 && x.N === 8 && x.K === 32);
const matrix = found && { m: 16, n: 8, k: 32, component: 'i8', result: 'i32' };
const configOf = (config) => ({
  subgroupSize: lanes,
  storageBuffers: bench.device.limits.maxStorageBuffersPerShaderStage,
  f16: features.f16,
  matrix,
  ...config,
});
/** The kernel of a config: on matrices of bytes if it says so. */
const isBytes = (config) => config.bytes === true;
const BYTES = { bytes: true };
/** A size of the common kernel: two splits an item. */
const WIDE = { threads: 128, unroll: 4, valueUnroll: 8, split: 512 };
/** By quads if it says so. */
const isQuads = (config) => config.quads === true;
const fits = (shape, config) =>
  isQuads(config)
    ? quadsFits(shape, lanes, features.workgroupBytes)
    : isBytes(config)
      ? found !== undefined && bytesFits(shape, configOf(config), features.workgroupBytes)
      : decodeFits(shape, configOf(config), features.workgroupBytes);
const stageOf = (shape, config) =>
  isQuads(config)
    ? quadsStage(shape, lanes)
    : isBytes(config)
      ? bytesStage(shape)
      : decodeStage(shape, configOf(config));
const label = (c) =>
  Object.entries(c)
    .map(
      ([k, v]) =>
        `${{ threads: 't', unroll: 'u', valueUnroll: 'v', keyDims: 'kd', valueDims: 'vd' }[k] ?? k}${v === true ? '' : v}`,
    )
    .join(' ');

// --- check

async function check(shape, positions, config, sharp, slices = 4) {
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

if (only.includes('check')) {
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

// --- ceilings

/** Read bandwidth, after enough work to bring the clocks up; and what the driver says of them. */
async function measureRead(when) {
  const bytes = quick ? 2 ** 26 : 2 ** 30;
  const data = bench.buffer(bytes);
  const out = bench.buffer(16);
  const words = bytes / 16;
  const read = await bench.compile({
    label: 'read',
    bindings: ['data', 'out'],
    writes: ['out'],
    workgroups: [4096, 1, 1],
    wgsl: `@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var sum = vec4<u32>();
  for (var i = id.x; i < ${words}u; i += ${4096 * 256 * 4}u) {
    sum ^= data[i]; sum += data[min(i + ${4096 * 256}u, ${words - 1}u)]; sum ^= data[min(i + ${4096 * 512}u, ${words - 1}u)]; sum += data[min(i + ${4096 * 768}u, ${words - 1}u)];
  }
  if (all(sum == vec4<u32>(0x12345u))) { out[0] = sum; }
}`,
  });
  const { us } = await bench.time(
    [bench.launch(read, { data, out })],
    quick ? { samples: 1, targetUs: 300 } : { samples: 9, targetUs: 5000, warmMs: 2500 },
  );
  data.destroy();
  const readGBs = bytes / us / 1000;
  report.ceilings[when] = readGBs;
  report.ceilings.readGBs = Math.max(readGBs, report.ceilings.readGBs ?? 0);
  console.log(`read, ${when}: ${readGBs.toFixed(0)} GB/s  ${clocks()}`);
}

function clocks() {
  const what = 'clocks.sm,clocks.mem,clocks_throttle_reasons.active,power.draw,temperature.gpu';
  try {
    return execFileSync('nvidia-smi', [`--query-gpu=${what}`, '--format=csv,noheader'], {
      encoding: 'utf8',
    }).trim();
  } catch {
    return '';
  }
}

// --- time

const slicesAll = args.includes('--slices');
const timing = quick ? { targetUs: 300, samples: 1 } : { targetUs: 5000, samples: 5, warmMs: 150 };
/** Bytes that launches go round through, so that none finds the cache of the one before. */
const ROUND = quick ? 2 ** 22 : 400 * 2 ** 20;

async function timeCase(name, shape, positions, configs, reduces = [4, 8, 16]) {
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

const rowsAt = (rows, context) => count(rows).map((i) => context - 1 - (i % 7));

/** Several kernels on one case in turns: medians of the rounds. */
async function timeTurns(name, shape, positions, configs, rounds) {
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

/** Attention by quads beside what there is else for the formats. */
const QUADS = { quads: true };
if (only.includes('quads')) {
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

/** Attention on matrices of bytes beside what there is else for the formats. */
if (only.includes('bytes')) {
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

const formats = {
  f16: [F16, F16],
  affine8: [affine(8), affine(8)],
  affine4: [affine(4), affine(4)],
  turbo4: [turbo(4), turbo(4)],
  'turbo3.5': [turbo(3), turbo(4)],
};
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
if (only.includes('time')) {
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
/** Prompt tiles on subgroup matrices: checked at 200 tokens after 100, timed at 4,096. */
if (only.includes('prefill')) {
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
report.seconds = seconds - left();
save();
console.log(`${report.seconds.toFixed(0)} s`);
process.exit(0);
