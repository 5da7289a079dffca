/** Attention on matrices of bytes: queries as integers in matrices, and the scores of every position. */

import { f32Literal } from '../kernel.js';
import { ATTENTION_SPLIT } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import {
  type BytesSide,
  HEAD_DIM,
  HEADS,
  KEY_TURN,
  KEYS,
  LANES,
  MOST,
  PIECE,
  ROUNDED_BITS,
  ROUNDING,
  STRIDE,
  SUM_STRIDE,
  VALUE_TURN,
} from './attend-bytes-plan.js';
import { bytesText } from './attend-planes.js';
import { count, LOWEST, wordOf } from './attend-words.js';
import { planarCodes } from './kv-layout.js';
import { memoryLoop } from './rolled.js';

/** Lanes that share a key, and keys that a load of all lanes has. */
const KEY_LANES = HEAD_DIM / PIECE;
const AT_ONCE = LANES / KEY_LANES;
/** Words of a piece that are staged at once: matrices have half of the dims. */
const STAGED = 4;
const SCALE = Math.LOG2E;

/**
 * Statements that make, of four numbers of at most MOST and ROUNDING each, `NAME0` … `NAME3` as bits, the words `NAMEhigh` and
 * `NAMElow` of their upper and lower bytes.
 */
export function planesText(name: string): string {
  return `let ${name}e = (${name}0 & 0xffffu) | (${name}2 << 16u);
let ${name}o = (${name}1 & 0xffffu) | (${name}3 << 16u);
let ${name}low = ((${name}e & 0x00ff00ffu) | ((${name}o << 8u) & 0xff00ff00u)) ^ 0x80808080u;
let ${name}high = ((${name}e >> 8u) & 0x00ff00ffu) | (${name}o & 0xff00ff00u);`;
}

/** Statement that joins numbers over all lanes, or over those whose numbers differ in `bits` alone. */
export function overLanes(
  name: string,
  how: 'sum' | 'max',
  bits: readonly number[] = [16, 8, 4, 2, 1],
): string {
  return bits
    .map((bit) =>
      how === 'sum'
        ? `  ${name} += subgroupShuffleXor(${name}, ${bit}u);`
        : `  ${name} = max(${name}, subgroupShuffleXor(${name}, ${bit}u));`,
    )
    .join('\n');
}

/** Of the vector of a lane's own head. */
const ofHead = (v: string): string =>
  `select(select(${v}.x, ${v}.y, head == 1u), select(${v}.z, ${v}.w, head == 3u), head >= 2u)`;

/**
 * Leaves matrices `left0` …, a lane's `head`, `end`, what an integer score of it is multiplied with, and `wholeG`, the sum of
 * its integer queries of affine group G. A lane makes a word of four dims of each head, in the order in which keys are
 * staged.
 */
