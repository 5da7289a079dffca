/**
 * Norm and rotate q and k, append k and v to the cache, give q. One workgroup a (token, head): a head fits into 64
 * threads of four elements each.
 */

import type { AttentionShape } from '../../graph.js';
import type { KvFormat } from '../../kv.js';
import { ROPE_FINE, type RopeStyle } from '../../rope.js';
import { type Binding, declareBindings, type Kernel, Params } from '../kernel.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { cacheType, KV_WGSL, packFour } from './kv-format.js';

export interface RopeAppendShape extends AttentionShape {
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly blockTokens: number;
  readonly maxBlocksPerSlot: number;
  /** eps of the head norms, null without. */
  readonly normEps: number | null;
  readonly rope: { readonly dims: number; readonly style: RopeStyle } | null;
}

/**
 * Roles: step, qkv, tables, headNorms (q then k, with norms), rope (fine then coarse, with rope), out, keys, values:
 * with the uniform no more than any WebGPU device binds.
 */
export function ropeAppendKernel(shape: RopeAppendShape): Kernel {
  const { heads, kvHeads, headDim, rope, normEps } = shape;
  const p = new Params();
  const text = {
    heads: p.u32(heads),
    kvHeads: p.u32(kvHeads),
    vectors: p.u32(headDim / 4),
    blockTokens: p.u32(shape.blockTokens),
    maxBlocks: p.u32(shape.maxBlocksPerSlot),
    pairs: p.u32(rope === null ? 0 : rope.dims / 2),
    headDim: p.f32(headDim),
    eps: p.f32(normEps ?? 0),
  };
  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    { name: 'qkv', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'tables', access: 'read', type: 'array<u32>' },
  ];
  if (normEps !== null) bindings.push({ name: 'headNorms', access: 'read', type: 'array<vec4<f32>>' });
  if (rope !== null) bindings.push({ name: 'rope', access: 'read', type: 'array<vec2<f32>>' });
  bindings.push({ name: 'out', access: 'read_write', type: 'array<vec4<f32>>' });
  bindings.push({ name: 'keys', access: 'read_write', type: cacheType(shape.key) });
  bindings.push({ name: 'values', access: 'read_write', type: cacheType(shape.value) });
  const norm =
    normEps === null
      ? ''
      : `
  part[lid] = dot(v, v);
  workgroupBarrier();
  for (var half = 32u; half > 0u; half >>= 1u) {
    if (lid < half) { part[lid] += part[lid + half]; }
    workgroupBarrier();
  }
  if (!is_v && active_) {
    let scale = 1.0 / sqrt(part[0] / ${text.headDim} + ${text.eps});
    v = v * scale * headNorms[select(vectors, 0u, head < heads) + lid];
  }`;
  const rotate =
    rope === null
      ? ''
      : `
  for (var e = 0u; e < 4u; e++) { whole[lid * 4u + e] = v[e]; }
  workgroupBarrier();
  if (!is_v && active_) {
    for (var e = 0u; e < 4u; e++) {
      let i = lid * 4u + e;
      if (i < 2u * ${text.pairs}) { v[e] = rotated(i, token.z); }
    }
  }`;
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
${KV_WGSL}
var<workgroup> part: array<f32, 64>;
var<workgroup> whole: array<f32, 256>;
${rope === null ? '' : rotatedWgsl(rope.style, text.pairs)}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let heads = ${text.heads};
  let kv_heads = ${text.kvHeads};
  let vectors = ${text.vectors};
  let head = wid.x;
  let row = wid.y + wid.z * 65535u;
  if (row >= step[0].x) { return; }
  let token = step_token(row);
  let is_v = head >= heads + kv_heads;
  let active_ = lid < vectors;
  var v = vec4<f32>(0.0);
  if (active_) { v = qkv[(row * (heads + 2u * kv_heads) + head) * vectors + lid]; }
  ${norm}
  ${rotate}
  if (!active_) { return; }
  if (head < heads) {
    out[(row * heads + head) * vectors + lid] = v;
    return;
  }
  let kv = (head - heads) % kv_heads;
  let block = tables[token.y * ${text.maxBlocks} + token.z / ${text.blockTokens}];
  let at = ((block * kv_heads + kv) * ${text.blockTokens} + token.z % ${text.blockTokens}) * vectors + lid;
  if (is_v) { values[at] = ${packFour(shape.value, 'v')}; } else { keys[at] = ${packFour(shape.key, 'v')}; }
}`;
  return {
    stages: [
      {
        label: `rope-append ${heads}/${kvHeads}×${headDim}`,
        wgsl,
        bindings,
        params: p.words,
        workgroups: (facts, out) => {
          out[0] = heads + 2 * kvHeads;
          out[1] = Math.min(facts.tokens, 65535);
          out[2] = Math.ceil(facts.tokens / 65535);
        },
      },
    ],
  };
}

/** Element i of `whole` after rotation by `position`; see rope.ts for the two tables. */
function rotatedWgsl(style: RopeStyle, pairs: string): string {
  const pair =
    style === 'half'
      ? 'let pair = i % pairs; let second = i >= pairs; let a = whole[pair]; let b = whole[pair + pairs];'
      : 'let pair = i / 2u; let second = i % 2u == 1u; let a = whole[2u * pair]; let b = whole[2u * pair + 1u];';
  return `fn rotated(i: u32, position: u32) -> f32 {
  let pairs = ${pairs};
  ${pair}
  let f = rope[(position % ${ROPE_FINE}u) * pairs + pair];
  let c = rope[(${ROPE_FINE}u + position / ${ROPE_FINE}u) * pairs + pair];
  let cos_ = c.x * f.x - c.y * f.y;
  let sin_ = c.y * f.x + c.x * f.y;
  return select(a * cos_ - b * sin_, a * sin_ + b * cos_, second);
}`;
}
