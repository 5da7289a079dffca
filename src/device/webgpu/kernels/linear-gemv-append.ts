/**
 * What rope-append.ts does with q, k and v, at the end of the GEMV that makes them of one token: head norms, rotation, k and v
 * into the cache, q out. It saves a launch a layer where K and V are floats.
 *
 * A workgroup then owns weight rows that belong together: all of a head where heads are normed, for each needs the sum
 * of its squares; else a run of pairs that rotate with each other, so that there are many workgroups. What it needs
 * beside the product is fetched while the weights are on their way. Every sum is taken in the order of rope-append.ts.
 */

import { isFloatKv } from '../../kv.js';
import type { RopeAppendShape } from '../shapes.js';
import { STEP_ROTARY_WGSL, STEP_WGSL } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';
import { axesWgsl, growthText, headNormText, rotatedText, rotationWgsl, shownText } from './head-turn.js';
import { cacheElement, KV_WGSL } from './kv-format.js';
import { floatStoreText } from './kv-formats/float.js';
import type { GemvConfig } from './linear-gemv-plan.js';
import type { LinearBinding, LinearSpec } from './linear-spec.js';

/** Vectors of f32 that share the binding `constants`, one after the other: a device binds few buffers. */
export const CONSTANTS = ['norm', 'bias', 'qNorm', 'kNorm'] as const;
export type Constant = (typeof CONSTANTS)[number];

/** Elements of each of the constants, 0 for what the shape does not have. */
export function constantLengths(
  {
    n,
    k,
    norm,
    bias,
  }: { readonly n: number; readonly k: number; readonly norm: object | null; readonly bias: boolean },
  { normEps, headDim }: RopeAppendShape,
): Readonly<Record<Constant, number>> {
  const perHead = normEps === null ? 0 : headDim;
  return { norm: norm === null ? 0 : k, bias: bias ? n : 0, qNorm: perHead, kNorm: perHead };
}

/** Weight rows of a workgroup. */
function rowsOf({ subgroups, rowsPerSubgroup, splits }: GemvConfig): number {
  return (subgroups / splits) * rowsPerSubgroup;
}

/** Whether workgroups of these sizes can do it: with whole heads, or with whole runs of four on both sides of each pair. */
export function appendFits(spec: LinearSpec, append: RopeAppendShape, config: GemvConfig): boolean {
  const { heads, kvHeads, headDim, key, value, rows: kinds, rope, normEps } = append;
  if (!isFloatKv(key) || !isFloatKv(value) || kinds.only !== null) return false;
  if (spec.rows !== 1 || spec.glu !== null || spec.residual !== null || spec.merge !== undefined)
    return false;
  if (spec.outOffset !== 0 || spec.out !== 'f32' || spec.n !== (heads + 2 * kvHeads) * headDim) return false;
  const rows = rowsOf(config);
  if (append.normAfter === true && normEps !== null) return false;
  if (headDim % 4 !== 0 || rows % 4 !== 0 || headDim % rows !== 0) return false;
  if (rows / 2 > config.subgroups * config.subgroupSize) return false;
  if (rows === headDim) return true;
  if (normEps !== null) return false;
  return rope === null || rope.style === 'interleaved' || (rope.dims % rows === 0 && rows % 8 === 0);
}

/** Bytes of workgroup memory, at most. */
export function appendBytes({ headDim, normEps }: RopeAppendShape): number {
  return headDim * (normEps === null ? 8 : 13) + 16;
}

export interface AppendText {
  readonly types: Readonly<Partial<Record<LinearBinding, string>>>;
  readonly declarations: string;
  /** Statements at the start of a kernel. */
  readonly start: string;
  /** Statements that fetch what is needed beside the product, once x is staged, and that keep it for all, when the product is done. */
  readonly fetch: string;
  readonly keep: string;
  /** Expression: the weight row of a workgroup's row. */
  row(local: string): string;
  /** Statements after all sums; `value`: those that put the sum of row `j` of the workgroup into a variable of this name. */
  end(value: string): string;
}