export function byteQueries(shape: AttendShape, { format, groups, unit }: BytesSide): string[] {
  const { heads, kvHeads, headDim } = shape;
  const group = heads / kvHeads;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const { words: pattern } = bytesText(format, headDim, PIECE, 'x', () => '0u');
  const run = pattern[0]!.dims[1] - pattern[0]!.dims[0];
  emit(
    `  let head = lane / 8u % 2u * 2u + lane / 16u;
  let word = lane / 16u * ${STAGED}u + lane % ${STAGED}u;
  let d = lane / ${STAGED}u % ${KEY_LANES}u * ${PIECE}u + word / ${run}u * ${4 * run}u + word % ${run}u;
  let q_at = (item.x * ${heads}u + kv * ${group}u) * ${headDim}u + d;`,
  );
  const dim = (h: number, e: number): string => `q[q_at + ${h * headDim + e * run}u]`;
  for (const h of count(group))
    emit(`  let q${h} = vec4<f32>(${count(4)
      .map((e) => dim(h, e))
      .join(', ')});
  let a${h} = max(abs(q${h}.xy), abs(q${h}.zw)); var most${h} = max(a${h}.x, a${h}.y);`);
  for (const h of count(group)) {
    emit(overLanes(`most${h}`, 'max'));
    emit(`  var part${h} = 0;
  var high${h} = 0u; var low${h} = 0u;
  { let n = bitcast<vec4<u32>>(q${h} * select(0.0, ${MOST}.0 / most${h}, most${h} > 1.0e-30) + ${ROUNDING});
    let n0 = n.x; let n1 = n.y; let n2 = n.z; let n3 = n.w;
${planesText('n')}
    high${h} = nhigh; low${h} = nlow;
    part${h} = bitcast<i32>(n.x + n.y + n.z + n.w - ${(4 * (ROUNDED_BITS + 128)) >>> 0}u); }`);
  }
  const own = count(HEADS).map((h) => (h < group ? `most${h}` : '0.0'));
  emit(`  let mosts = vec4<f32>(${own.join(', ')});
  let end = ${ofHead('mosts')} * ${f32Literal((shape.scale * unit) / MOST)};`);
  // Lanes of an affine group differ in all bits but one.
  const apart = groups === 1 ? 0 : LANES / 4;
  for (const h of count(group))
    emit(
      overLanes(
        `part${h}`,
        'sum',
        [16, 8, 4, 2, 1].filter((bit) => bit !== apart),
      ),
    );
  const parts = count(HEADS).map((h) => (h < group ? `part${h}` : '0'));
  emit(`  let parts = vec4<i32>(${parts.join(', ')}); let part_own = ${ofHead('parts')};`);
  if (groups === 1) emit('  let whole0 = f32(part_own);');
  else {
    for (const h of count(group)) emit(`  let part_${h} = subgroupShuffleXor(part${h}, ${apart}u);`);
    const others = count(HEADS).map((h) => (h < group ? `part_${h}` : '0'));
    emit(`  let others = vec4<i32>(${others.join(', ')}); let part_other = ${ofHead('others')};
  let upper = (lane & ${apart}u) != 0u;
  let whole0 = f32(select(part_own, part_other, upper)); let whole1 = f32(select(part_other, part_own, upper));`);
  }
  // Half of the dims at a time: row (group, plane, head), 64 bytes.
  for (const half of [0, 1]) {
    emit('  workgroupBarrier();');
    emit(`  if (lane / 16u == ${half}u) {
    let to = lane % 16u / 4u;`);
    for (const g of count(2))
      for (const p of [0, 1])
        for (const h of count(HEADS)) {
          const word = `${p === 0 ? 'high' : 'low'}${h}`;
          const value =
            g >= groups || h >= group
              ? '0u'
              : groups === 1
                ? word
                : `select(0u, ${word}, d / ${HEAD_DIM / groups}u == ${g}u)`;
          emit(`    area[to + ${((g * 2 + p) * HEADS + h) * STRIDE}u][lane % 4u] = ${value};`);
        }
    emit('  }\n  workgroupBarrier();');
    for (const k of [0, 1])
      emit(`  let left${half * 2 + k} = subgroupMatrixLoad<Left, row_major>(&area, ${k * 2}u, ${STRIDE}u);`);
  }
  return lines;
}

/** Which of the positions `t`, of a type, a row sees. */
export function seenText(shape: AttendShape, t: string, type: string): string {
  const seen = `${t} + ${type}(first) <= ${type}(last)`;
  return shape.window === null ? `(${seen})` : `((${seen}) & (${t} + ${type}(first) >= ${type}(low)))`;
}

/**
 * A lane ends up with the scores, times log₂ e, of its head at two positions of every block of keys, `own` and the next: in
 * `scratchScores`, and the greatest of its own in `top`; in `peakG` the logarithm of the greatest weight, scaled as the
 * values of affine group G are.
 */
