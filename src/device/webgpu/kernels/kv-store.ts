/**
 * WGSL that stores a K or V vector: held by the threads of a workgroup, four elements each, quantised in workgroup
 * memory and written word by word, each word by one thread; values that lie turned byte by byte, for their words are of several
 * vectors. What is written depends on the vector alone.
 */

import type { KvFormat } from '../../kv.js';
import { FIELD_BITS } from './code-fields.js';
import { type KvSideNumbers, type KvSideSpec, metaWord, tableWord } from './kv-format.js';
import { codesInRuns, liesTurned, TURNED_TOKENS, tableOffsets, turnedShift } from './kv-layout.js';
import { rotateOneText } from './kv-rotate.js';
import { codeNumbers } from './plane-codes.js';
import { rolledBound } from './rolled.js';

/** Threads of a head: enough for the widest, 256. */
const MOST_LANES = 64;
/** And for heads of 128, where two lie side by side. */
const LANES = 32;

/**
 * Who stores: a workgroup has a head, or, where the norms of two share a word (TurboQuant), two of them side by side, so that
 * neither waits for the other. `lid` is a thread's place in its head.
 */
export interface StorePlan {
  readonly heads: 1 | 2;
  /** Threads of a head. */
  readonly lanes: number;
  readonly threads: number;
  /** What picks a head's own of an array of workgroup memory: of two, `[half_]`. */
  readonly own: string;
}

export function storePlan(formats: readonly KvFormat[], headDim: number): StorePlan {
  if (!formats.some((f) => f.kind === 'turboquant'))
    return { heads: 1, lanes: MOST_LANES, threads: MOST_LANES, own: '' };
  const lanes = headDim / 4 <= LANES ? LANES : MOST_LANES;
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
  if (formats.some((f) => f.kind !== 'float' && !codesInRuns(f)))
    lines.push(ownArray(plan, 'codes_', 'array<u32, 256>'));
  if (formats.some((f) => f.kind === 'affine'))
    lines.push(
      ownArray(plan, 'lows_', `array<f32, ${lanes}>`),
      ownArray(plan, 'highs_', `array<f32, ${lanes}>`),
    );
  const books = formats.filter((f) => f.kind === 'turboquant').map(({ bits }) => bookWords(bits));
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
  if (formats.some(codesInRuns))
    lines.push(ownArray(plan, 'eights_', `array<array<vec4<u32>, 2>, ${lanes / 8}>`));
  return lines.join('\n');
}

/** Centroids and midpoints of a codebook, which lie side by side in the tables; and how many of them a thread fetches. */
const bookWords = (bits: number): number => 2 ** (bits + 1) - 1;
const pagesOf = ({ threads }: StorePlan, bits: number): number => Math.ceil(bookWords(bits) / threads);

/** Statements that declare what threads have of the tables of these formats: what `fetch` fetches, and `store` reads. */
export function storeVariables(plan: StorePlan, formats: readonly KvFormat[]): string {
  const pages = formats.map((f) => (f.kind === 'turboquant' ? pagesOf(plan, f.bits) : 0));
  const most = Math.max(...pages);
  if (most === 0) return '';
  return ['var signs: vec4<f32>;', ...count(most).map((i) => `var page${i}: f32;`)].join(' ');
}

type FloatFormat = Extract<KvFormat, { readonly kind: 'float' }>;

export interface StoreText {
  readonly declarations: string;
  /** Statements that fetch what storing needs of the side's tables, well before, into what `storeVariables` declares. */
  readonly fetch: string;
  /**
   * Statements that store `v` of thread `lid` (zero from `headDim / 4` threads on) as KV head `kv` of (`block`,
   * `token`); in uniform control flow. Of two heads that share a workgroup `kv` may be one that is not there: `here` tells.
   */
  readonly store: string;
}

/** Expression: which vector of the side is that of KV head `kv` at (`block`, `token_at`). */
function vectorText(n: KvSideNumbers): string {
  return `((block * ${n.kvHeads} + kv) * ${n.blockTokens} + token_at)`;
}

