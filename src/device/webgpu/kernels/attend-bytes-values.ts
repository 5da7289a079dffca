/** Attention on matrices of bytes: values turned, and the sums of them by weights, to `scratchSums`. */

import type { AttendShape } from './attend.js';
import {
  type BytesSide,
  HALVES,
  HEADS,
  KEYS,
  PAIRS_AT,
  PIECE,
  ROWS,
  STRIDE,
  VALUE_DIMS,
  VALUE_TURN,
} from './attend-bytes-plan.js';
import { bytesText, joinBytes, pairBytes, turnBytes } from './attend-planes.js';
import { count, wordOf } from './attend-words.js';
import { planarCodes } from './kv-layout.js';
import { memoryLoop } from './rolled.js';

/** Lanes that share four positions; dims of a piece that are staged at once, as rows of a tile. */
const PIECES = VALUE_DIMS / PIECE;
const STORES = ROWS / PIECES;
const TILES = PIECE / STORES;

export function byteSums(shape: AttendShape, side: BytesSide): string[] {
  const { groups, loads, stride } = side;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const slots = VALUE_TURN / 4 / 8;
  const load = (base: string): void => {
    emit(`    { let t = ${base} + lane / ${PIECES}u;
      let piece = (half * ${PIECES}u + lane % ${PIECES}u) * ${loads}u;`);
    // One address for the positions of a block.
    const inBlock = Math.min(shape.blockTokens, VALUE_TURN);
    for (const u of count(4)) {
      const within = (u * KEYS) % inBlock;
      const block = u * KEYS - within;
      if (within === 0) emit(`      let a${u} = ${side.vector(`(t + ${block}u)`)} * ${stride}u + piece;`);
      for (const i of count(loads))
        emit(`      v${u}_${i} = values[a${block / KEYS} + ${within * stride + i}u];`);
    }
    // A lane has words of one head, eight lanes' side by side.
    for (const s of count(slots))
      emit(
        `      { let w = scratchScores[weights_at + ${base} / 4u + ${s * 8}u]; w${s} = ${groups === 1 ? 'w.xy' : 'select(w.xy, w.zw, half == 1u)'}; }`,
      );
    emit('    }');
  };
  const halves = memoryLoop('half', 'part', 1, `${HALVES - 1}u`);
  // Other lanes' weights are read from here on.
  emit(`  storageBarrier();
  let weights_at = unit_at + lane / 8u * ${PAIRS_AT / HEADS}u + lane % 8u;
  ${halves.head}`);
  for (const u of count(4)) for (const i of count(loads)) emit(`  var v${u}_${i}: ${side.type};`);
  for (const s of count(slots)) emit(`  var w${s}: vec2<u32>;`);
  load('0u');
  for (const i of count(TILES)) emit(`  var o${i} = Sum();`);
  const loop = memoryLoop('base', 'turn', VALUE_TURN, 'reach');
  emit(`  let into = lane % ${PIECES}u * ${4 * STRIDE}u + lane / ${4 * PIECES}u;
  let component = lane / ${PIECES}u % 4u;
  ${loop.head}
    workgroupBarrier();`);
  for (const p of [0, 1])
    for (const s of count(slots))
      emit(
        `    area[(${p * HEADS}u + lane / 8u) * ${STRIDE}u + lane % 8u / 2u][lane % 2u * 2u + ${s}u] = w${s}.${'xy'[p]};`,
      );
  emit('    workgroupBarrier();');
  // The lower half of the rows is not used, and may be anything.
  for (const k of count(VALUE_TURN / 32))
    emit(`    let weights${k} = subgroupMatrixLoad<Left, row_major>(&area, ${k * 2}u, ${STRIDE}u);`);
  const tiles = turnedTiles(shape, side);
  for (const text of tiles.before) emit(text);
  const fetchAt = planarCodes(side.format) ? 1 : 0;
  for (const i of count(TILES)) {
    emit('    workgroupBarrier();\n    {');
    emit(tiles.stores[i]!);
    emit('    }');
    emit('    workgroupBarrier();');
    // The next ones are fetched when these have left registers for them.
    if (i === fetchAt) {
      emit(`    if (base + ${VALUE_TURN}u <= reach) {`);
      load(`(base + ${VALUE_TURN}u)`);
      emit('    }');
    }
    for (const k of count(VALUE_TURN / 32))
      emit(
        `    o${i} = subgroupMatrixMultiplyAccumulate(weights${k}, subgroupMatrixLoad<Right, col_major>(&area, ${k * 2}u, ${STRIDE}u), o${i});`,
      );
  }
  emit(`  ${loop.tail}`);
  lines.push(...endText(shape, side));
  emit(`  ${halves.tail}`);
  return lines;
}

