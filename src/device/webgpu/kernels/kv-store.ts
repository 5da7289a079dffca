/**
 * WGSL that stores a K or V vector: held by the threads of a workgroup, four elements each, quantised in workgroup
 * memory and written word by word, each word by one thread. What is written depends on the vector alone.
 */

import type { KvFormat } from '../../kv.js';
import { type KvSideNumbers, type KvSideSpec, metaWord, tableWord } from './kv-format.js';
import { planarCodes, tableOffsets } from './kv-layout.js';
import { rotateText } from './kv-rotate.js';
import { codeNumbers } from './plane-codes.js';
import { rolledBound } from './rolled.js';

/** Threads of a workgroup: enough for the widest head, 256. */
export const STORE_THREADS = 64;

/**
 * `total_` sums a value over the workgroup, in one order; `finite_` is the rule for what is not finite. `groups`, here and in what
 * `storeText` writes, is the number of workgroups (rolled.ts).
 */
export const STORE_WGSL = `
var<workgroup> part_: array<f32, ${STORE_THREADS}>;
fn total_(value: f32, lid: u32, groups: vec3<u32>) -> f32 {
  workgroupBarrier();
  part_[lid] = value;
  workgroupBarrier();
  for (var level = 0u; level < ${rolledBound(Math.log2(STORE_THREADS))}; level++) {
    let half = ${STORE_THREADS / 2}u >> level;
    if (lid < half) { part_[lid] += part_[lid + half]; }
    workgroupBarrier();
  }
  return part_[0];
}
fn finite_(v: vec4<f32>) -> vec4<f32> {
  let nan = (bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
  return clamp(select(v, vec4<f32>(0.0), nan), vec4<f32>(-65504.0), vec4<f32>(65504.0));
}
`;

/** Workgroup arrays that storing these formats needs. */
export function storeArrays(formats: readonly KvFormat[]): string {
  const has = (kind: KvFormat['kind']): boolean => formats.some((f) => f.kind === kind);
  const lines: string[] = [];
  if (has('affine') || has('turboquant')) lines.push('var<workgroup> codes_: array<u32, 256>;');
  if (has('affine'))
    lines.push(
      `var<workgroup> lows_: array<f32, ${STORE_THREADS}>;\nvar<workgroup> highs_: array<f32, ${STORE_THREADS}>;`,
    );
  return lines.join('\n');
}

type FloatFormat = Extract<KvFormat, { readonly kind: 'float' }>;