/** Statement that stores `v`, elements `4 quad …` of a vector of floats, as KV head `kv` at (`block`, `token_at`). */
export function floatStoreText(
  { name, headDim }: Pick<KvSideSpec, 'name' | 'headDim'>,
  { dtype }: FloatFormat,
  n: KvSideNumbers,
  quad: string,
  put = (at: string, value: string): string => `${name}[${at}] = ${value};`,
): string {
  return put(`${vectorText(n)} * ${headDim / 4}u + ${quad}`, dtype === 'f32' ? 'v' : 'pack_four(v)');
}

/**
 * @param put statement that stores an element of the side's buffer, where that is not one by the side's name; not for
 * TurboQuant, whose norms and tables go by the name
 */
export function storeText(
  side: KvSideSpec,
  n: KvSideNumbers,
  plan: StorePlan,
  put = (at: string, value: string): string => `${side.name}[${at}] = ${value};`,
): StoreText {
  const { name, format, headDim, layout } = side;
  const { lanes, own } = plan;
  const vectors = headDim / 4;
  const vector = vectorText(n);
  const here = plan.heads === 1 ? '' : 'here && ';
  if (format.kind === 'float') {
    const store = `if (${here}lid < ${vectors}u) { ${floatStoreText(side, format, n, 'lid', put)} }`;
    return { declarations: '', fetch: '', store };
  }
  const pack = liesTurned(side)
    ? turnedText(side, vector, here, own)
    : `workgroupBarrier();
      for (var j = lid; ${here}j < ${layout.words}u; j += ${lanes}u) {
        ${put(`${vector} * ${layout.words}u + j`, `${name}_word(j, groups)`)}
      }`;
  if (format.kind === 'affine') {
    const members = format.groupSize / 4;
    const most = 2 ** format.bits - 1;
    const [lows, highs] = [`lows_${own}`, `highs_${own}`];
    return {
      declarations: wordText(name, format, headDim, own),
      fetch: '',
      store: `{
      let x = finite_(v);
      let real = lid < ${vectors}u;
      ${lows}[lid] = select(3.0e38, min(min(x.x, x.y), min(x.z, x.w)), real);
      ${highs}[lid] = select(-3.0e38, max(max(x.x, x.y), max(x.z, x.w)), real);
      for (var level = 0u; level < ${rolledBound(Math.log2(members))}; level++) {
        let half = ${members / 2}u >> level;
        workgroupBarrier();
        if (lid % ${members}u < half) {
          ${lows}[lid] = min(${lows}[lid], ${lows}[lid + half]);
          ${highs}[lid] = max(${highs}[lid], ${highs}[lid + half]);
        }
      }
      workgroupBarrier();
      let leader = lid / ${members}u * ${members}u;
      let low = ${lows}[leader];
      let stored = to_half(vec4<f32>((${highs}[leader] - low) / ${most}.0, low, 0.0, 0.0));
      let affine = stored.x | (stored.y << 16u);
      let back = unpack2x16float(affine);
      let at = clamp(round((x - vec4<f32>(back.y)) / back.x), vec4<f32>(0.0), vec4<f32>(${most}.0));
      let codes = select(vec4<u32>(0u), vec4<u32>(at), vec4<bool>(real && back.x > 0.0));
      for (var e = 0u; e < 4u; e++) { codes_${own}[lid * 4u + e] = codes[e]; }
      if (${here}real && lid == leader) { ${put(metaWord(side, n, 'block', 'kv', 'token_at', `lid / ${members}u`), 'affine')} }
      ${pack}
    }`,
    };
  }
  const bits = format.bits;
  const inRuns = codesInRuns(format);
  const corrects = name === 'keys' && !format.plainKeys;
  const offsets = tableOffsets(bits, headDim);
  const word = (i: string): string => tableWord(side, n, i);
  const entries = 2 ** bits;
  const words = bookWords(bits);
  const pages = count(pagesOf(plan, bits));
  const rotated = rotateOneText({
    name,
    headDim,
    value: 'select(x, x / length, length > 0.0) * signs',
    array: `turned${own}`,
    matrix: (i) => word(`${offsets.matrix}u + ${i}`),
    inverse: false,
  });
  return {
    declarations: wordText(name, format, headDim, own),
    fetch: `signs = ${signsText(side, n)};
    ${pages.map((i) => `page${i} = ${word(`${offsets.centroids}u + min(thread + ${i * plan.threads}u, ${words - 1}u)`)};`).join('\n    ')}`,
    store: `{
      ${pages.map((i) => `if (thread + ${i * plan.threads}u < ${words}u) { book_[thread + ${i * plan.threads}u] = page${i}; }`).join('\n      ')}
      let x = finite_(v);
      let length = sqrt(sum_(dot(x, x), lid));
      ${rotated.transform}
      var like = 0.0;
      if (lid < ${vectors}u) {
        let y = ${rotated.value};
        // Midpoints strictly below, by halving.
        var code = vec4<u32>();
        for (var level = 0u; level < ${rolledBound(bits)}; level++) {
          let half = ${entries / 2}u >> level;
          let at = code + vec4<u32>(half + ${entries - 1}u);
          let middle = vec4<f32>(${each((e) => `book_[at.${e}]`).join(', ')});
          code += select(vec4<u32>(), vec4<u32>(half), middle < y);
        }
        ${inRuns ? numberText(codeNumbers(headDim, bits, name === 'keys' ? 'key' : 'value')) : ''}
        ${each((e) => `like += y.${e} * book_[code.${e}];`).join('\n        ')}
        ${inRuns ? spreadCodes(own) : each((e, i) => `codes_${own}[lid * 4u + ${i}u] = code.${e};`).join('\n        ')}
      } else {
        ${inRuns ? `eights_${own}[lid / 8u][lid / 4u % 2u][lid % 4u] = 0u;` : `for (var e = 0u; e < 4u; e++) { codes_${own}[lid * 4u + e] = 0u; }`}
      }
      ${corrects ? 'let likeness = sum_(like, lid);\n      let norm = select(0.0, length / likeness, length > 0.0);' : 'let norm = length;'}
      if (lid == 0u) { norms_[half_] = select(0.0, norm, here); }
      ${pack}
      if (lid == 0u && half_ == 0u) {
        let halves = to_half(vec4<f32>(norms_[0], norms_[1], 0.0, 0.0));
        ${wordSet(side, metaWord(side, n, 'block', 'kv', 'token_at'), 'halves.x | (halves.y << 16u)')}
      }
    }`,
  };
}