export function appendText(spec: LinearSpec, append: RopeAppendShape, config: GemvConfig): AppendText {
  const { heads, kvHeads, headDim, rope, normEps, rows: kinds, key, value, queryGrowth: growth } = append;
  if (!isFloatKv(key) || !isFloatKv(value)) throw new RangeError('only floats are appended');
  const rows = rowsOf(config);
  const pairs = rows / 2;
  const vectors = headDim / 4;
  const parts = headDim / rows;
  const threads = config.subgroups * config.subgroupSize;
  const lengths = constantLengths(spec, append);
  const at = (name: Constant): number =>
    CONSTANTS.slice(0, CONSTANTS.indexOf(name)).reduce((sum, before) => sum + lengths[before], 0) / 4;
  const numbers = {
    kvHeads: `${kvHeads}u`,
    blockTokens: `${append.blockTokens}u`,
    metaAt: '0u',
    tablesAt: '0u',
  };
  const split = rope?.style === 'half' && parts > 1;
  // Rows of a workgroup: a run of the first half of what rotates, then their partners.
  const element = split
    ? `let own = part * ${pairs}u + select(f, f + ${rope.dims / 2 - pairs}u, f >= ${pairs}u);
  return select(part * ${rows}u + f, own, part < ${rope.dims / rows}u);`
    : `return part * ${rows}u + f;`;
  const declarations = `
${STEP_WGSL}
${KV_WGSL}
var<workgroup> place_: vec2<u32>;
var<workgroup> whole: array<f32, ${headDim}>;
${rope === null ? '' : `var<workgroup> turns_: array<vec2<f32>, ${pairs}>;\n${rotationWgsl(rope.style, `${rope.dims / 2}u`)}`}
${normEps === null ? '' : `var<workgroup> gammas_: array<vec4<f32>, ${vectors}>;\nvar<workgroup> squares_: array<f32, ${vectors}>;`}
${rope?.axes === undefined ? '' : `${STEP_ROTARY_WGSL}${axesWgsl(rope.axes)}\n`}fn element_(part: u32, f: u32) -> u32 {
  ${element}
}`;
  // By the last threads, in registers until the product is done: no thread waits for it before it has staged x.
  const fetched: {
    readonly name: string;
    readonly type: string;
    readonly when: string;
    readonly from: string;
    readonly to: string;
  }[] = [
    {
      name: 'entry_',
      type: 'u32',
      when: 'back == 0u',
      from: `tables[token.y * ${append.maxBlocksPerSlot}u + token.z / ${append.blockTokens}u]`,
      to: `place_ = vec2<u32>(entry_, token.z % ${append.blockTokens}u);`,
    },
  ];
  if (rope !== null)
    fetched.push({
      name: 'parts_',
      type: 'vec4<f32>',
      when: `turns && back < ${pairs}u && part * ${pairs}u + back < ${rope.dims / 2}u`,
      from: `angle_parts(part * ${pairs}u + back, ${rope.axes === undefined ? 'token.z' : `step_rotary(0u)[axis_of(part * ${pairs}u + back)]`})`,
      to: 'turns_[back] = angle_from(parts_);',
    });
  if (normEps !== null)
    fetched.push({
      name: 'gamma_',
      type: 'vec4<f32>',
      when: `turns && back < ${vectors}u`,
      from: `constants[select(${at('kNorm')}u, ${at('qNorm')}u, head < ${heads}u) + back]`,
      to: 'gammas_[back] = gamma_;',
    });
  const normed =
    normEps === null
      ? ''
      : `
  if (active_) { squares_[lid] = dot(v, v); }
  workgroupBarrier();
  if (active_) {
    if (turns) {
      let squares = ${halvedSum(Array.from({ length: vectors }, (_, i) => `squares_[${i}u]`))};
      ${headNormText('squares', `${headDim}.0`, f32Literal(normEps), 'gammas_[quad]')}
    }
    ${shownText('quad')}
  }
  workgroupBarrier();`;
  const rotated =
    rope === null
      ? ''
      : `
  if (active_ && turns) {
      ${rotatedText('quad', `${rope.dims / 2}u`, (pair) => `turns_[${pair} - part * ${pairs}u]`)}
  }`;
  const grown =
    growth == null ? '' : ` * ${growthText('token.z', f32Literal(growth.beta), `${growth.every}u`)}`;
  const store = (name: 'keys' | 'values', format: typeof key, first: number, base: number): string =>
    `let kv = head - ${first}u; let block = place_.x - ${base}u; let token_at = place_.y;
      ${floatStoreText(headDim, format, numbers, 'quad', (at, value) => `${name}[${at}] = ${value};`)}`;
  return {
    types: {
      constants: 'vec4<f32>',
      tables: 'u32',
      rope: 'vec2<f32>',
      out: 'vec4<f32>',
      keys: cacheElement(key),
      values: cacheElement(value),
    },
    declarations,
    start: `
  let head = tile / ${parts}u;
  let part = tile % ${parts}u;
  let turns = head < ${heads + kvHeads}u;
  let token = step_token(0u);
  let back = ${threads - 1}u - lid;
${fetched.map(({ name, type }) => `  var ${name} = ${type}();`).join('\n')}`,
    fetch: fetched.map(({ name, when, from }) => `    if (${when}) { ${name} = ${from}; }`).join('\n'),
    keep: fetched.map(({ when, to }) => `  if (${when}) { ${to} }`).join('\n'),
    row: (local) => `head * ${headDim}u + element_(part, ${local})`,
    end: (sum) => `  for (var j = lid; j < ${rows}u; j += ${threads}u) {
    let i = element_(part, j);
${sum}
    ${spec.bias ? `let feature = head * ${headDim}u + i;\n    value += constants[${at('bias')}u + feature / 4u][feature % 4u];` : ''}
    whole[i] = value;
  }
  workgroupBarrier();
  let active_ = lid < ${rows / 4}u;
  let quad = element_(part, select(0u, lid * 4u, active_)) / 4u;
  var v = vec4<f32>(${[0, 1, 2, 3].map((e) => `whole[quad * 4u + ${e}u]`).join(', ')});${normed}${rotated}
  if (active_) {
    if (head < ${heads}u) {
      out[head * ${vectors}u + quad] = v${grown};
    } else if (turns) {
      ${store('keys', key, heads, kinds.keyBase)}
    } else {
      ${store('values', value, heads + kvHeads, kinds.valueBase)}
    }
  }`,
  };
}

/** Sum as `total_` of kv-store.ts takes it: the second half onto the first, and again. */
function halvedSum(terms: readonly string[]): string {
  let left = [...terms];
  for (let half = 2 ** Math.ceil(Math.log2(terms.length)) / 2; half >= 1; half /= 2)
    left = left.slice(0, half).map((term, i) => {
      const other = left[i + half];
      return other === undefined ? term : `(${term} + ${other})`;
    });
  return left[0]!;
}