export interface StoreText {
  readonly declarations: string;
  /** KV heads that one workgroup stores, so that every word has one writer. */
  readonly heads: 1 | 2;
  /**
   * Statements that store `v` of thread `lid` (zero from `headDim / 4` threads on) as KV head `kv` of (`block`,
   * `token`); in uniform control flow.
   */
  readonly store: string;
  /** Statements after the last of the heads: `kv` is one of them. */
  readonly finish: string;
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
 * @param turned the name of an `array<vec4<f32>, 64>` in workgroup memory, used by TurboQuant
 * @param put statement that stores an element of the side's buffer, where that is not one by the side's name; not for
 * TurboQuant, whose norms and tables go by the name
 */
export function storeText(
  side: KvSideSpec,
  n: KvSideNumbers,
  turned: string,
  put = (at: string, value: string): string => `${side.name}[${at}] = ${value};`,
): StoreText {
  const { name, format, headDim, layout } = side;
  const vectors = headDim / 4;
  const vector = vectorText(n);
  if (format.kind === 'float') {
    const store = `if (lid < ${vectors}u) { ${floatStoreText(side, format, n, 'lid', put)} }`;
    return { declarations: '', heads: 1, store, finish: '' };
  }
  const pack = `workgroupBarrier();
      for (var j = lid; j < ${layout.words}u; j += ${STORE_THREADS}u) {
        ${put(`${vector} * ${layout.words}u + j`, `${name}_word(j, groups)`)}
      }`;
  if (format.kind === 'affine') {
    const members = format.groupSize / 4;
    const most = 2 ** format.bits - 1;
    return {
      declarations: wordText(name, format, headDim),
      heads: 1,
      store: `{
      let x = finite_(v);
      let real = lid < ${vectors}u;
      lows_[lid] = select(3.0e38, min(min(x.x, x.y), min(x.z, x.w)), real);
      highs_[lid] = select(-3.0e38, max(max(x.x, x.y), max(x.z, x.w)), real);
      for (var level = 0u; level < ${rolledBound(Math.log2(members))}; level++) {
        let half = ${members / 2}u >> level;
        workgroupBarrier();
        if (lid % ${members}u < half) {
          lows_[lid] = min(lows_[lid], lows_[lid + half]);
          highs_[lid] = max(highs_[lid], highs_[lid + half]);
        }
      }
      workgroupBarrier();
      let leader = lid / ${members}u * ${members}u;
      let low = lows_[leader];
      let stored = to_half(vec4<f32>((highs_[leader] - low) / ${most}.0, low, 0.0, 0.0));
      let affine = stored.x | (stored.y << 16u);
      let back = unpack2x16float(affine);
      let at = clamp(round((x - vec4<f32>(back.y)) / back.x), vec4<f32>(0.0), vec4<f32>(${most}.0));
      let codes = select(vec4<u32>(0u), vec4<u32>(at), vec4<bool>(real && back.x > 0.0));
      for (var e = 0u; e < 4u; e++) { codes_[lid * 4u + e] = codes[e]; }
      if (real && lid == leader) { ${put(metaWord(side, n, 'block', 'kv', 'token_at', `lid / ${members}u`), 'affine')} }
      ${pack}
      workgroupBarrier();
    }`,
      finish: '',
    };
  }
  const bits = format.bits;
  const planar = planarCodes(format);
  const corrects = name === 'keys' && !format.plainKeys;
  const offsets = tableOffsets(bits, headDim);
  const word = (i: string): string => tableWord(side, n, i);
  const rotated = rotateText({
    name,
    headDim,
    rows: 1,
    threads: STORE_THREADS,
    array: turned,
    matrix: (i) => word(`${offsets.matrix}u + ${i}`),
    inverse: false,
  });
  return {
    declarations: `${wordText(name, format, headDim)}
${rotated.functions}
var<private> ${name}_norms: vec4<f32>;`,
    heads: 2,
    store: `{
      let x = finite_(v);
      let length = sqrt(total_(dot(x, x), lid, groups));
      if (lid < ${vectors}u) {
        ${turned}[lid] = select(x, x / length, length > 0.0) * vec4<f32>(${[0, 1, 2, 3].map((e) => word(`lid * 4u + ${e}u`)).join(', ')});
      }
      ${rotated.transform}
      var like = 0.0;
      if (lid < ${vectors}u) {
        let y = ${rotated.cell('lid')};
        // Midpoints strictly below, by halving.
        var code = vec4<u32>();
        for (var level = 0u; level < ${rolledBound(bits)}; level++) {
          let half = ${2 ** (bits - 1)}u >> level;
          let middle = vec4<f32>(${each((e) => word(`${offsets.midpoints}u + code.${e} + half - 1u`)).join(', ')});
          code += select(vec4<u32>(), vec4<u32>(half), middle < y);
        }
        ${planar ? numberText(codeNumbers(headDim, bits)) : ''}
        ${each((e) => `like += y.${e} * ${word(`${offsets.centroids}u + code.${e}`)};`).join('\n        ')}
        ${planar ? spreadCodes() : each((e, i) => `codes_[lid * 4u + ${i}u] = code.${e};`).join('\n        ')}
      } else {
        ${planar ? 'codes_[lid] = 0u;' : 'for (var e = 0u; e < 4u; e++) { codes_[lid * 4u + e] = 0u; }'}
      }
      ${corrects ? 'let likeness = total_(like, lid, groups);\n      let norm = select(0.0, length / likeness, length > 0.0);' : 'let norm = length;'}
      ${name}_norms[kv & 1u] = norm;
      ${pack}
      workgroupBarrier();
    }`,
    finish: `if (lid == 0u) {
      let halves = to_half(${name}_norms);
      ${name}[${metaWord(side, n, 'block', 'kv', 'token_at')}] = halves.x | (halves.y << 16u);
    }`,
  };
}

const each = (text: (e: string, i: number) => string): string[] => ['x', 'y', 'z', 'w'].map(text);

/** The numbers of codes in place of the codes. */
function numberText(numbers: readonly number[]): string {
  const word = (from: number): string =>
    `${numbers.slice(from, from + 8).reduce((sum, number, i) => sum + number * 16 ** i, 0)}u`;
  const words = (from: number): string => `vec4<u32>(${word(from)})`;
  const table = numbers.length <= 8 ? words(0) : `select(${words(0)}, ${words(8)}, code > vec4<u32>(7u))`;
  return `code = (${table} >> ((code & vec4<u32>(7u)) * 4u)) & vec4<u32>(15u);`;
}

/** Bit b of code e to bit `8 e + b` of an entry of `codes_`. */
function spreadCodes(): string {
  return `codes_[lid] = ${each((e, i) => `(code.${e} << ${8 * i}u)`).join(' | ')};`;
}

/**
 * `NAME_word(j, groups)`: word j of the codes in `codes_`, which are zero beyond the vector's end. For planes of bits an entry
 * holds four codes, a byte each.
 */
function wordText(name: string, format: KvFormat, headDim: number): string {
  if (format.kind === 'float') return '';
  const head = `fn ${name}_word(j: u32, groups: vec3<u32>) -> u32 {`;
  if (planarCodes(format)) {
    const { bits } = format;
    if (headDim % 32 === 0)
      // Word b of a run: of every entry, bit b of its bytes.
      return `${head}
  let run = j / ${bits}u * 8u;
  var word = 0u;
  for (var k = 0u; k < ${rolledBound(8)}; k++) { word |= ((codes_[run + k] >> (j % ${bits}u)) & 0x01010101u) << k; }
  return word;
}`;
    // The planes of a last run are shorter: bit by bit.
    return `${head}
  let run = j / ${bits}u * 8u;
  let length = min(8u, ${headDim / 4}u - run);
  var word = 0u;
  for (var i = 0u; i < ${rolledBound(32)}; i++) {
    let at = j % ${bits}u * 32u + i;
    let plane = at / (4u * length);
    let e = at / length % 4u;
    if (plane < ${bits}u) { word |= ((codes_[run + at % length] >> (8u * e + plane)) & 1u) << i; }
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
    word |= (codes_[at] | (codes_[at + 1u] << 3u)) << (6u * i);
  }
  let sixteenth = codes_[base + 30u] | (codes_[base + 31u] << 3u);
  return word | (((sixteenth >> (2u * own)) & 3u) << 30u);
}`;
  }
  if (32 % bits === 0) {
    return `${head}
  var word = 0u;
  for (var i = 0u; i < ${32 / bits}u; i++) { word |= codes_[j * ${32 / bits}u + i] << (${bits}u * i); }
  return word;
}`;
  }
  return `${head}
  var word = 0u;
  for (var k = j * 32u / ${bits}u; k * ${bits}u < j * 32u + 32u && k < 256u; k++) {
    let bit = k * ${bits}u;
    if (bit >= j * 32u) { word |= codes_[k] << (bit - j * 32u); } else { word |= codes_[k] >> (j * 32u - bit); }
  }
  return word;
}`;
}
