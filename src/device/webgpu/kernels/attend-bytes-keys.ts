/** Attention on matrices of bytes: queries as integers in matrices, and the scores of every position. */

import { f32Literal } from '../kernel.js';
import type { AttendShape } from './attend.js';
import { OWN_SUMS, ownEnds, ownPositions } from './attend-bytes-own.js';
import {
  AT_ONCE,
  type BytesSide,
  entryText,
  HEADS,
  KEY_STRIDE,
  LANES,
  MOST,
  ofPosition,
  PIECE,
  PIECE_STRIDE,
  PIECES,
  QUERY_STRIDE,
  ROUNDED_BITS,
  ROUNDING,
  ROWS,
  SUM_STRIDE,
  SUMS_AT,
  scalesLate,
  startOf,
  TURN,
  type Turn,
} from './attend-bytes-plan.js';
import { bytesText } from './attend-planes.js';
import { count, LOWEST, wordOf } from './attend-words.js';
import { codesInRuns } from './kv-layout.js';
import { barrierLoop } from './rolled.js';

/** Words of a piece that are staged at once: matrices have half of the dims. */
const STAGED = 4;
const HALVES = 2;
/** Matrices of half of the dims. */
const HALF_STEPS = 2;
/** Blocks of positions of a turn, and loads of a block. */
const BLOCKS = TURN / ROWS;
const LOADS = ROWS / AT_ONCE;
const SCALE = Math.LOG2E;
/** The least norm above zero that an f16 holds. */
const LEAST_NORM = f32Literal(2 ** -24);
/** Scores of one less are zero by any other measure. */
const LEAST_END = '1.0e-20';

/**
 * Statements that make, of four numbers of at most MOST and ROUNDING each, `NAME0` … `NAME3` as bits, the words `NAMEhigh` and
 * `NAMElow` of their upper and lower bytes.
 */
function planesText(name: string): string {
  return `let ${name}e = (${name}0 & 0xffffu) | (${name}2 << 16u);
let ${name}o = (${name}1 & 0xffffu) | (${name}3 << 16u);
let ${name}low = ((${name}e & 0x00ff00ffu) | ((${name}o << 8u) & 0xff00ff00u)) ^ 0x80808080u;
let ${name}high = ((${name}e >> 8u) & 0x00ff00ffu) | (${name}o & 0xff00ff00u);`;
}

/** Lanes of a head, when queries become integers: one for every half of a piece. */
const HEAD_LANES = LANES / HEADS;

/** Statements that load a lane's part of the queries: the dims of one head that make a vector of staged words. */
export function queryLoads({ heads, kvHeads, headDim }: AttendShape, { format }: BytesSide): string[] {
  const group = heads / kvHeads;
  const { vectors, half } = queryWords(format, headDim);
  return [
    `  let own_head = lane / ${HEAD_LANES}u;
  let q_at = ((item.x * ${heads}u + kv * ${group}u + ${group === HEADS ? 'own_head' : `min(own_head, ${group - 1}u)`}) * ${headDim}u + lane % ${PIECES}u * ${PIECE}u) / 4u + lane / ${PIECES}u % ${HALVES}u * ${half}u;`,
    ...vectors.map((at, i) => `  let q${i} = q[q_at + ${at}u];`),
  ];
}

/**
 * Where the dims of a vector of staged words stand in a piece, in vectors of four dims: those of the first half, how far the
 * second is behind it, and the places of a word's four dims.
 */
function queryWords(
  format: BytesSide['format'],
  headDim: number,
): {
  readonly vectors: readonly number[];
  readonly half: number;
  readonly place: (word: number, element: number) => string;
} {
  const { words } = bytesText(format, headDim, PIECE, 'x', () => '0u');
  const dims = words.slice(0, STAGED).map((w) => w.dims);
  const vectors = [...new Set(dims.flat().map((d) => d >> 2))].sort((a, b) => a - b);
  return {
    vectors,
    half: (words[STAGED]!.dims[0] - words[0]!.dims[0]) / 4,
    place: (word, element) => {
      const d = dims[word]![element]!;
      return `n${vectors.indexOf(d >> 2)}.${'xyzw'[d & 3]}`;
    },
  };
}

/**
 * Leaves matrices `right0` …, and for a lane's two heads, as vec2<f32>, `end`, what an integer score is multiplied with, and
 * `wholeG`, the sum of their integer queries of affine group G.
 */
