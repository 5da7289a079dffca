/** Attention on matrices of bytes: values transposed, and the sums of them by weights, to `scratchSums`. */

import type { AttendShape } from './attend.js';
import {
  AT_ONCE,
  type BytesSide,
  entryText,
  HEADS,
  MOST,
  PIECE,
  PIECES,
  ROWS,
  SUM_STRIDE,
  startOf,
  TILES,
  TURN,
  type Turn,
  VALUE_STRIDE,
} from './attend-bytes-plan.js';
import {
  firstTransposed,
  TRANSPOSED_PLACE,
  transposedEnd,
  transposedLoads,
  transposedRounds,
} from './attend-bytes-transposed.js';
import { byteWeights, lastWeights, scoreLoads } from './attend-bytes-weights.js';
import { bytesText, joinBytes, pairBytes, turnBytes } from './attend-planes.js';
import { count, wordOf } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { codesInRuns, hasScales } from './kv-formats/list.js';
import { barrierLoop } from './rolled.js';

/** Dims of a lane's piece that are staged at once. */
const STORES = (TILES * ROWS) / PIECES;
const ROUNDS = PIECE / STORES;

/**
 * Rounds of a turn that come in the next. NVIDIA's compiler puts loads off to the end of a turn, wherever they stand: what the
 * next one begins with would wait for memory. Affine 4 takes more registers with it than there are
 * (docs/lab/2026-11-24-attention-over-quantised-kv.md).
 */
const behind = ({ format }: BytesSide): number => (codesInRuns(format) ? 1 : 0);

/** Registers of a piece: those of all its loads, or of one after the other. */
const kept = (values: BytesSide): number => (directBits(values) ? 1 : values.loads);

/** Whether words are transposed as they are stored, so that a word of several codes for each byte is transposed once. */
const directBits = ({ format }: BytesSide): boolean => hasScales(format) && [2, 4, 8].includes(format.bits);

/** Statements that load a lane's pieces of the four positions of a word, `AT_ONCE` apart: loads `which` of each. */
function valueLoads(
  { blockTokens }: AttendShape,
  values: BytesSide,
  at: Turn,
  which: readonly number[],
): string {
  const { loads, stride } = values;
  const index = (t: string): string => `${values.vector(t, at)} * ${stride}u + piece`;
  const lines = [
    `    { let t = ${startOf(at)} + lane / ${PIECES}u;
      let piece = lane % ${PIECES}u * ${loads}u;
      let a0 = ${index('t')};`,
  ];
  // One address for the positions of a block.
  const same = blockTokens > ROWS;
  if (!same) lines.push(`      let a1 = ${index(`(t + ${ROWS}u)`)};`);
  for (const u of count(4))
    for (const i of which) {
      const far = u >= 2;
      const from = (u % 2) * AT_ONCE + (far && same ? ROWS : 0);
      lines.push(
        `      v${u}_${i % kept(values)} = values[a${far && !same ? 1 : 0} + ${from * stride + i}u];`,
      );
    }
  return [...lines, '    }'].join('\n');
}

/** Declares what a turn of values needs, and loads the first. */
export function firstValues(shape: AttendShape, values: BytesSide): string[] {
  if (values.transposed) return firstTransposed(values);
  const own = count(kept(values));
  const lines = count(4).flatMap((u) => own.map((i) => `  var v${u}_${i}: ${values.type};`));
  return [...lines, valueLoads(shape, values, 'zero', own)];
}

