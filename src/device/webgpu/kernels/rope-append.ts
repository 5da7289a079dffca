/**
 * Norm and rotate q and k, append k and v to the cache, give q. One workgroup a (token, head): a head fits into 64
 * threads of four elements each.
 */

import type { AttentionShape } from '../../graph.js';
import type { KvFormat } from '../../kv.js';
import { ROPE_FINE, type RopeStyle } from '../../rope.js';
import { type Binding, declareBindings, f32Literal, type Kernel } from '../kernel.js';
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

/** Roles: step, qkv, tables, qNorm, kNorm (with norms), fine, coarse (with rope), out, keys, values. */
export function ropeAppendKernel(shape: RopeAppendShape): Kernel {
  const { heads, kvHeads, headDim, rope, normEps } = shape;
  const vectors = headDim / 4;
  const width = (heads + 2 * kvHeads) * vectors;
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'qkv', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'tables', access: 'read', type: 'array<u32>' },
  ];
  if (normEps !== null) {
    bindings.push({ name: 'qNorm', access: 'read', type: 'array<vec4<f32>>' });
    bindings.push({ name: 'kNorm', access: 'read', type: 'array<vec4<f32>>' });
  }
  if (rope !== null) {
    bindings.push({ name: 'fine', access: 'read', type: 'array<vec2<f32>>' });
    bindings.push({ name: 'coarse', access: 'read', type: 'array<vec2<f32>>' });
  }
  bindings.push({ name: 'out', access: 'read_write', type: 'array<vec4<f32>>' });
  bindings.push({ name: 'keys', access: 'read_write', type: cacheType(shape.key) });
  bindings.push({ name: 'values', access: 'read_write', type: cacheType(shape.value) });
  const norm =
    normEps === null
      ? ''
      : `
  if (!is_v) {
    part[lid] = dot(v, v);
    workgroupBarrier();
    for (var half = 32u; half > 0u; half >>= 1u) {
      if (lid < half) { part[lid] += part[lid + half]; }
      workgroupBarrier();
    }
    let scale = 1.0 / sqrt(part[0] / ${f32Literal(headDim)} + ${f32Literal(normEps)});
    if (active_) { v = v * scale * select(kNorm[lid], qNorm[lid], head < ${heads}u); }
  }`;
  const rotate =
    rope === null
      ? ''
      : `
  if (!is_v) {
    if (active_) { for (var e = 0u; e < 4u; e++) { whole[lid * 4u + e] = v[e]; } }
    workgroupBarrier();
    if (active_ && lid * 4u < ${rope.dims}u) {
      for (var e = 0u; e < 4u; e++) {
        let i = lid * 4u + e;
        if (i < ${rope.dims}u) { v[e] = rotated(i, token.z); }
      }
    }
  }`;
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
${KV_WGSL}
var<workgroup> part: array<f32, 64>;
var<workgroup> whole: array<f32, ${headDim}>;
${rope === null ? '' : rotatedWgsl(rope)}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let head = wid.x;
  let row = wid.y + wid.z * 65535u;
  if (row >= step[0].x) { return; }
  let token = step_token(row);
  let is_v = head >= ${heads + kvHeads}u;
  let active_ = lid < ${vectors}u;
  var v = vec4<f32>(0.0);
  if (active_) { v = qkv[row * ${width}u + head * ${vectors}u + lid]; }
  ${norm}
  ${rotate}
  if (!active_) { return; }
  if (head < ${heads}u) {
    out[(row * ${heads}u + head) * ${vectors}u + lid] = v;
    return;
  }
  let kv = (head - ${heads}u) % ${kvHeads}u;
  let block = tables[token.y * ${shape.maxBlocksPerSlot}u + token.z / ${shape.blockTokens}u];
  let at = ((block * ${kvHeads}u + kv) * ${shape.blockTokens}u + token.z % ${shape.blockTokens}u) * ${vectors}u + lid;
  if (is_v) { values[at] = ${packFour(shape.value, 'v')}; } else { keys[at] = ${packFour(shape.key, 'v')}; }
}`;
  return {
    stages: [
      {
        label: `rope-append ${heads}/${kvHeads}×${headDim}`,
        wgsl,
        bindings,
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
function rotatedWgsl({ dims, style }: { readonly dims: number; readonly style: RopeStyle }): string {
  const half = dims / 2;
  const pair =
    style === 'half'
      ? `let pair = i % ${half}u; let second = i >= ${half}u; let a = whole[pair]; let b = whole[pair + ${half}u];`
      : 'let pair = i / 2u; let second = i % 2u == 1u; let a = whole[2u * pair]; let b = whole[2u * pair + 1u];';
  return `fn rotated(i: u32, position: u32) -> f32 {
  ${pair}
  let f = fine[(position % ${ROPE_FINE}u) * ${half}u + pair];
  let c = coarse[(position / ${ROPE_FINE}u) * ${half}u + pair];
  let cos_ = c.x * f.x - c.y * f.y;
  let sin_ = c.y * f.x + c.x * f.y;
  return select(a * cos_ - b * sin_, a * sin_ + b * cos_, second);
}`;
}
