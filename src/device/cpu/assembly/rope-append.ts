import { SIDE_BYTES, STORE_FLOAT_START } from '../kv-layout';
import { normRow } from './elementwise';
import { storeVector } from './kv-append';
import { share } from './math';

/**
 * Norms and rotates q and k, appends k and v to the cache. Pieces of work are (token, head).
 * [qkv, out, rowsAt, seqs, seqStride, heads, kvHeads, headDim, qNorm, kNorm, eps, dims, style, fine, coarse,
 *  layer, normAfter, beta, every, tables, maxBlocks, blockShift, scratch, scratchStride, centre, turns, axes, rotary, queriesOnly, tailLayer,
 *  tailTables, keysOnly]
 * `seqs`: arrays slot, start, length, position, `seqStride` bytes apart. `dims` 0: no rotation. Norms 0: none.
 * `normAfter`: the norms follow the rotation. `beta`, `every`: of the growth of q by position; `every` 0: none.
 * `axes`: 0, or the axis of each pair, by which it turns with one of the three positions a token at `rotary`.
 * `queriesOnly`: qkv has q alone; `keysOnly`: q and k, for V is a view of K. `layer`: see ../kv-layout.ts. `scratch`: `4 · headDim + 2 · dims` floats a thread.
 * `tailLayer`: 0, or where the same vectors are stored as floats besides.
 * `centre`: 0, or scales of keys, of queries, and the mean (KeyCentre of ../../graph.ts); `turns`: it is rotated with the split.
 */
export function ropeAppend(p: usize, thread: u32, threads: u32): void {
  const qkv = load<u32>(p);
  const out = load<u32>(p, 4);
  const tokens = load<u32>(load<u32>(p, 8));
  const seqs = load<u32>(p, 12);
  const seqStride = load<u32>(p, 16);
  const heads = load<u32>(p, 20);
  const kvHeads = load<u32>(p, 24);
  const dim = load<u32>(p, 28);
  const qNorm = load<u32>(p, 32);
  const kNorm = load<u32>(p, 36);
  const eps = load<f32>(p, 40);
  const dims = load<u32>(p, 44);
  const style = load<u32>(p, 48);
  const fine = load<u32>(p, 52);
  const coarse = load<u32>(p, 56);
  const layer = load<u32>(p, 60);
  const normAfter = load<u32>(p, 64) != 0;
  const beta = load<f32>(p, 68);
  const every = load<u32>(p, 72);
  const firstFloatStart = load<u32>(layer, STORE_FLOAT_START);
  const tables = load<u32>(p, 76);
  const maxBlocks = load<u32>(p, 80);
  const blockShift = load<u32>(p, 84);
  const head: usize = load<u32>(p, 88) + load<u32>(p, 92) * thread;
  const spare: usize = head + dim * 4;
  const angles: usize = head + dim * 16;
  const splitAngles: usize = angles + dims * 4;
  const centre: usize = load<u32>(p, 96);
  const turns = load<u32>(p, 100) != 0;
  const axes: usize = load<u32>(p, 104);
  const rotary: usize = load<u32>(p, 108);
  const group = heads / kvHeads;
  const tailLayer: usize = load<u32>(p, 116);
  const tailTables: usize = load<u32>(p, 120);

  const width = load<u32>(p, 112) != 0 ? heads : load<u32>(p, 124) != 0 ? heads + kvHeads : heads + 2 * kvHeads;
  const from = share(tokens * width, thread, threads);
  const end = share(tokens * width, thread + 1, threads);
  const blockTokens: u32 = 1 << blockShift;
  let sequence: usize = seqs;
  for (let item = from; item < end; ) {
    const token = item / width;
    while (token >= load<u32>(sequence + seqStride) + load<u32>(sequence + 2 * seqStride)) sequence += 4;
    const position = load<u32>(sequence + 3 * seqStride) + token - load<u32>(sequence + seqStride);
    const slot = load<u32>(sequence);
    const block = load<u32>(tables + (slot * maxBlocks + (position >> blockShift)) * 4);
    const inBlock = position & (blockTokens - 1);
    const keySide = layer + (block >= firstFloatStart ? 2 * SIDE_BYTES : 0);
    const tailBlock = tailLayer == 0 ? 0 : load<u32>(tailTables + (slot * maxBlocks + (position >> blockShift)) * 4);
    const last = min<u32>(end - token * width, width);
    let h = item - token * width;
    if (dims != 0 && h < heads + kvHeads) {
      if (axes == 0) makeAngles(angles, dims >> 1, position, fine, coarse);
      else makeAnglesByAxes(angles, dims >> 1, rotary + token * 12, axes, fine, coarse);
    }
    if (turns && h < heads + kvHeads) makeAngles(splitAngles, dims >> 1, position & ~255, fine, coarse);
    const growth = every == 0 ? <f32>1 : <f32>(1 + <f64>beta * Math.log(1 + <f64>(position / every)));
    item += last - h;
    for (; h < last; h++) {
      const x: usize = qkv + (token * width + h) * dim * 4;
      if (h < heads) {
        const to: usize = out + (token * heads + h) * dim * 4;
        turnHead(x, to, qNorm, dim, eps, normAfter, angles, dims, style);
        if (growth != 1) scaleHead(to, dim, growth);
        if (centre != 0) times(to, centre + (kvHeads + h / group) * dim * 4, dim);
      } else if (h < heads + kvHeads) {
        turnHead(x, head, kNorm, dim, eps, normAfter, angles, dims, style);
        if (centre != 0) centreKey(head, centre, h - heads, kvHeads, dim, turns ? splitAngles : 0, dims, style, spare);
        storeVector(keySide, true, head, block, h - heads, kvHeads, inBlock, dim, blockTokens, position, spare);
        if (tailLayer != 0) storeVector(tailLayer, true, head, tailBlock, h - heads, kvHeads, inBlock, dim, blockTokens, position, spare);
      } else {
        const own = h - heads - kvHeads;
        storeVector(keySide + SIDE_BYTES, false, x, block, own, kvHeads, inBlock, dim, blockTokens, position, spare);
        if (tailLayer != 0) storeVector(tailLayer + SIDE_BYTES, false, x, tailBlock, own, kvHeads, inBlock, dim, blockTokens, position, spare);
      }
    }
  }
}