export function byteSums(shape: AttendShape, keys: BytesSide, values: BytesSide): string[] {
  const { groups, loads } = values;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  for (const i of count(ROUNDS * TILES)) emit(`  var o${i} = Sum();`);
  if (values.transposed) emit(TRANSPOSED_PLACE);
  // Rows of the upper tile change places by fours, which keeps them off the banks of the lower.
  else
    emit(`  let upper = lane / 2u % 2u;
  let row = upper * ${ROWS}u + lane % 2u * 2u;
  let column = lane / ${4 * PIECES}u;
  let even = (row + upper * 4u) * ${VALUE_STRIDE}u + column;
  let odd_rows = (row + 4u - upper * 4u) * ${VALUE_STRIDE}u + column;
  let component = lane / ${PIECES}u % 4u;`);
  const rounds = values.transposed ? wholeRounds(values) : bytesRounds(shape, values);
  const first = ROUNDS - behind(values);
  const carried = [...new Set(rounds.slice(first).flatMap(({ reads }) => reads))];
  for (const name of carried) emit(`  var kept_${name}: u32;`);
  const loop = barrierLoop('base', TURN, 'end_turn');
  emit(`  ${loop.head}`);
  if (first < ROUNDS) {
    emit('    {');
    for (const name of carried) emit(`    let ${name} = kept_${name};`);
    for (let r = first; r < ROUNDS; r++) round(r);
    emit('    }');
  }
  emit(`    ${loop.exit}
    let next = min(base + ${TURN}u, end_turn - ${TURN - 1}u);
    ${entryText(shape, 'next')}`);
  if (kept(values) < loads) emit(`    ${entryText(shape, 'base')}`);
  lines.push(...byteWeights(shape, keys, values));
  for (let r = 0; r < first; r++) round(r);
  for (const name of carried) emit(`    kept_${name} = ${name};`);
  emit(`  ${loop.tail}`);
  lines.push(...lastWeights(shape, keys, values), ...endText(shape, values));
  return lines;

  function round(r: number): void {
    const { before, stores, next } = rounds[r]!;
    for (const text of before) emit(text);
    emit('    workgroupBarrier();');
    for (const text of stores) emit(text);
    emit('    workgroupBarrier();');
    // The next ones are fetched when these have left registers for them.
    if (next !== null) emit(next);
    if (r === first - 1) emit(scoreLoads(values, 'next'));
    for (const t of count(TILES)) {
      const o = `o${r * TILES + t}`;
      emit(
        `    ${o} = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&area, ${t * ROWS * VALUE_STRIDE}u, ${VALUE_STRIDE}u), weights${groups === 1 ? 0 : t}, ${o});`,
      );
    }
  }
}

/** Dims of a tile's row, of as many rounds, that lie side by side: of the rounds for which words are there together. */
export const dimsTogether = (values: BytesSide): 2 | 4 => (kept(values) < values.loads ? 2 : 4);

/**
 * The dim of a piece that is the i-th stored in a round. Rounds have dims side by side, so that a lane's sums are.
 */
function dimOf(values: BytesSide, round: number, i: number): number {
  const together = dimsTogether(values);
  return Math.floor(round / together) * STORES * together + i * together + (round % together);
}

interface Round {
  /** Words of earlier rounds that it reads. */
  readonly reads: readonly string[];
  /** Statements that come before the stores, and the stores. */
  readonly before: readonly string[];
  readonly stores: readonly string[];
  /** Statements that load what takes the place of words that are in registers of their own by then; null without. */
  readonly next: string | null;
}

const wholeRounds = (values: BytesSide): Round[] =>
  transposedRounds(values).map(({ free, ...round }) => ({
    ...round,
    next: free ? transposedLoads(values, 'next') : null,
  }));

function bytesRounds(shape: AttendShape, values: BytesSide): Round[] {
  return piecedRounds(shape, values).map(({ staged, free, ...round }) => {
    const later = free.map((i) => i + kept(values));
    const wraps = free.length > 0 && later[0]! >= values.loads;
    const which = wraps ? free.map((i) => i % kept(values)) : later;
    return {
      ...round,
      stores: staged.map((value, i) => {
        const at = Math.floor(i / 2);
        const rows = (i % 2) + (at - (at % 2)) * 4;
        return `    area[${at % 2 === 0 ? 'even' : 'odd_rows'} + ${rows * VALUE_STRIDE}u][component] = ${value};`;
      }),
      next: free.length === 0 ? null : valueLoads(shape, values, wraps ? 'next' : 'base', which),
    };
  });
}

interface PiecedRound {
  readonly reads: readonly string[];
  readonly before: readonly string[];
  /** Words of four positions of the dims of a piece. */
  readonly staged: readonly string[];
  /** Loads of a piece whose words are in registers of their own by then. */
  readonly free: readonly number[];
}

