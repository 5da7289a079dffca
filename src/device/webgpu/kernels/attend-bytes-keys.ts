/** Attention on matrices of bytes: keys, and the scores of every position. */

import type { AttendShape } from './attend.js';
import { OWN_SUMS, ownPositions } from './attend-bytes-own.js';
import {
  AT_ONCE,
  type BytesSide,
  entryText,
  KEY_STRIDE,
  ofPosition,
  PIECE,
  PIECE_STRIDE,
  PIECES,
  ROWS,
  SUM_STRIDE,
  SUMS_AT,
  scalesLate,
  startOf,
  TURN,
  type Turn,
} from './attend-bytes-plan.js';
import { HALF_STEPS, HALVES, SCALE, STAGED } from './attend-bytes-queries.js';
import { bytesText } from './attend-planes.js';
import { count, LOWEST, wordOf } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { codesInRuns, hasScales } from './kv-formats/list.js';
import { firstSeen } from './kv-head.js';
import { barrierLoop } from './rolled.js';

/** Blocks of positions of a turn, and loads of a block. */
const BLOCKS = TURN / ROWS;
const LOADS = ROWS / AT_ONCE;
/** The least norm above zero that an f16 holds. */
const LEAST_NORM = f32Literal(2 ** -24);

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
 * block, or of four at its own (attend-bytes-own.ts): in `scratchScores`. And with the greatest of them in `top`, and in `peakG` the
 * logarithm of the greatest weights scaled as the values of affine group G are. TurboQuant's values have no `peakG`: `top` is that of
 * the greatest weights, norm and all.
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
  if (firstSeen(shape, 'last') !== null) emit(`  let own_first = i32(low - first) - i32(${row});`);
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
      if (hasScales(format) && format.bits === 8) refill(half);
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
      if (hasScales(format))
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
      .map((g) => `a${g}.x * all${g}${hasScales(format) ? ` + bias${g} * whole${g}` : ''}`)
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
    emit(`      let seen = ${turn} <= own_last${firstSeen(shape, 'last') === null ? '' : ` && ${turn} >= own_first`};
      score = select(${type}(${LOWEST}), score, seen);`);
  }
}