/** Scales a key and takes its centre off. `angles`: of the split, or 0. */
function centreKey(
  x: usize, centre: usize, head: u32, kvHeads: u32, dim: u32, angles: usize, dims: u32, style: u32, spare: usize,
): void {
  times(x, centre + head * dim * 4, dim);
  memory.copy(spare, centre + (2 * kvHeads + head) * dim * 4, dim * 4);
  if (angles != 0) rotate(spare, angles, dims >> 1, style);
  for (let i: u32 = 0; i < dim; i += 4) {
    v128.store(x + i * 4, f32x4.sub(v128.load(x + i * 4), v128.load(spare + i * 4)));
  }
}

function times(x: usize, by: usize, dim: u32): void {
  for (let i: u32 = 0; i < dim; i += 4) {
    v128.store(x + i * 4, f32x4.mul(v128.load(x + i * 4), v128.load(by + i * 4)));
  }
}

/** Norm and rotation of a head, in their order. */
function turnHead(
  x: usize,
  to: usize,
  norm: usize,
  dim: u32,
  eps: f32,
  normAfter: bool,
  angles: usize,
  dims: u32,
  style: u32,
): void {
  if (norm != 0 && !normAfter) normRow(x, norm, to, dim, eps);
  else memory.copy(to, x, dim * 4);
  if (dims != 0) rotate(to, angles, dims >> 1, style);
  if (norm != 0 && normAfter) normRow(to, norm, to, dim, eps);
}

function scaleHead(x: usize, dim: u32, factor: f32): void {
  for (let i: u32 = 0; i < dim; i++) store<f32>(x + i * 4, load<f32>(x + i * 4) * factor);
}

/** cos[half], sin[half] of a position, from the two tables by the addition theorem (rope.ts). */
export function makeAngles(to: usize, half: u32, position: u32, fine: usize, coarse: usize): void {
  const f: usize = fine + (position & 255) * half * 8;
  const c: usize = coarse + (position >> 8) * half * 8;
  for (let i: u32 = 0; i < half; i++) {
    const cosF = load<f32>(f + i * 8);
    const sinF = load<f32>(f + i * 8, 4);
    const cosC = load<f32>(c + i * 8);
    const sinC = load<f32>(c + i * 8, 4);
    store<f32>(to + i * 4, cosC * cosF - sinC * sinF);
    store<f32>(to + (half + i) * 4, sinC * cosF + cosC * sinF);
  }
}

/** The same where each pair has its axis, `axes[i]`, of three positions. */
function makeAnglesByAxes(to: usize, half: u32, positions: usize, axes: usize, fine: usize, coarse: usize): void {
  for (let i: u32 = 0; i < half; i++) {
    const position = load<u32>(positions + load<u32>(axes + i * 4) * 4);
    const f: usize = fine + ((position & 255) * half + i) * 8;
    const c: usize = coarse + ((position >> 8) * half + i) * 8;
    const cosF = load<f32>(f);
    const sinF = load<f32>(f, 4);
    const cosC = load<f32>(c);
    const sinC = load<f32>(c, 4);
    store<f32>(to + i * 4, cosC * cosF - sinC * sinF);
    store<f32>(to + (half + i) * 4, sinC * cosF + cosC * sinF);
  }
}

export function rotate(x: usize, angles: usize, half: u32, style: u32): void {
  const sines: usize = angles + half * 4;
  if (style == 0) {
    const upper: usize = x + half * 4;
    let i: u32 = 0;
    for (; i + 4 <= half; i += 4) {
      const a = v128.load(x + i * 4);
      const b = v128.load(upper + i * 4);
      const c = v128.load(angles + i * 4);
      const s = v128.load(sines + i * 4);
      v128.store(x + i * 4, f32x4.sub(f32x4.mul(a, c), f32x4.mul(b, s)));
      v128.store(upper + i * 4, f32x4.add(f32x4.mul(a, s), f32x4.mul(b, c)));
    }
    for (; i < half; i++) turn(x + i * 4, upper + i * 4, load<f32>(angles + i * 4), load<f32>(sines + i * 4));
  } else {
    for (let i: u32 = 0; i < half; i++) {
      turn(x + i * 8, x + i * 8 + 4, load<f32>(angles + i * 4), load<f32>(sines + i * 4));
    }
  }
}

// @ts-ignore: decorator
@inline function turn(x: usize, y: usize, cos: f32, sin: f32): void {
  const a = load<f32>(x);
  const b = load<f32>(y);
  store<f32>(x, a * cos - b * sin);
  store<f32>(y, a * sin + b * cos);
}