/**
 * Statements that store a lane's pieces of four positions, `v0` … `v3`, four positions to a word: of tile i eight dims of
 * the piece, `dimOf` says which; and what comes before them all.
 */
function turnedTiles(
  { headDim }: AttendShape,
  { format, words, width }: BytesSide,
): { readonly before: string[]; readonly stores: string[] } {
  const raw = (u: number) => (i: number) => wordOf(`v${u}`, width, i);
  const { bits } = format;
  // Turned as they are stored where that can be, so that a word of several codes for each byte is turned once.
  const direct = format.kind === 'affine' && [2, 4, 8].includes(bits);
  const before: string[] = [];
  if (direct)
    for (const w of count(words))
      before.push(turnBytes(`y${w}_`, [raw(0)(w), raw(1)(w), raw(2)(w), raw(3)(w)]));
  else {
    // Two positions at a time, whose bytes take fewer registers once they are paired.
    for (const pair of [0, 1]) {
      const [x, y] = [0, 1].map((i) =>
        bytesText(format, headDim, PIECE, `x${2 * pair + i}`, raw(2 * pair + i)),
      ) as [ReturnType<typeof bytesText>, ReturnType<typeof bytesText>];
      before.push(x.text, y.text);
      x.words.forEach(({ name }, w) => {
        before.push(pairBytes(`y${w}_${'tu'[pair]}`, name, y.words[w]!.name));
      });
    }
    for (const w of count(PIECE / 4)) before.push(joinBytes(`y${w}_`));
  }
  const store = (i: number, value: string): string =>
    `    area[into + ${((i % 4) + Math.floor(i / 4) * 8) * STRIDE}u][component] = ${value};`;
  const mask = `0x${((2 ** bits - 1) * 0x01010101).toString(16)}u`;
  const stores = count(TILES).map((tile) => {
    const values: string[] = [];
    if (direct) {
      const codes = 32 / bits;
      for (let w = Math.floor((tile * STORES) / codes); w * codes < (tile + 1) * STORES; w++) {
        for (const c of count(codes)) {
          const byte = `y${w}_${Math.floor((c * bits) / 8)}`;
          if (Math.floor((w * codes + c) / STORES) === tile)
            values.push(bits === 8 ? `${byte} ^ 0x80808080u` : `(${byte} >> ${(c * bits) % 8}u) & ${mask}`);
        }
      }
    } else for (const w of [2 * tile, 2 * tile + 1]) values.push(...count(4).map((b) => `y${w}_${b}`));
    return values.map((value, i) => store(i, value)).join('\n');
  });
  return { before, stores };
}

/** Expression of the dim of a piece that row `i` of its eight has in a tile. */
function dimOf({ format }: BytesSide, tile: number, i: string): string {
  return format.kind === 'turboquant'
    ? `${i} % 4u * 8u + ${i} / 4u + ${2 * tile}u`
    : `${i} + ${tile * STORES}u`;
}

/** The sums through `area` and out: a lane has a column of a tile, and half of the heads. */
function endText({ heads, kvHeads, headDim }: AttendShape, side: BytesSide): string[] {
  const group = heads / kvHeads;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  emit(`  let column = lane % 16u;
  let own_row = column % 4u + column / 8u * 4u;
  let first_head = lane / 16u * 2u;
  let pairs0 = bitcast<vec4<f32>>(scratchScores[unit_at + ${PAIRS_AT}u + first_head]);
  let pairs1 = bitcast<vec4<f32>>(scratchScores[unit_at + ${PAIRS_AT + 1}u + first_head]);
  let pair0 = ${side.groups === 1 ? 'pairs0.xy' : 'select(pairs0.xy, pairs0.zw, half == 1u)'};
  let pair1 = ${side.groups === 1 ? 'pairs1.xy' : 'select(pairs1.xy, pairs1.zw, half == 1u)'};
  let sums_at = (item_at * ${heads}u + kv * ${group}u + first_head) * ${headDim}u + half * ${VALUE_DIMS}u + column / 4u % 2u * ${PIECE}u;`);
  for (const tile of count(TILES)) {
    emit(`  workgroupBarrier();
  subgroupMatrixStore<row_major>(&area, 0u, o${tile}, ${STRIDE}u);
  workgroupBarrier();`);
    for (const h of [0, 1]) {
      const sum = (plane: number): string =>
        `f32(bitcast<i32>(area[(first_head + ${plane * HEADS + h}u) * ${STRIDE}u + column / 4u][column % 4u]))`;
      const write = `scratchSums[sums_at + ${h * headDim}u + ${dimOf(side, tile, 'own_row')}] = fma(${sum(0)}, 256.0, ${sum(1)}) * pair${h}.x + pair${h}.y;`;
      emit(group === HEADS ? `  ${write}` : `  if (first_head + ${h}u < ${group}u) { ${write} }`);
    }
  }
  return lines;
}
