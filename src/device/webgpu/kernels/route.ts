/** Chooses experts: a workgroup a row, whatever the rows, and every sum of it in one order. */

import type { RouteSpec, RowKind } from '../../graph.js';
import { type Binding, declareBindings, type Kernel, spread } from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';

/** What stands for a NaN where experts are compared, and what for one that is left out: WGSL need not know infinity. */
const LOWEST = '-1e38f';
const LEFT_OUT = '-3e38f';

/** Threads of a workgroup: a thread an expert, where there are as many. */
function threadsOf(experts: number): number {
  return Math.min(256, 2 ** Math.ceil(Math.log2(Math.max(experts, 32))));
}

export function routeKernel(shape: {
  readonly rowKind: RowKind;
  readonly experts: number;
  readonly spec: RouteSpec;
}): Kernel {
  const { rowKind, experts, spec } = shape;
  const { k, score, bias, normalise, scale } = spec;
  const read = (name: string): Binding => ({ name, access: 'read', type: 'array<f32>' });
  const bindings: Binding[] = [
    STEP_BINDING,
    read('logits'),
    ...(bias === null ? [] : [read('bias')]),
    ...(spec.expertScales ? [read('scales')] : []),
    { name: 'out', access: 'read_write', type: 'array<f32>' },
  ];
  const threads = threadsOf(experts);
  const strideOf = (cols: number): number => Math.ceil(cols / 4) * 4;
  const each = (body: string): string =>
    `for (var i = lid; i < ${experts}u; i += ${threads}u) { ${body} }\n  workgroupBarrier();`;
  /** Puts each thread's `own` together in part[0], two by two. */
  const halved = (two: string): string => `part[lid] = own;
  workgroupBarrier();
  for (var w = ${threads / 2}u; w > 0u; w >>= 1u) {
    if (lid < w) { part[lid] = ${two}; }
    workgroupBarrier();
  }`;
  const scored =
    score === 'sigmoid'
      ? each('score[i] = 1.0 / (1.0 + exp(min(-logits[base + i], 87.0)));')
      : `var own = logits[base + min(lid, ${experts - 1}u)];
  for (var i = lid; i < ${experts}u; i += ${threads}u) { own = max(own, logits[base + i]); }
  ${halved('max(part[lid], part[lid + w])')}
  let top = part[0];
  workgroupBarrier();
  own = 0.0;
  for (var i = lid; i < ${experts}u; i += ${threads}u) {
    score[i] = exp(logits[base + i] - top);
    own += score[i];
  }
  ${halved('part[lid] + part[lid + w]')}
  let total = part[0];
  ${each('score[i] = score[i] / total;')}`;
  const divided =
    normalise === null ? '' : ` / (max(sum, ${f32Literal(normalise.least)}) + ${f32Literal(normalise.add)})`;
  const wgsl = `${declareBindings(bindings)}
var<workgroup> score: array<f32, ${experts}>;
var<workgroup> key: array<f32, ${experts}>;
var<workgroup> chosen: array<u32, ${experts}>;
var<workgroup> picked: array<f32, ${k}>;
${score === 'sigmoid' ? '' : `var<workgroup> part: array<f32, ${threads}>;`}
${spec.groups === null ? '' : `var<workgroup> group: array<f32, ${spec.groups.count}>;`}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let row = wid.x + wid.y * nwg.x;
  if (row >= ${rowCount(rowKind)}) { return; }
  let base = row * ${strideOf(experts)}u;
  ${scored}
  ${each(`let v = score[i]${bias === null ? '' : ' + bias[i]'};
    let bits = bitcast<u32>(v) & 0x7fffffffu;
    key[i] = select(max(v, ${LOWEST}), ${LOWEST}, bits > 0x7f800000u);`)}
  ${spec.groups === null ? '' : maskGroups(experts, spec.groups, threads)}
  ${each(`var before = 0u;
    for (var j = 0u; j < ${experts}u; j++) {
      before += select(0u, 1u, key[j] > key[i] || (key[j] == key[i] && j < i));
    }
    chosen[i] = select(0u, 1u, before < ${k}u);`)}
  let to = row * ${strideOf(2 * k)}u;
  ${each(`if (chosen[i] == 1u) {
      var n = 0u;
      for (var j = 0u; j < i; j++) { n += chosen[j]; }
      out[to + n] = f32(i);
      picked[n] = score[i];
      key[n] = f32(i);
    }`)}
  var sum = 0.0;
  for (var j = 0u; j < ${k}u; j++) { sum += picked[j]; }
  let by = ${f32Literal(scale)}${divided};
  for (var j = lid; j < ${k}u; j += ${threads}u) {
    out[to + ${k}u + j] = picked[j] * by${spec.expertScales ? ' * scales[u32(key[j])]' : ''};
  }
}`;
  return {
    stages: [
      {
        label: `route ${k} of ${experts}`,
        wgsl,
        bindings,
        workgroups: (facts, to) => spread(facts[rowKind], to),
      },
    ],
  };
}

function maskGroups(
  experts: number,
  { count, kept, by }: NonNullable<RouteSpec['groups']>,
  threads: number,
): string {
  const each = experts / count;
  return `for (var g = lid; g < ${count}u; g += ${threads}u) {
    var first = ${LEFT_OUT};
    var second = ${LEFT_OUT};
    for (var i = g * ${each}u; i < (g + 1u) * ${each}u; i++) {
      second = max(second, min(first, key[i]));
      first = max(first, key[i]);
    }
    group[g] = ${by === 'best' ? 'first' : 'first + second'};
  }
  workgroupBarrier();
  for (var g = lid; g < ${count}u; g += ${threads}u) {
    var before = 0u;
    for (var h = 0u; h < ${count}u; h++) {
      before += select(0u, 1u, group[h] > group[g] || (group[h] == group[g] && h < g));
    }
    if (before >= ${kept}u) {
      for (var i = g * ${each}u; i < (g + 1u) * ${each}u; i++) { key[i] = ${LEFT_OUT}; }
    }
  }
  workgroupBarrier();`;
}