export function byteQueries(shape: AttendShape, keys: BytesSide, values: BytesSide): string[] {
  const { format, groups, unit, ownKey } = keys;
  const group = shape.heads / shape.kvHeads;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const { vectors, place } = queryWords(format, shape.headDim);
  const parts = vectors.map((_, i) => `q${i}`);
  const most = parts.map((q) => `abs(${q})`).reduce((a, b) => `max(${a}, ${b})`);
  emit(`  let mosts = ${most};
  var most = max(max(mosts.x, mosts.y), max(mosts.z, mosts.w));`);
  for (const bit of [1, 2, 4]) emit(`  most = max(most, subgroupShuffleXor(most, ${bit}u));`);
  const here = group === HEADS ? '' : ` && own_head < ${group}u`;
  emit(`  let to_integers = select(0.0, ${MOST}.0 / most, most > 1.0e-30${here});`);
  parts.forEach((q, i) => {
    emit(`  let n${i} = bitcast<vec4<u32>>(${q} * to_integers + ${ROUNDING});`);
  });
  emit(`  let all_n = ${parts.map((_, i) => `n${i}`).join(' + ')};
  var part = bitcast<i32>(all_n.x + all_n.y + all_n.z + all_n.w - ${(16 * (ROUNDED_BITS + 128)) >>> 0}u);`);
  for (const bit of groups === 1 ? [1, 2, 4] : [1, 4]) emit(`  part += subgroupShuffleXor(part, ${bit}u);`);
  const scaled = `most * ${f32Literal((shape.scale * unit * (shape.softcap === null ? SCALE : 1)) / MOST)}`;
  // What is not seen is to stay far below all scores, times this.
  const least = scalesLate(shape) ? `max(${scaled}, ${LEAST_END})` : scaled;
  // Integers of what is infinite are none: the row is to be NaN, and is told so by bits, whatever a driver takes NaN for.
  emit(`  let beyond = (bitcast<u32>(most) & 0x7f800000u) == 0x7f800000u;
  let most_end = bitcast<f32>(select(bitcast<u32>(${least}), 0x7fc00000u, beyond));`);
  if (ownPositions(keys, values)) emit(ownEnds(HEAD_LANES));
  else ends();
  // Column (head, plane), all dims.
  for (const w of count(STAGED)) {
    count(4).forEach((e) => {
      emit(`  let n${w}_${e} = ${place(w, e)};`);
    });
    emit(planesText(`n${w}_`));
  }
  // As staged keys have them: pieces side by side, or their halves.
  const at = ownKey
    ? `lane % ${PIECES}u * ${HALVES}u + lane / ${PIECES}u % ${HALVES}u`
    : `lane % ${HEAD_LANES}u`;
  for (const [p, plane] of ['high', 'low'].entries())
    emit(
      `  area[own_head * ${2 * QUERY_STRIDE}u + ${at} + ${p * QUERY_STRIDE}u] = vec4<u32>(${count(STAGED)
        .map((w) => `n${w}_${plane}`)
        .join(', ')});`,
    );
  emit('  workgroupBarrier();');
  for (const k of count(HALVES * HALF_STEPS))
    emit(`  let right${k} = subgroupMatrixLoad<Right, col_major>(&area, ${k * 2}u, ${QUERY_STRIDE}u);`);
  return lines;

  function ends(): void {
    // Lanes of the first of a lane's two heads, and of an affine group of it.
    emit(`  let first_lane = lane % 2u * ${2 * HEAD_LANES}u;
  let end = vec2<f32>(subgroupShuffle(most_end, first_lane), subgroupShuffle(most_end, first_lane + ${HEAD_LANES}u));`);
    for (const g of count(groups)) {
      const from = (head: number): string =>
        `f32(subgroupShuffle(part, first_lane + ${head * HEAD_LANES + g * (PIECES / 2)}u))`;
      emit(`  let whole${g} = vec2<f32>(${from(0)}, ${from(1)});`);
    }
  }
}

/** Whether blocks of a turn take turns in the same registers: keys of more than 4 words a piece would take too many. */
const sharesRegisters = ({ words }: BytesSide): boolean => words > 4;

/** Statement that loads all of a lane's own key, that of position `lane` of a turn. */
function ownKeyLoads(keys: BytesSide, at: Turn): string {
  const { loads, stride } = keys;
  return [
    `    { let t = ${startOf(at)} + lane;
      let a = ${keys.vector('t', at, true)} * ${stride}u;`,
    ...count(loads).map((i) => `      k_${i} = keys[a + ${i}u];`),
    '    }',
  ].join('\n');
}
const register = (keys: BytesSide, b: number): string => `k${sharesRegisters(keys) ? 0 : b}`;

