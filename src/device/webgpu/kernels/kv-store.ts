/**
 * WGSL that stores a K or V vector: held by the threads of a workgroup, four elements each, quantised in workgroup
 * memory and written word by word, each word by one thread; values that lie transposed byte by byte, for their words are of several
 * vectors. What is written depends on the vector alone.
 */

import type { KvFormat } from '../../kv.js';
import { codesRoom } from './kv-formats/code-stream.js';
import type { StoreNeeds, StorePlan, StoreText } from './kv-formats/codec.js';
import { codecOf } from './kv-formats/list.js';
import type { KvSideNumbers, KvSideSpec } from './kv-formats/side.js';
import { rolledBound } from './rolled.js';

/** Threads of a head: enough for 256 elements, and where two lie side by side for 128; twice or four times as many for wider ones. */
const MOST_LANES = 64;
const LANES = 32;

export function storePlan(formats: readonly KvFormat[], headDim: number): StorePlan {
  let most = MOST_LANES;
  while (most < headDim / 4) most *= 2;
  if (!formats.some((f) => codecOf(f).pairsHeads)) return { heads: 1, lanes: most, threads: most, own: '' };
  const lanes = headDim / 4 <= LANES ? LANES : most;
  return { heads: 2, lanes, threads: 2 * lanes, own: '[half_]' };
}

/** Declares an array of workgroup memory, for each head of its own. */
export const ownArray = ({ heads }: StorePlan, name: string, type: string): string =>
  `var<workgroup> ${name}: ${heads === 1 ? type : `array<${type}, ${heads}>`};`;

/** The parameter of main, and its first statements: `lid`, and of two heads `half_`, a variable of the module. */
export function storeLanes({ heads, lanes }: StorePlan): {
  readonly parameter: string;
  readonly text: string;
} {
  const parameter = (name: string): string => `@builtin(local_invocation_index) ${name}: u32`;
  return heads === 1
    ? { parameter: parameter('lid'), text: '' }
    : {
        parameter: parameter('thread'),
        text: `let lid = thread % ${lanes}u;\n  half_ = thread / ${lanes}u;`,
      };
}

/**
 * What storing these formats declares. `total_` sums a value over a head, in one order; `finite_` is the rule for what is not finite.
 * `groups`, here and in what `storeText` writes, is the number of workgroups (rolled.ts).
 */
export function storeWgsl(plan: StorePlan, formats: readonly KvFormat[]): string {
  const { heads, lanes, own } = plan;
  return `${heads === 1 ? '' : 'var<private> half_: u32;'}
${ownArray(plan, 'part_', `array<f32, ${lanes}>`)}
fn total_(value: f32, lid: u32, groups: vec3<u32>) -> f32 {
  workgroupBarrier();
  part_${own}[lid] = value;
  workgroupBarrier();
  for (var level = 0u; level < ${rolledBound(Math.log2(lanes))}; level++) {
    let half = ${lanes / 2}u >> level;
    if (lid < half) { part_${own}[lid] += part_${own}[lid + half]; }
    workgroupBarrier();
  }
  return part_${own}[0];
}
fn finite_(v: vec4<f32>) -> vec4<f32> {
  let nan = (bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
  return clamp(select(v, vec4<f32>(0.0), nan), vec4<f32>(-65504.0), vec4<f32>(65504.0));
}

${arraysText(plan, formats)}`;
}

/** Their arrays of workgroup memory, and the sum over one of them. */
function arraysText(plan: StorePlan, formats: readonly KvFormat[]): string {
  const { lanes, own } = plan;
  const lines: string[] = [];
  const needs = formats.map(needsOf);
  if (needs.some(({ codes }) => codes))
    lines.push(ownArray(plan, 'codes_', `array<u32, ${codesRoom(lanes)}>`));
  if (needs.some(({ range }) => range))
    lines.push(
      ownArray(plan, 'lows_', `array<f32, ${lanes}>`),
      ownArray(plan, 'highs_', `array<f32, ${lanes}>`),
    );
  const books = needs.flatMap(({ bookWords }) => bookWords ?? []);
  if (books.length > 0)
    lines.push(
      ownArray(plan, 'turned', `array<vec4<f32>, ${lanes}>`),
      ownArray(plan, 'fours_', `array<vec4<f32>, ${lanes / 4}>`),
      `var<workgroup> norms_: array<f32, 2>;
var<workgroup> book_: array<f32, ${Math.max(...books)}>;
// A sum of all lanes that takes one barrier: a thread reads what all have. It is called again behind another barrier.
fn sum_(value: f32, lid: u32) -> f32 {
  fours_${own}[lid / 4u][lid % 4u] = value;
  workgroupBarrier();
  let all = ${count(lanes / 4)
    .map((i) => `fours_${own}[${i}]`)
    .join(' + ')};
  return (all.x + all.y) + (all.z + all.w);
}`,
    );
  if (needs.some(({ eights }) => eights))
    lines.push(ownArray(plan, 'eights_', `array<array<vec4<u32>, 2>, ${lanes / 8}>`));
  return lines.join('\n');
}

/** Statements that declare what threads have of the tables of these formats: what `fetch` fetches, and `store` reads. */
export function storeVariables({ threads }: StorePlan, formats: readonly KvFormat[]): string {
  const pages = formats.map((f) => Math.ceil((needsOf(f).bookWords ?? 0) / threads));
  const most = Math.max(...pages);
  if (most === 0) return '';
  return ['var signs: vec4<f32>;', ...count(most).map((i) => `var page${i}: f32;`)].join(' ');
}

/**
 * @param position expression of the vector's position in its sequence, null where it is not known
 * @param put statement that stores an element of the side's buffer, where that is not one by the side's name; for formats
 * whose sides are alike
 */
export function storeText(
  side: KvSideSpec,
  n: KvSideNumbers,
  plan: StorePlan,
  position: string | null,
  put = (at: string, value: string): string => `${side.name}[${at}] = ${value};`,
): StoreText {
  return codecOf(side.format).store(side, n, { plan, position, put });
}

const needsOf = (format: KvFormat): StoreNeeds => codecOf(format).storeNeeds(format);

const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
