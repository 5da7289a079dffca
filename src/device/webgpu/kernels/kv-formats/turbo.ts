import type { TurboKv } from '../../../kv.js';
import { hasTurboCodebook, turboCodebook } from '../../../turboquant/codebooks.js';
import { type KvSide, turboRotation } from '../../../turboquant/rotation.js';
import { rotateOneText } from '../kv-rotate.js';
import { codeNumbers } from '../plane-codes.js';
import { rolledBound } from '../rolled.js';
import { codesRoom, streamCodesText, streamWordText } from './code-stream.js';
import type { KvCodec, SideOf, StoreContext, StorePlan, StoreText } from './codec.js';
import { type KvSideNumbers, readerHead, signsText, tableWord, vectorText } from './side.js';
import { tableOffsets, turboInRuns, turboIsTransposed } from './turbo-layout.js';
import {
  numberText,
  runsCodesText,
  runsWordText,
  spreadCodes,
  transposedCodesText,
  transposedStoreText,
} from './turbo-runs.js';

type Side = SideOf<TurboKv>;

/** Expression: the word of norms of a (block, KV head, token), which two heads share. */
function normWord(n: KvSideNumbers, block: string, kv: string, token: string): string {
  return `${n.metaAt} + (${block} * ((${n.kvHeads} + 1u) / 2u) + (${kv}) / 2u) * ${n.blockTokens} + ${token}`;
}

export const turboCodec: KvCodec<TurboKv> = {
  kind: 'turboquant',
  takes: (_, headDim) => headDim % 8 === 0 && hasTurboCodebook(headDim),
  element: () => 'u32',
  meta: (_format, _headDim, kvHeads) => ({ groups: 1, metaHeads: Math.ceil(kvHeads / 2) }),
  tables: turboTables,
  rotation: ({ bits }, headDim) => tableOffsets(bits, headDim).matrix,
  codes: 'normed',
  // Norms are halves and centroids below 1.
  bounded: true,
  readerBytes: ({ bits }) => 2 ** bits * 4,
  reader(side, n) {
    const { name, format, headDim, layout } = side;
    const entries = 2 ** format.bits;
    const { centroids } = tableOffsets(format.bits, headDim);
    return {
      declarations: `var<workgroup> ${name}_book: array<f32, ${entries}>;
${readerHead(name, n)}
  let first = vector * ${layout.words}u;
  var codes: vec4<u32>;
  ${codesText(side)}
  let norm = unpack2x16float(${name}[${normWord(n, 'block', 'kv', 'token')}])[kv & 1u];
  return norm * vec4<f32>(${['x', 'y', 'z', 'w'].map((e) => `${name}_book[codes.${e}]`).join(', ')});
}`,
      prepare: (threads) => `for (var i = lid; i < ${entries}u; i += ${threads}u) {
    ${name}_book[i] = ${tableWord(side, n, `${centroids}u + i`)};
  }`,
    };
  },
  pairsHeads: true,
  sidesAlike: false,
  storeNeeds: (format) => ({
    bookWords: bookWords(format.bits),
    ...(turboInRuns(format) ? { eights: true } : { codes: true }),
  }),
  store: storeTurbo,
};

function codesText(side: Side): string {
  const { name, format, headDim } = side;
  if (turboIsTransposed(format, name, headDim)) return transposedCodesText(side);
  return turboInRuns(format) ? runsCodesText(name, format.bits, headDim) : streamCodesText(name, format.bits);
}

function turboTables(format: TurboKv, headDim: number, side: KvSide): Float32Array {
  const { signs, matrix } = turboRotation(headDim, side);
  const { centroids, midpoints } = turboCodebook(headDim, format.bits, side);
  const out = new Float32Array(headDim + matrix.length + centroids.length + midpoints.length);
  let at = 0;
  const numbered = new Float32Array(centroids.length);
  centroids.forEach((centroid, code) => {
    numbered[turboInRuns(format) ? codeNumbers(headDim, format.bits, side)[code]! : code] = centroid;
  });
  for (const part of [signs, matrix, numbered, midpoints]) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Centroids and midpoints of a codebook, which lie side by side in the tables; and how many of them a thread fetches. */
const bookWords = (bits: number): number => 2 ** (bits + 1) - 1;
const pagesOf = ({ threads }: StorePlan, bits: number): number => Math.ceil(bookWords(bits) / threads);

function storeTurbo(side: Side, n: KvSideNumbers, { plan, put }: StoreContext): StoreText {
  const { name, format, headDim, layout } = side;
  const { lanes, own } = plan;
  const vectors = headDim / 4;
  const vector = vectorText(n);
  const here = plan.heads === 1 ? '' : 'here && ';
  const transposed = turboIsTransposed(format, name, headDim);
  const pack = transposed
    ? transposedStoreText(side, vector, here, own)
    : `workgroupBarrier();
      for (var j = lid; ${here}j < ${layout.words}u; j += ${lanes}u) {
        ${put(`${vector} * ${layout.words}u + j`, `${name}_word(j, groups)`)}
      }`;
  const bits = format.bits;
  const inRuns = turboInRuns(format);
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
    declarations: inRuns
      ? transposed
        ? ''
        : runsWordText(name, bits, headDim, own)
      : streamWordText(name, bits, own, codesRoom(lanes)),
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
        ${wordSet(side, normWord(n, 'block', 'kv', 'token_at'), 'halves.x | (halves.y << 16u)')}
      }
    }`,
  };
}

/** Statement that stores a word of a side's buffer. */
function wordSet({ name, atomic = false }: Side, at: string, value: string): string {
  return atomic ? `atomicStore(&${name}[${at}], ${value});` : `${name}[${at}] = ${value};`;
}

const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
const each = (text: (e: string, i: number) => string): string[] => ['x', 'y', 'z', 'w'].map(text);
