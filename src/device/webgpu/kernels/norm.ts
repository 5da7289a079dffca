/** Norms of parts of a row, RMS or layer norms. What is normed by itself has a workgroup, whatever is beside it. */

import type { NormKind, NormPart, RowKind } from '../../graph.js';
import { type Binding, declareBindings, type Kernel, spread } from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';

const THREADS = 128;

export interface NormShape {
  readonly rowKind: RowKind;
  /** Of a row, all parts and what is between them. */
  readonly cols: number;
  readonly kind: NormKind;
  readonly parts: readonly NormPart[];
  readonly eps: number;
}

/** Name of the binding of a part's weight or bias. */
export function normRole(part: number, what: 'weight' | 'bias'): string {
  return `${what}${part}`;
}

/** What one workgroup does of a row: a group of a part, or columns that are copied. */
interface Span {
  readonly from: number;
  readonly cols: number;
  readonly groups: number;
  /** Null for a copy. */
  readonly part: number | null;
}

function spansOf({ cols, parts }: NormShape): Span[] {
  const spans: Span[] = [];
  let done = 0;
  const copy = (from: number, end: number): void => {
    if (end > from) spans.push({ from, cols: end - from, groups: 1, part: null });
  };
  parts.forEach((part, at) => {
    copy(done, part.from);
    spans.push({ from: part.from, cols: part.cols, groups: part.groups, part: at });
    done = part.from + part.cols * part.groups;
  });
  copy(done, cols);
  return spans;
}

export function normKernel(shape: NormShape): Kernel {
  const { rowKind, cols, kind, parts, eps } = shape;
  const read = (name: string): Binding => ({ name, access: 'read', type: 'array<f32>' });
  const vectors = parts.flatMap(({ weight, bias }, at) => [
    ...(weight === null ? [] : [read(normRole(at, 'weight'))]),
    ...(bias === null ? [] : [read(normRole(at, 'bias'))]),
  ]);
  const out: Binding = { name: 'out', access: 'read_write', type: 'array<f32>' };
  const bindings = [STEP_BINDING, read('x'), ...vectors, out];
  const spans = spansOf(shape);
  const units = spans.reduce((sum, { groups }) => sum + groups, 0);
  const stride = Math.ceil(cols / 4) * 4;

  let first = 0;
  const branches = spans.map(({ from, cols: width, groups, part }) => {
    const own = `(unit - ${first}u)`;
    first += groups;
    const begin = `base + ${from}u + ${own} * ${width}u`;
    if (part === null)
      return `if (unit < ${first}u) {
    for (var i = lid; i < ${width}u; i += ${THREADS}u) { out[${begin} + i] = x[${begin} + i]; }
  }`;
    const { weight, bias } = parts[part] as NormPart;
    const times = weight === null ? '' : ` * ${normRole(part, 'weight')}[${own} * ${width}u + i]`;
    const plus = bias === null ? '' : ` + ${normRole(part, 'bias')}[${own} * ${width}u + i]`;
    return `if (unit < ${first}u) {
    let begin = ${begin};
    let stats = stats_(begin, ${width}u, lid);
    for (var i = lid; i < ${width}u; i += ${THREADS}u) {
      out[begin + i] = (x[begin + i] - stats.x) * stats.y${times}${plus};
    }
  }`;
  });
  const wgsl = `${declareBindings(bindings)}
var<workgroup> part: array<f32, ${THREADS}>;
fn total_(value: f32, lid: u32) -> f32 {
  part[lid] = value;
  workgroupBarrier();
  for (var half = ${THREADS / 2}u; half > 0u; half >>= 1u) {
    if (lid < half) { part[lid] += part[lid + half]; }
    workgroupBarrier();
  }
  let all = part[0];
  workgroupBarrier();
  return all;
}
/** The mean, 0 for an RMS norm, and what is left is multiplied with. */
fn stats_(begin: u32, width: u32, lid: u32) -> vec2<f32> {
  var sum = 0.0;
  ${kind === 'layer' ? `for (var i = lid; i < width; i += ${THREADS}u) { sum += x[begin + i]; }` : ''}
  let mean = ${kind === 'layer' ? 'total_(sum, lid) / f32(width)' : '0.0'};
  sum = 0.0;
  for (var i = lid; i < width; i += ${THREADS}u) {
    let v = x[begin + i] - mean;
    sum += v * v;
  }
  return vec2<f32>(mean, 1.0 / sqrt(total_(sum, lid) / f32(width) + ${f32Literal(eps)}));
}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let index = wid.x + wid.y * nwg.x;
  let row = index / ${units}u;
  let unit = index % ${units}u;
  if (row >= ${rowCount(rowKind)}) { return; }
  let base = row * ${stride}u;
  ${branches.join(' else ')}
}`;
  return {
    stages: [
      {
        label: `${kind}-norm of parts [${cols}]`,
        wgsl,
        bindings,
        workgroups: (facts, to) => spread(facts[rowKind] * units, to),
      },
    ],
  };
}