function piecedRounds({ headDim }: AttendShape, values: BytesSide): PiecedRound[] {
  const { format, words, loads, width, mask: masks } = values;
  const raw = (u: number) => (i: number) => wordOf(`v${u}`, width, i);
  const { bits } = format;
  if (directBits(values)) {
    const codes = 32 / bits;
    const mask = `0x${((2 ** bits - 1) * 0x01010101).toString(16)}u`;
    /** The round in which a load's words are transposed, all at once. */
    const byLoad = count(loads).map((i) => Math.floor((i * width * codes) / STORES));
    return count(ROUNDS).map((r) => ({
      reads: [],
      before: count(words)
        .filter((w) => byLoad[Math.floor(w / width)] === r)
        .map((w) => {
          const [a, b, c, d] = count(4).map((u) => raw(u)(w % width)) as [string, string, string, string];
          return turnBytes(`y${w}_`, [a, b, c, d], masks);
        }),
      staged: count(STORES).map((i) => {
        const d = dimOf(values, r, i);
        const c = d % codes;
        const byte = `y${Math.floor(d / codes)}_${Math.floor((c * bits) / 8)}`;
        return bits === 8 ? `${byte} ^ 0x80808080u` : `(${byte} >> ${(c * bits) % 8}u) & ${mask}`;
      }),
      free: count(loads).filter((i) => byLoad[i] === r),
    }));
  }
  if (codesInRuns(format)) {
    // Planes are transposed as they are stored: a byte of each has the bits of every fourth dim, of which a round makes bytes.
    const transposed = count(bits).map((b) => {
      const [a, c, d, e] = count(4).map((u) => raw(u)(b)) as [string, string, string, string];
      return turnBytes(`y${b}_`, [a, c, d, e], masks);
    });
    return count(ROUNDS).map((r) => {
      const made = bytesText(format, headDim, PIECE, `x${r}`, (b) => `y${b}_${r}`, '0u', masks);
      return {
        reads: count(bits).map((b) => `y${b}_${r}`),
        before: r === 0 ? [...transposed, made.text] : [made.text],
        staged: made.words.map(({ name }) => name),
        free: r === 0 ? count(loads) : [],
      };
    });
  }
  const before: string[] = [];
  const wordOfDim = new Map<number, string>();
  // Two positions at a time, whose bytes take fewer registers once they are paired.
  for (const pair of [0, 1]) {
    const [x, y] = [0, 1].map((i) =>
      bytesText(format, headDim, PIECE, `x${2 * pair + i}`, raw(2 * pair + i), '0u', masks),
    ) as [ReturnType<typeof bytesText>, ReturnType<typeof bytesText>];
    before.push(x.text, y.text);
    x.words.forEach(({ name }, w) => {
      before.push(pairBytes(`y${w}_${'tu'[pair]}`, name, y.words[w]!.name, masks));
    });
    x.words.forEach(({ dims }, w) => {
      for (const [b, d] of dims.entries()) wordOfDim.set(d, `y${w}_${b}`);
    });
  }
  for (const w of count(PIECE / 4)) before.push(joinBytes(`y${w}_`, masks));
  return count(ROUNDS).map((r) => ({
    reads: [],
    before: r === 0 ? before : [],
    staged: count(STORES).map((i) => wordOfDim.get(dimOf(values, r, i))!),
    free: r === 0 ? count(loads) : [],
  }));
}

/** The sums through `area` and out: a lane has a dim of each tile, and two heads. */
function endText(shape: AttendShape, values: BytesSide): string[] {
  if (values.transposed) return transposedEnd(shape, values);
  const { heads, kvHeads, headDim } = shape;
  const { groups, unit } = values;
  const group = heads / kvHeads;
  const together = dimsTogether(values);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  emit(`  let first_head = lane % 2u * 2u;
  let sums_at = (item_at * ${heads}u + kv * ${group}u + first_head) * ${headDim / together}u + lane / 4u % 2u * ${PIECE / together}u;
  let i0 = lane / 2u % 2u + lane / 8u * 2u;
  let i1 = i0 ^ 2u;`);
  for (const g of count(groups))
    emit(
      `  let undo${g} = ${values.handedOn ? f32Literal(unit / MOST) : `${f32Literal(unit)} / integer${g}`};`,
    );
  for (const r of count(ROUNDS)) {
    emit('  workgroupBarrier();');
    for (const t of count(TILES))
      emit(
        `  subgroupMatrixStore<row_major>(&area, ${t * ROWS * SUM_STRIDE}u, o${r * TILES + t}, ${SUM_STRIDE}u);`,
      );
    emit('  workgroupBarrier();');
    for (const t of count(TILES)) {
      const g = groups === 1 ? 0 : t;
      emit(`  let sum${r}_${t} = bitcast<vec4<i32>>(area[lane + ${t * ROWS * SUM_STRIDE}u]);
  let value${r}_${t} = vec2<f32>(sum${r}_${t}.xz * 256 + sum${r}_${t}.yw) * undo${g}${hasScales(values.format) ? ` + offset${g}` : ''};`);
      if (r % together < together - 1) continue;
      const at = ((t * PIECES) / TILES) * PIECE + dimOf(values, r - together + 1, 0);
      for (const h of [0, 1]) {
        const dims = count(together).map((e) => `value${r - together + 1 + e}_${t}.${'xy'[h]}`);
        const write = `scratchSums[sums_at + ${(at + h * headDim) / together}u + i${t}] = vec${together}<f32>(${dims.join(', ')});`;
        emit(group === HEADS ? `  ${write}` : `  if (first_head + ${h}u < ${group}u) { ${write} }`);
      }
    }
  }
  return lines;
}