/** Lanes that share a key, and keys of a block that a lane has. */
const sharers = ({ paired }: BytesSide): number => (paired ? PIECES / 2 : PIECES);
const keysOf = ({ paired }: BytesSide): number => (paired ? 1 : LOADS);

/** Word i of a lane's piece `u` of block `b`, of one key or of two. */
function keyWord(keys: BytesSide, b: number, u: number, i: number): string {
  const { paired, words, width } = keys;
  return paired
    ? wordOf(`${register(keys, b)}_0`, width, u * words + i)
    : wordOf(`${register(keys, b)}_${u}`, width, i);
}

/** Statements that load keys of block `b` of a turn; of all loads of a key, or of one. */
function keyLoads(keys: BytesSide, b: number, at: Turn, only?: number): string {
  const { loads, stride } = keys;
  const index = `${keys.vector('t', at)} * ${stride}u + lane % ${sharers(keys)}u * ${loads}u`;
  const lines = [
    `    { let t = ${startOf(at)} + key + ${b * ROWS}u;
      let a = ${index};`,
  ];
  for (const u of count(keysOf(keys)))
    for (const i of only === undefined ? count(loads) : [only])
      lines.push(`      ${register(keys, b)}_${u}_${i} = keys[a + ${u * AT_ONCE * stride + i}u];`);
  return [...lines, '    }'].join('\n');
}

/** Variables of what goes with keys and with values, less the block's number. */
const metaNames = (keys: BytesSide, values: BytesSide) =>
  [
    [keys, 'km'],
    [values, 'vm'],
  ] as const;

/** Statements that fetch what goes with keys, or values, of a lane's position of block `b`; or once of a turn, of position `lane`. */
function metaLoads(side: BytesSide, name: string, b: number, at: Turn): string {
  if (!side.handedOn)
    return `    { let mine = ${startOf(at)} + lane / 2u + ${b * ROWS}u; ${side.loadMeta(`${name}${b}`, 'mine', at)} }`;
  return b > 0 ? '' : `    { let mine = ${startOf(at)} + lane; ${side.loadMeta(`${name}0`, 'mine', at)} }`;
}

/** Declares what a turn of keys needs, and loads the first. */
export function firstKeys(shape: AttendShape, keys: BytesSide, values: BytesSide): string[] {
  // Of eight lanes, four have a row and four the fourth behind it, which is on other banks; or two each of rows 0, 1, 4 and 5.
  const key = keys.paired
    ? '((lane / 2u) & 9u) + lane / 4u % 2u * 4u + lane / 8u % 2u * 2u'
    : `lane / ${2 * PIECES}u + lane / ${PIECES}u % 2u * ${AT_ONCE / 2}u`;
  const lines = [`  ${entryText(shape, 'zero')}`];
  const shared = sharesRegisters(keys);
  if (!keys.ownKey) lines.push(`  let key = ${key};`);
  else {
    for (const i of count(keys.loads)) lines.push(`  var k_${i}: ${keys.type};`);
    lines.push(ownKeyLoads(keys, 'zero'));
  }
  for (const b of count(BLOCKS)) {
    if (!keys.ownKey && (b === 0 || !shared))
      for (const u of count(keysOf(keys)))
        for (const i of count(keys.loads)) lines.push(`  var k${b}_${u}_${i}: ${keys.type};`);
    for (const [side, name] of metaNames(keys, values))
      if (b === 0 || !side.handedOn) lines.push(`  var ${name}${b}: ${side.metaType};`);
    if (!keys.ownKey && (b === 0 || !shared)) lines.push(keyLoads(keys, b, 'zero'));
    for (const [side, name] of metaNames(keys, values)) lines.push(metaLoads(side, name, b, 'zero'));
  }
  return lines;
}

/**
 * A lane ends up with the scores, times log₂ e (and not yet `end`, where `scalesLate`), of its two heads at its position of every
 * block: in `scratchScores`. And with the greatest of its own in `top`, in `peakG` the logarithm of the greatest weights, scaled as
 * the values of affine group G are; of TurboQuant's values these alone, in `top`.
 */
