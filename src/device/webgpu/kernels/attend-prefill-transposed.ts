/**
 * Transposed values (kv-layout.ts) for prompt tiles, fetched a tile ahead and made halves as they are staged, as other codes are
 * (attend-prefill-codes.ts). A piece is not 32 dims of a position but what lies side by side: eight dims of four, a load of 16
 * bytes. Neighbours take neighbouring ones, so that they load whole rows of memory, and store to banks of their own besides.
 *
 * Positions are fetched in the tiles of 16 that words share out. One that no row sees is fetched with those of its tile that some
 * row does, whoever has it: codes and norms of TurboQuant are finite whatever was stored, so what its weight of zero makes of it is
 * zero.
 */

import type { AttendShape } from './attend.js';
import { sixteenCentroids, turnBytes } from './attend-planes.js';
import { halvesText, normText, PIECE, piecesOf, stagedDim, TURBO_TEXT } from './attend-prefill-codes.js';
import type { TileSizes } from './attend-prefill-plan.js';
import type { TilePlaces, TileSide } from './attend-prefill-tiles.js';
import { count } from './attend-words.js';
import { hasNorm, isTransposed } from './kv-formats/list.js';
import type { KvSideSpec } from './kv-formats/side.js';
import { TRANSPOSED_POSITIONS, TRANSPOSED_TOKENS } from './kv-formats/turbo-layout.js';

/** Dims of a piece, and words of as many positions as a word has. */
const DIMS = PIECE / TRANSPOSED_POSITIONS.length;

/** Null where values are not transposed, or a tile is no whole number of pieces for each thread. */
export function transposedTiles(
  shape: AttendShape,
  c: TileSizes,
  side: KvSideSpec<'keys' | 'values'>,
  { block, seenAt }: TilePlaces,
): TileSide | null {
  const pieces = piecesOf(shape, c, side);
  if (pieces === null || !isTransposed(side) || c.keys % TRANSPOSED_TOKENS !== 0) return null;
  const { format, each } = pieces;
  if (!hasNorm(format)) return null;
  const { kvHeads, headDim, blockTokens } = shape;
  const { threads, stride } = c;
  const { name, layout } = side;
  /** Pieces of a row of words, and of a tile of positions. */
  const across = headDim / DIMS;
  const ofTile = across * (TRANSPOSED_TOKENS / TRANSPOSED_POSITIONS.length);
  /** Piece `column` of positions `first`, `first + 4` … of the staged ones. */
  const pieceOf = (i: number): string =>
    `let u = lid + ${i * threads}u; let column = u % ${across}u; let in_tile = u % ${ofTile}u; let tile = u / ${ofTile}u * ${TRANSPOSED_TOKENS}u; let first = tile + in_tile / ${across}u;`;

  const fetched = (i: number, base: string): string[] => [
    // A tile is of one block; the part of it that some row sees says which.
    `  { ${pieceOf(i)} let t = ${seenAt(`${base} + tile`)} / ${TRANSPOSED_TOKENS}u * ${TRANSPOSED_TOKENS}u; let from_block = ${block('t')};`,
    `    ${name}_code${i} = ${name}[((from_block * ${kvHeads}u + kv) * ${blockTokens}u + t % ${blockTokens}u) * ${layout.words / 4}u + in_tile];`,
    `    let at = (${layout.metaAt}u + (from_block * ${layout.metaHeads}u + kv / 2u) * ${blockTokens}u + t % ${blockTokens}u) / 4u; let own = first % 4u;`,
    `    ${name}_meta${i} = vec4<u32>(${TRANSPOSED_POSITIONS.map((more) => `${name}[at + ${more / 4}u][own]`).join(', ')}); }`,
  ];
  const staged = (i: number): string[] => {
    const raw = ['x', 'y', 'z', 'w'].map((e) => `${name}_code${i}.${e}`) as [string, string, string, string];
    return [
      `  { ${pieceOf(i)} let to = first * ${stride / 8}u + column;`,
      turnBytes(`x${i}_`, raw),
      ...TRANSPOSED_POSITIONS.flatMap((more, b) => [
        // Lower codes are the even dims, four to a word.
        `    { let pair = unpack2x16float(${name}_meta${i}[${b}]); ${normText(format, headDim, 'value')}`,
        sixteenCentroids(`c${b}_`, `x${i}_${b}`),
        `    staged[to + ${(more * stride) / 8}u] = ${halvesText(format, `c${b}_0`, `c${b}_1`)}; }`,
      ]),
      '  }',
    ];
  };
  return {
    kind: 'pieces',
    type: 'array<vec4<u32>>',
    declarations: '',
    helper: TURBO_TEXT,
    prepare: '',
    variables: count(each).flatMap((i) => [
      `  var ${name}_code${i}: vec4<u32>;`,
      `  var ${name}_meta${i}: vec4<u32>;`,
    ]),
    fetch: (base) => count(each).flatMap((i) => fetched(i, base)),
    stage: () => count(each).flatMap(staged),
    dimOf: stagedDim(2),
  };
}
