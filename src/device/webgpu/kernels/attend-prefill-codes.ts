/**
 * Codes of K or V for prompt tiles: fetched a tile ahead in pieces of 32 dims, as floats are, and made halves as they are
 * staged. A lane stores whole vectors of halves in the order in which unpacking leaves them, so a staged vector's dims are
 * in an order of their own: `dimOf` says which.
 */

import type { AffineKv, TurboKv } from '../../kv.js';
import type { KvSide } from '../../turboquant/rotation.js';
import type { AttendShape } from './attend.js';
import { byteCentre, bytesText, byteUnit, hasBytes } from './attend-planes.js';
import type { TileSizes } from './attend-prefill-plan.js';
import type { TilePlaces, TileSide } from './attend-prefill-tiles.js';
import { count, wordOf, wordType, wordWidth } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { hasNorm, hasScales } from './kv-formats/list.js';
import type { KvSideSpec } from './kv-formats/side.js';

/** Elements of a piece. */
export const PIECE = 32;

/** What `stage` calls for norms: one rounding, as if by f32, for a norm is a half and what is left of it. */
export const TURBO_TEXT =
  'fn turbo_(n: vec2<f16>, norm: vec2<f16>, rest: vec2<f16>) -> vec2<f16> { return fma(n, norm, n * rest); }';

/** The format, and how many pieces each thread has; null where codes are read in another way. */
export function piecesOf(
  shape: AttendShape,
  c: TileSizes,
  { format }: KvSideSpec,
): { readonly format: AffineKv | TurboKv; readonly each: number } | null {
  const { component, threads, keys } = c;
  const pieces = (keys * shape.headDim) / PIECE;
  // Latents are too wide to be whole numbers of pieces.
  const each = shape.valueDim === undefined ? pieces / threads : Math.ceil(pieces / threads);
  const takes =
    hasBytes(format) &&
    (!hasScales(format) || shape.headDim % format.groupSize === 0) &&
    shape.headDim % PIECE === 0 &&
    component === 'f16' &&
    each >= 1 &&
    Number.isInteger(each);
  return takes ? { format, each } : null;
}

/** Null where codes are no bytes, or a tile is no whole number of pieces for each thread. */
export function codedTiles(
  shape: AttendShape,
  c: TileSizes,
  side: KvSideSpec<'keys' | 'values'>,
  { block, seenAt }: TilePlaces,
): TileSide | null {
  const pieces = piecesOf(shape, c, side);
  if (pieces === null) return null;
  const { format, each } = pieces;
  const { kvHeads, headDim, blockTokens } = shape;
  const { keys } = c;
  const { threads, stride } = c;
  const all = (keys * headDim) / PIECE;
  const { name, layout } = side;
  const words = (layout.words * PIECE) / headDim;
  const width = wordWidth(words);
  const { words: pattern } = bytesText(format, headDim, PIECE, 'x', () => '0u');
  const run = pattern[0]!.dims[1] - pattern[0]!.dims[0];
  const beyond = (i: number): boolean => (i + 1) * threads > all;
  const pieceOf = (i: number): string =>
    beyond(i) ? `let u = min(lid + ${i * threads}u, ${all - 1}u);` : `let u = lid + ${i * threads}u;`;
  /** Neighbours take a dim of 32 of neighbouring positions each, so that they store to banks of their own. */
  const token = `u % ${keys}u`;

  const fetched = (i: number, base: string): string[] => {
    const at = hasScales(format)
      ? `${layout.metaAt}u + vector * ${layout.groups}u + part / ${format.groupSize / PIECE}u`
      : `${layout.metaAt}u + (from_block * ${layout.metaHeads}u + kv / 2u) * ${blockTokens}u + t % ${blockTokens}u`;
    return [
      `  { ${pieceOf(i)} let t = ${seenAt(`${base} + ${token}`)}; let part = u / ${keys}u; let from_block = ${block('t')};`,
      `    let vector = (from_block * ${kvHeads}u + kv) * ${blockTokens}u + t % ${blockTokens}u; let a = vector * ${layout.words}u + part * ${words}u;`,
      ...count(words / width).map((w) => `    ${name}_code${i}_${w} = ${name}[a / ${width}u + ${w}u];`),
      `    let at = ${at}; ${name}_meta${i} = ${name}${width === 1 ? '[at]' : `[at / ${width}u][at % ${width}u]`}; }`,
    ];
  };

  const staged = (i: number): string[] => {
    const made = bytesText(format, headDim, PIECE, `x${i}`, (w) => wordOf(`${name}_code${i}`, width, w));
    return [
      `  ${beyond(i) ? `if (lid + ${i * threads}u < ${all}u) ` : ''}{ ${pieceOf(i)}\n${made.text}`,
      `    let to = ${token} * ${stride / 8}u + u / ${keys}u * ${PIECE / 8}u; let pair = unpack2x16float(${name}_meta${i});`,
      hasScales(format)
        ? '    let scale = vec2<f16>(f16(pair.x)); let bias = vec2<f16>(f16(pair.y));'
        : `    ${normText(format, headDim, name === 'keys' ? 'key' : 'value')}`,
      ...count(PIECE / 8).map(
        (v) =>
          `    staged[to + ${v}u] = ${halvesText(format, made.words[2 * v]!.name, made.words[2 * v + 1]!.name)};`,
      ),
      '  }',
    ];
  };
  return {
    kind: 'pieces',
    type: `array<${wordType(width)}>`,
    declarations: '',
    helper: hasNorm(format) ? TURBO_TEXT : '',
    prepare: '',
    variables: count(each).flatMap((i) => [
      ...count(words / width).map((w) => `  var ${name}_code${i}_${w}: ${wordType(width)};`),
      `  var ${name}_meta${i}: u32;`,
    ]),
    fetch: (base) => count(each).flatMap((i) => fetched(i, base)),
    stage: () => count(each).flatMap(staged),
    dimOf: stagedDim(run),
  };
}