export function byteScores(shape: AttendShape, keys: BytesSide, values: BytesSide): string[] {
  const { headDim, softcap } = shape;
  const { format, groups, loads, stride, width } = keys;
  const split = ATTENTION_SPLIT;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const blocks = KEY_TURN / KEYS;
  const planar = planarCodes(format);
  const turns = KEYS / AT_ONCE;
  const load = (b: number, base: string): void => {
    emit(`    { let t = ${base} + lane / ${KEY_LANES}u + ${b * KEYS}u;
      let a = ${keys.vector('t')} * ${stride}u + lane % ${KEY_LANES}u * ${loads}u;`);
    for (const u of count(turns))
      for (const i of count(loads)) emit(`      k${b}_${u}_${i} = keys[a + ${u * AT_ONCE * stride + i}u];`);
    emit('    }');
  };
  emit(`  let own = lane % 8u * 2u;
  let to = lane / ${KEY_LANES}u * ${STRIDE}u + lane % ${KEY_LANES}u;
  let end_turn = reach | ${VALUE_TURN - 1}u;`);
  for (const b of count(blocks))
    for (const u of count(turns)) for (const i of count(loads)) emit(`  var k${b}_${u}_${i}: ${keys.type};`);
  for (const b of count(blocks)) load(b, '0u');
  emit(`  var top = ${LOWEST};`);
  for (const g of count(values.groups)) emit(`  var peak${g} = ${LOWEST};`);
  const loop = memoryLoop('base', 'turn', KEY_TURN, 'end_turn');
  emit(`  ${loop.head}`);
  for (const b of count(blocks)) {
    emit(`    let mine${b} = base + own + ${b * KEYS}u;
    var s${b} = Sum();`);
    const made = count(turns).map((u) =>
      bytesText(format, headDim, PIECE, `x${b}_${u}`, (i) => wordOf(`k${b}_${u}`, width, i)),
    );
    for (const { text } of made) emit(text);
    const more = (): void => {
      emit(`    if (base + ${KEY_TURN}u <= reach) {`);
      load(b, `(base + ${KEY_TURN}u)`);
      emit('    }');
    };
    // The next keys are fetched when these take no more registers: planes are unpacked at once, other codes as they are stored.
    if (planar) more();
    for (const half of [0, 1]) {
      emit('    workgroupBarrier();');
      for (const u of count(turns)) {
        const words = made[u]!.words.slice(half * STAGED, (half + 1) * STAGED).map((w) => w.name);
        emit(`    area[to + ${u * AT_ONCE * STRIDE}u] = vec4<u32>(${words.join(', ')});`);
      }
      emit('    workgroupBarrier();');
      if (half === 1 && !planar) more();
      for (const k of [0, 1])
        emit(
          `    s${b} = subgroupMatrixMultiplyAccumulate(left${half * 2 + k}, subgroupMatrixLoad<Right, col_major>(&area, ${k * 2}u, ${STRIDE}u), s${b});`,
        );
      // When half of the words are stored, there are registers for what goes with the sums.
      if (half === 0) {
        emit(keys.loadMetas(`km${b}`, `mine${b}`));
        emit(values.loadMetas(`vm${b}`, `mine${b}`));
      }
    }
    emit(`    workgroupBarrier();
    subgroupMatrixStore<row_major>(&area, 0u, s${b}, ${SUM_STRIDE}u);
    workgroupBarrier();
    var sc${b}: vec2<f32>;
    {`);
    for (const g of count(groups)) {
      for (const p of [0, 1])
        emit(`      let at${g}_${p} = (${(g * 2 + p) * HEADS}u + head) * ${SUM_STRIDE}u + own / 4u;
      let sum${g}_${p} = bitcast<vec2<i32>>(vec2<u32>(area[at${g}_${p}][own % 4u], area[at${g}_${p}][own % 4u + 1u]));`);
      emit(`      let all${g} = vec2<f32>(sum${g}_0 * 256 + sum${g}_1);`);
      for (const j of count(2)) emit(`      let a${g}_${j} = ${keys.meta(`km${b}`, j, g)};`);
      emit(`      let scale${g} = vec2<f32>(a${g}_0.x, a${g}_1.x);`);
      if (format.kind === 'affine')
        emit(
          `      let bias${g} = vec2<f32>(a${g}_0.y, a${g}_1.y)${keys.centre === 0 ? '' : ` + scale${g} * ${f32Literal(keys.centre)}`};`,
        );
    }
    const sum = count(groups)
      .map((g) => `scale${g} * all${g}${format.kind === 'affine' ? ` + bias${g} * whole${g}` : ''}`)
      .join(' + ');
    if (softcap === null) emit(`      var score = (${sum}) * (end * ${f32Literal(SCALE)});`);
    else
      emit(`      var score = (${sum}) * end;
      { let e = exp(clamp(2.0 * score / ${f32Literal(softcap)}, vec2<f32>(-80.0), vec2<f32>(80.0))); score = ${f32Literal(softcap * SCALE)} * (1.0 - 2.0 / (e + 1.0)); }`);
    emit(`      let seen = ${seenText(shape, `vec2<u32>(mine${b}, mine${b} + 1u)`, 'vec2<u32>')};
      score = select(vec2<f32>(${LOWEST}), score, seen);
      top = max(top, max(score.x, score.y));`);
    for (const g of count(values.groups)) {
      const scales = count(2).map((j) => `${values.meta(`vm${b}`, j, g)}.x`);
      emit(`      { let logs = select(vec2<f32>(${LOWEST}), score + log2(abs(vec2<f32>(${scales.join(', ')}))), seen);
      peak${g} = max(peak${g}, max(logs.x, logs.y)); }`);
    }
    emit(`      sc${b} = score;\n    }`);
  }
  const scores = [0, 1].flatMap((e) => count(blocks).map((b) => `sc${b}.${'xy'[e]}`));
  emit(`    scratchScores[unit_at + head * ${split / 4}u + base / 4u + lane % 8u] = bitcast<vec4<u32>>(vec4<f32>(${scores.join(', ')}));
  ${loop.tail}`);
  return lines;
}