/** Statement that stores a word of a side's buffer. */
function wordSet({ name, atomic = false }: KvSideSpec, at: string, value: string): string {
  return atomic ? `atomicStore(&${name}[${at}], ${value});` : `${name}[${at}] = ${value};`;
}

/**
 * Statements that store turned values: thread `lid` the bytes of its four dims, in two words, whose other bytes are other
 * positions', which other workgroups may be storing. The barrier is for the norms, which one thread stores behind it.
 */
function turnedText(
  { name, headDim, layout }: KvSideSpec,
  vector: string,
  here: string,
  own: string,
): string {
  return `workgroupBarrier();
      if (${here}lid < ${headDim / 4}u) {
        let place = token_at % ${TURNED_TOKENS}u;
        let shift = ${turnedShift('place')};
        let to = (${vector} - place) * ${layout.words}u + place % 4u * ${headDim / 2}u + lid * 2u;
        let four = eights_${own}[lid / 8u][lid / 4u % 2u][lid % 4u];
        let pair = vec2<u32>(four | (four >> 4u), (four >> 16u) | (four >> 20u)) & vec2<u32>(255u);
        atomicAnd(&${name}[to], ~(255u << shift));
        atomicOr(&${name}[to], pair.x << shift);
        atomicAnd(&${name}[to + 1u], ~(255u << shift));
        atomicOr(&${name}[to + 1u], pair.y << shift);
      }`;
}

/** Expression of the signs of thread `lid`: of the vector's four dims, of the first for those that have none. */
export function signsText(side: KvSideSpec, n: KvSideNumbers): string {
  const dims = each((_, i) => tableWord(side, n, `min(lid, ${side.headDim / 4 - 1}u) * 4u + ${i}u`));
  return `vec4<f32>(${dims.join(', ')})`;
}

const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
const each = (text: (e: string, i: number) => string): string[] => ['x', 'y', 'z', 'w'].map(text);