export function byteScores(shape: AttendShape, keys: BytesSide, values: BytesSide): string[] {
  const { headDim, softcap } = shape;
  const { format, groups } = keys;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const planar = codesInRuns(format);
  const late = scalesLate(shape);
  const final = late ? 'score * end' : 'score';
  const apart = keys.paired ? 1 : AT_ONCE * KEY_STRIDE;
  const apartSums = groups === 1 && !keys.ownKey;
  const sumsAt = (b: number, g: number): number =>
    apartSums ? SUMS_AT : ((keys.ownKey ? b * groups : 0) + g) * ROWS * SUM_STRIDE;
  if (keys.ownKey) emit(`  let to = lane * ${PIECE_STRIDE}u;`);
  else emit(`  let to = key * ${KEY_STRIDE}u + lane % ${sharers(keys)}u${keys.paired ? ' * 2u' : ''};`);
  // Of turns, the last whose position of the lane's row in the first block is seen, and the first.
  const alone = ownPositions(keys, values);
  const row = alone ? 'lane' : 'lane / 2u';
  emit(`  let own_last = i32(last - first) - i32(${row});`);
  if (shape.window !== null) emit(`  let own_first = i32(low - first) - i32(${row});`);
  emit(`  let end_turn = reach | ${TURN - 1}u;
  var top = ${alone ? 'vec4' : 'vec2'}<f32>(${LOWEST});`);
  if (!values.handedOn) for (const g of count(values.groups)) emit(`  var peak${g} = vec2<f32>(${LOWEST});`);
  const loop = barrierLoop('base', TURN, 'end_turn');
  emit(`  ${loop.head}
    ${loop.exit}`);
  // The last turn fetches its own again: a branch around loads costs a move for every register that is not loaded.
  emit(`    let next = min(base + ${TURN}u, end_turn - ${TURN - 1}u);
    ${entryText(shape, 'next')}`);
  if (sharesRegisters(keys)) emit(`    ${entryText(shape, 'base')}`);
  if (keys.handedOn) emit(`    let key_norm = ${keys.meta('km0', 0)}.x;`);
  if (values.handedOn) emit(`    let value_log = log2(max(${values.meta('vm0', 0)}.x, ${LEAST_NORM}));`);
  if (keys.ownKey) turnSums();
  if (alone) ownScore();
  else
    for (const b of count(BLOCKS)) {
      if (!keys.ownKey) blockSums(b);
      score(b);
    }
  emit(`    scratchScores[unit_at + base + lane] = bitcast<vec4<u32>>(${alone ? 'score' : 'vec4<f32>(sc0, sc1)'});
  ${loop.tail}`);
  return lines;

  /** Sums of a turn to memory, of keys that lanes have to themselves, piece by piece. */
  function turnSums(): void {
    for (const b of count(BLOCKS)) for (const g of count(groups)) emit(`    var s${b}_${g} = Sum();`);
    for (const c of count(PIECES)) {
      const { text, words } = bytesText(
        format,
        headDim,
        PIECE,
        `x${c}`,
        (i) => wordOf('k', keys.width, c * keys.words + i),
        '0u',
        keys.mask,
      );
      emit(text);
      if (c === PIECES - 1) emit(ownKeyLoads(keys, 'next'));
      // In the first piece the loop's head is between the reads of what was there before and these stores.
      if (c > 0) emit('    workgroupBarrier();');
      for (const half of count(HALVES))
        emit(
          `    area[to + ${half}u] = vec4<u32>(${words
            .slice(half * STAGED, (half + 1) * STAGED)
            .map((w) => w.name)
            .join(', ')});`,
        );
      emit('    workgroupBarrier();');
      for (const b of count(BLOCKS)) {
        const s = `s${b}_${Math.floor((c * groups) / PIECES)}`;
        emit(
          `    ${s} = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&area, ${b * ROWS * PIECE_STRIDE}u, ${PIECE_STRIDE}u), right${c}, ${s});`,
        );
      }
    }
    emit('    workgroupBarrier();');
    for (const b of count(BLOCKS))
      for (const g of count(groups))
        emit(`    subgroupMatrixStore<row_major>(&area, ${sumsAt(b, g)}u, s${b}_${g}, ${SUM_STRIDE}u);`);
    emit('    workgroupBarrier();');
  }

  /** Sums of a block to memory, of keys whose pieces lanes share. */
  function blockSums(b: number): void {
    /** Loads what these registers have next. */
    const refill = (only?: number): void => {
      if (!sharesRegisters(keys)) emit(keyLoads(keys, b, 'next', only));
      else if (b < BLOCKS - 1) emit(keyLoads(keys, b + 1, 'base', only));
      else emit(keyLoads(keys, 0, 'next', only));
    };
    const made = count(LOADS).map((u) =>
      bytesText(format, headDim, PIECE, `x${b}_${u}`, (i) => keyWord(keys, b, u, i), '0u', keys.mask),
    );
    for (const { text } of made) emit(text);
    // The next keys are fetched when these take no more registers: planes are unpacked at once, other codes as they are stored.
    if (planar) refill();
    for (const g of count(groups)) emit(`    var s${b}_${g} = Sum();`);
    for (const half of count(HALVES)) {
      // Where sums have a place of their own, the barrier behind their stores ends the reads of what was staged before; in the
      // first turn the loop's head does.
      if (half > 0 || !apartSums) emit('    workgroupBarrier();');
      for (const u of count(LOADS)) {
        const words = made[u]!.words.slice(half * STAGED, (half + 1) * STAGED).map((w) => w.name);
        emit(`    area[to + ${u * apart}u] = vec4<u32>(${words.join(', ')});`);
      }
      emit('    workgroupBarrier();');
      if (format.kind === 'affine' && format.bits === 8) refill(half);
      else if (half === 1 && !planar) refill();
      for (const k of count(HALF_STEPS)) {
        // A matrix has half of the words of two pieces, which an affine group has.
        const s = `s${b}_${groups === 1 ? 0 : k}`;
        emit(
          `    ${s} = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&area, ${k * 2}u, ${KEY_STRIDE}u), right${half * HALF_STEPS + k}, ${s});`,
        );
      }
    }
    if (!apartSums) emit('    workgroupBarrier();');
    for (const g of count(groups))
      emit(`    subgroupMatrixStore<row_major>(&area, ${sumsAt(b, g)}u, s${b}_${g}, ${SUM_STRIDE}u);`);
    emit('    workgroupBarrier();');
  }

  function score(b: number): void {
    emit(`    var sc${b}: vec2<f32>;
    {`);
    for (const g of count(groups)) {
      emit(`      let sum${g} = bitcast<vec4<i32>>(area[lane + ${sumsAt(b, g)}u]);
      let all${g} = vec2<f32>(sum${g}.xz * 256 + sum${g}.yw);
      let a${g} = ${keys.handedOn ? `vec2<f32>(${ofPosition('key_norm', b)}, 0.0)` : keys.meta(`km${b}`, g)};`);
      if (format.kind === 'affine')
        emit(
          `      let bias${g} = a${g}.y${keys.centre === 0 ? '' : ` + a${g}.x * ${f32Literal(keys.centre)}`};`,
        );
    }
    for (const g of count(values.groups))
      emit(
        `      let scale_log${g} = ${values.handedOn ? ofPosition('value_log', b) : `log2(abs(${values.meta(`vm${b}`, g)}.x))`};`,
      );
    for (const [side, name] of metaNames(keys, values)) emit(metaLoads(side, name, b, 'next'));
    const sum = count(groups)
      .map((g) => `a${g}.x * all${g}${format.kind === 'affine' ? ` + bias${g} * whole${g}` : ''}`)
      .join(' + ');
    seenScore(sum, 'vec2<f32>', b === 0 ? 'i32(base)' : `i32(base + ${b * ROWS}u)`);
    emit(`      top = max(top, ${values.handedOn ? `${final} + scale_log0` : 'score'});`);
    // What goes with a position that is not seen is of a token that was there before, or zero: never NaN.
    if (!values.handedOn)
      for (const g of count(values.groups)) emit(`      peak${g} = max(peak${g}, ${final} + scale_log${g});`);
    emit(`      sc${b} = score;\n    }`);
  }

  /** The scores of a lane's own position. */
  function ownScore(): void {
    emit(OWN_SUMS);
    for (const [side, name] of metaNames(keys, values)) emit(metaLoads(side, name, 0, 'next'));
    seenScore('key_norm * all', 'vec4<f32>', 'i32(base)');
    emit(`      top = max(top, ${final} + value_log);`);
  }

  /** Declares `score`, of heads as `type` has them, of an integer score: at `turn`, where a lane's position is if it is seen. */
  function seenScore(sum: string, type: string, turn: string): void {
    if (softcap === null) emit(`      var score = ${late ? sum : `(${sum}) * end`};`);
    else
      emit(`      var score = (${sum}) * end;
      { let e = exp(clamp(2.0 * score / ${f32Literal(softcap)}, ${type}(-80.0), ${type}(80.0))); score = ${f32Literal(softcap * SCALE)} * (1.0 - 2.0 / (e + 1.0)); }`);
    emit(`      let seen = ${turn} <= own_last${shape.window === null ? '' : ` && ${turn} >= own_first`};
      score = select(${type}(${LOWEST}), score, seen);`);
  }
}
