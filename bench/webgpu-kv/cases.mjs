// What attention is given: rows and prompts, buffers, queries, and the answer in float64.

import { built } from '../options.mjs';
import { arenaWord, normals } from '../webgpu-harness.mjs';
import { BLOCK, bench, count } from './context.mjs';

const { allRows } = await built('device/webgpu/kernels/kv-rows.js');
const { itemScoreBytes } = await built('device/webgpu/kernels/attend-bytes-plan.js');
const { turboRotation, unrotate } = await built('device/turboquant/rotation.js');

export const SPLIT = 256;
/** Rows of one token each at `positions`, an item for every `split` positions; blocks dealt in hashed order. */
export function makeCase(shape, positions, split = SPLIT) {
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
export function makePrompt(shape, length, position) {
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

export const shapeOf = (heads, kvHeads, headDim, key, value, more = {}) => ({
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

export function buffersOf(c, q) {
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

/** Queries as the kernel gets them: rotated like the keys where those are. */
export function queriesOf(c, sharp) {
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

export function reference(c, keys, values, q, row, head, sequence = row) {
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