/** The numbers of codes in place of the codes. */
function numberText(numbers: readonly number[]): string {
  const word = (from: number): string =>
    `${numbers.slice(from, from + 8).reduce((sum, number, i) => sum + number * 16 ** i, 0)}u`;
  const words = (from: number): string => `vec4<u32>(${word(from)})`;
  const table = numbers.length <= 8 ? words(0) : `select(${words(0)}, ${words(8)}, code > vec4<u32>(7u))`;
  return `code = (${table} >> ((code & vec4<u32>(7u)) * 4u)) & vec4<u32>(15u);`;
}

/** Bit b of code e to bit `8 e + b` of an entry of `eights_`. */
function spreadCodes(own: string): string {
  return `eights_${own}[lid / 8u][lid / 4u % 2u][lid % 4u] = ${each((e, i) => `(code.${e} << ${8 * i}u)`).join(' | ')};`;
}

/**
 * `NAME_word(j, groups)`: word j of the codes in `codes_`, which are zero beyond the vector's end. Runs are made of
 * `eights_`, whose entries hold four codes, a byte each: of a run, eight.
 */
function wordText(name: string, format: KvFormat, headDim: number, own: string): string {
  if (format.kind === 'float') return '';
  const head = `fn ${name}_word(j: u32, groups: vec3<u32>) -> u32 {`;
  if (codesInRuns(format)) {
    const { bits } = format;
    if (liesTurned({ name, format, headDim })) return '';
    if (bits === FIELD_BITS)
      // Two entries in fields of four bits, and bit j of the last two in their fourth ones.
      return `${head}
  let own = j % 3u;
  let first = own * 2u;
  let low = eights_${own}[j / 3u][first / 4u][first % 4u];
  let high = eights_${own}[j / 3u][first / 4u][first % 4u + 1u];
  let last = (eights_${own}[j / 3u][1].zw >> vec2<u32>(own)) & vec2<u32>(0x01010101u);
  return low | (high << 4u) | (last.x << 3u) | (last.y << 7u);
}`;
    if (headDim % 32 === 0)
      // Word b of a run: of every entry, bit b of its bytes.
      return `${head}
  let bit = vec4<u32>(j % ${bits}u);
  let low = (eights_${own}[j / ${bits}u][0] >> bit) & vec4<u32>(0x01010101u);
  let high = (eights_${own}[j / ${bits}u][1] >> bit) & vec4<u32>(0x01010101u);
  let all = (low << vec4<u32>(0u, 1u, 2u, 3u)) | (high << vec4<u32>(4u, 5u, 6u, 7u));
  return (all.x | all.y) | (all.z | all.w);
}`;
    // The planes of a last run are shorter: bit by bit.
    return `${head}
  let run = j / ${bits}u;
  let length = min(8u, ${headDim / 4}u - run * 8u);
  var word = 0u;
  for (var i = 0u; i < ${rolledBound(32)}; i++) {
    let at = j % ${bits}u * 32u + i;
    let plane = at / (4u * length);
    let e = at / length % 4u;
    let k = at % length;
    if (plane < ${bits}u) { word |= ((eights_${own}[run][k / 4u][k % 4u] >> (8u * e + plane)) & 1u) << i; }
  }
  return word;
}`;
  }
  const { bits } = format;
  if (bits === 3) {
    return `${head}
  let base = j / 3u * 32u;
  let own = j % 3u;
  var word = 0u;
  for (var i = 0u; i < 5u; i++) {
    let at = base + (own * 5u + i) * 2u;
    word |= (codes_${own}[at] | (codes_${own}[at + 1u] << 3u)) << (6u * i);
  }
  let sixteenth = codes_${own}[base + 30u] | (codes_${own}[base + 31u] << 3u);
  return word | (((sixteenth >> (2u * own)) & 3u) << 30u);
}`;
  }
  if (32 % bits === 0) {
    return `${head}
  var word = 0u;
  for (var i = 0u; i < ${32 / bits}u; i++) { word |= codes_${own}[j * ${32 / bits}u + i] << (${bits}u * i); }
  return word;
}`;
  }
  return `${head}
  var word = 0u;
  for (var k = j * 32u / ${bits}u; k * ${bits}u < j * 32u + 32u && k < 256u; k++) {
    let bit = k * ${bits}u;
    if (bit >= j * 32u) { word |= codes_${own}[k] << (bit - j * 32u); } else { word |= codes_${own}[k] >> (j * 32u - bit); }
  }
  return word;
}`;
}
