/** What towers need beside the ops of decoders: rotation by angles of each row, and attention of rows among themselves. */

import type { RowKind } from '../../graph.js';
import type { RopeStyle } from '../../rope.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';

const THREADS = 64;
/** Rows of K and V that lie in workgroup memory at once. */
const KEYS = 16;
const LOWEST = '-3e38f';

function strideOf(cols: number): number {
  return Math.ceil(cols / 4) * 4;
}

/** A thread an element. */
export function rotateKernel(shape: {
  readonly rowKind: RowKind;
  readonly cols: number;
  readonly heads: number;
  readonly headDim: number;
  readonly dims: number;
  readonly style: RopeStyle;
}): Kernel {
  const { rowKind, cols, heads, headDim, dims, style } = shape;
  const half = dims / 2;
  const read = (name: string): Binding => ({ name, access: 'read', type: 'array<f32>' });
  const bindings: Binding[] = [
    STEP_BINDING,
    read('x'),
    read('angles'),
    { name: 'out', access: 'read_write', type: 'array<f32>' },
  ];
  const stride = strideOf(cols);
  const pair =
    style === 'half'
      ? `let i = d % ${half}u;
  let upper = d >= ${half}u;
  let other = select(at + ${half}u, at - ${half}u, upper);`
      : `let i = d / 2u;
  let upper = (d & 1u) == 1u;
  let other = select(at + 1u, at - 1u, upper);`;
  const wgsl = `${declareBindings(bindings)}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * ${THREADS}u + lid;
  if (row >= ${rowCount(rowKind)} || c >= ${cols}u) { return; }
  let at = row * ${stride}u + c;
  let d = c % ${headDim}u;
  if (c >= ${heads * headDim}u || d >= ${dims}u) {
    out[at] = x[at];
    return;
  }
  ${pair}
  let angle = row * ${strideOf(dims)}u + i;
  let sine = angles[angle + ${half}u];
  out[at] = x[at] * angles[angle] + x[other] * select(-sine, sine, upper);
}`;
  return {
    stages: [
      {
        label: `rotate ${heads} of ${headDim}`,
        wgsl,
        bindings,
        workgroups: (facts, out) => {
          out[0] = Math.ceil(cols / THREADS);
          out[1] = Math.min(facts[rowKind], 65535);
          out[2] = Math.ceil(facts[rowKind] / 65535);
        },
      },
    ],
  };
}

/**
 * A workgroup is one head of some neighbours. They may be of several segments, which then pass one after the other. A row looks at
 * its own in tiles from the first row of it on: what stands beside the segment does not show.
 */
export function attendSegmentsKernel(shape: {
  readonly rowKind: RowKind;
  readonly heads: number;
  readonly headDim: number;
  readonly scale: number;
}): Kernel {
  const { rowKind, heads, headDim, scale } = shape;
  const rows = headDim <= 96 ? 16 : 8;
  const lanes = THREADS / rows;
  const vectors = headDim / 4;
  const own = Math.ceil(vectors / lanes);
  const read = (name: string): Binding => ({ name, access: 'read', type: 'array<vec4<f32>>' });
  const bindings: Binding[] = [
    STEP_BINDING,
    read('qkv'),
    read('bounds'),
    { name: 'out', access: 'read_write', type: 'array<vec4<f32>>' },
  ];
  const each = (body: (at: string, j: number) => string): string =>
    Array.from({ length: own }, (_, j) => {
      const at = `(lane + ${j * lanes}u)`;
      const text = body(at, j);
      return (j + 1) * lanes <= vectors ? text : `if (${at} < ${vectors}u) { ${text} }`;
    }).join('\n');
  const load = (part: number): string => `for (var i = lid; i < ${KEYS * vectors}u; i += ${THREADS}u) {
        let source = t + i / ${vectors}u;
        tile[i] = vec4<f32>(0.0);
        if (source < end) { tile[i] = qkv[source * ${3 * heads * vectors}u + (${part * heads}u + head) * ${vectors}u + i % ${vectors}u]; }
      }`;
  const wgsl = `${declareBindings(bindings)}
var<workgroup> queries: array<vec4<f32>, ${rows * vectors}>;
var<workgroup> tile: array<vec4<f32>, ${KEYS * vectors}>;
var<workgroup> scores: array<f32, ${rows * KEYS}>;
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let count = ${rowCount(rowKind)};
  let base = wid.x * ${rows}u;
  let head = wid.y;
  let r = lid / ${lanes}u;
  let lane = lid % ${lanes}u;
  let row = base + r;
  for (var i = lid; i < ${rows * vectors}u; i += ${THREADS}u) {
    let source = base + i / ${vectors}u;
    queries[i] = vec4<f32>(0.0);
    if (source < count) { queries[i] = qkv[source * ${3 * heads * vectors}u + head * ${vectors}u + i % ${vectors}u] * ${f32Literal(scale)}; }
  }
  ${Array.from({ length: own }, (_, j) => `var sum${j} = vec4<f32>(0.0);`).join('\n  ')}
  var most = ${LOWEST};
  var weight = 0.0;
  let last = min(base + ${rows}u, count);
  var at = base;
  while (at < last) {
    let both = bounds[at].xy;
    var behind = at + 1u;
    while (behind < last && all(bounds[min(behind, last - 1u)].xy == both)) { behind++; }
    let mine = row >= at && row < behind;
    let end = min(u32(both.y), count);
    for (var t = u32(both.x); t < end; t += ${KEYS}u) {
      workgroupBarrier();
      ${load(1)}
      workgroupBarrier();
      for (var k = lane; k < ${KEYS}u; k += ${lanes}u) {
        var score = 0.0;
        for (var v = 0u; v < ${vectors}u; v++) { score += dot(queries[r * ${vectors}u + v], tile[k * ${vectors}u + v]); }
        scores[r * ${KEYS}u + k] = select(${LOWEST}, score, t + k < end);
      }
      workgroupBarrier();
      ${load(2)}
      workgroupBarrier();
      if (mine) {
        var top = most;
        for (var k = 0u; k < ${KEYS}u; k++) { top = max(top, scores[r * ${KEYS}u + k]); }
        let by = exp(max(most - top, -87.0));
        most = top;
        weight *= by;
        ${each((_, j) => `sum${j} *= by;`)}
        for (var k = 0u; k < ${KEYS}u; k++) {
          let e = select(0.0, exp(max(scores[r * ${KEYS}u + k] - top, -87.0)), t + k < end);
          weight += e;
          ${each((v, j) => `sum${j} += e * tile[k * ${vectors}u + ${v}];`)}
        }
      }
    }
    at = behind;
  }
  if (row >= count) { return; }
  let factor = select(0.0, 1.0 / weight, weight > 0.0);
  ${each((v, j) => `out[(row * ${heads}u + head) * ${vectors}u + ${v}] = sum${j} * factor;`)}
}`;
  return {
    stages: [
      {
        label: `attend-segments ${heads} of ${headDim}`,
        wgsl,
        bindings,
        workgroups: (facts, out) => {
          out[0] = Math.ceil(facts[rowKind] / rows);
          out[1] = heads;
          out[2] = 1;
        },
      },
    ],
  };
}