/** Statements that make `scale` and `rest` of a norm, one of the halves of `pair`, for bytes of 128ths. */
export function normText(format: TurboKv, headDim: number, side: KvSide): string {
  return `let norm = select(pair.x, pair.y, (kv & 1u) == 1u) * ${f32Literal(128 * byteUnit(format, headDim, side))}; let most = f16(norm); let scale = vec2<f16>(most); let rest = vec2<f16>(f16(norm - f32(most)));`;
}

/** Expression of eight halves to stage, of two words of four bytes. */
export function halvesText(format: AffineKv | TurboKv, low: string, high: string): string {
  const four = [low, high].flatMap((word) => [0, 1].map((odd) => half(format, word, odd)));
  return `vec4<u32>(${four.map((h) => `bitcast<u32>(${h})`).join(', ')})`;
}

/** Two elements of a word of bytes as halves, by their bits: 0x6400 is 1024, and counts from there. */
function half(format: AffineKv | TurboKv, word: string, odd: number): string {
  const w = odd === 0 ? word : `(${word} >> 8u)`;
  if (hasScales(format)) {
    // Codes of 8 bits come less 128.
    const bits =
      byteCentre(format) === 0 ? `(${w} & 0x00ff00ffu) | 0x64006400u` : `(${w} & 0x00ff00ffu) ^ 0x64806480u`;
    return `clamp(fma(bitcast<vec2<f16>>(${bits}) - vec2<f16>(1024.0h), scale, bias), vec2<f16>(-65504.0h), vec2<f16>(65504.0h))`;
  }
  const n = `fma(bitcast<vec2<f16>>((${w} & 0x00ff00ffu) ^ 0x64806480u), vec2<f16>(0.0078125h), vec2<f16>(-9.0h))`;
  return `turbo_(${n}, scale, rest)`;
}

/** The dim that a column of a staged vector holds, where the bytes of a word are so many dims apart. */
export function stagedDim(run: number): (at: string) => string {
  return (at) => {
    const w = `(${at}) % ${PIECE}u / 4u`;
    const e = `((((${at}) & 1u) << 1u) | (((${at}) >> 1u) & 1u))`;
    return `((${at}) / ${PIECE}u * ${PIECE}u + ${w} / ${run}u * ${4 * run}u + ${w} % ${run}u + ${e} * ${run}u)`;
  };
}
