/** Attention by quads, first pass: queries as planes of bytes, and the scores of a split. */

import type { AttendShape } from './attend.js';
import { byteCentre, bytesText } from './attend-planes.js';
import { PLANES, QUAD, type QuadsLoads, type QuadsPlan, SETS } from './attend-quads-plan.js';
import { count, LOWEST } from './attend-words.js';
import { f32Literal } from './f32-literal.js';

/** Integer queries reach so far: two planes of bytes. */
const MOST = 32512;
/** A query of nothing larger counts as zero: its inverse would not be finite. */
const LEAST = '1e-30';
/** 1.5 · 2²³ as bits, which a sum of bytes starts from, and as a number, which it is then less: no conversion. */
const START = '0x4b400000';
const STARTED = '12582912.0';

/**
 * Leaves the queries in `area`, plane by plane, the words of a quad's lanes side by side; by lane `wholeH`, the sum of the
 * integers of its dims for head H, and `end`, what a sum of its own head is multiplied with.
 */
export function quadsQueries(shape: AttendShape, plan: QuadsPlan): string[] {
  const { heads, headDim, scale } = shape;
  const { group, lanes, words, keys, queriesAt } = plan;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const all = headDim / 4;
  /** Words that a lane makes of a head; lanes that make those of one lane of a quad. */
  const own = Math.max(1, all / lanes);
  const sharers = words / own;
  const { words: pattern } = bytesText(keys.format, headDim, keys.dims, 'x', () => '0u');
  const step = pattern[0]!.dims[1] - pattern[0]!.dims[0];
  emit(
    `  let query = (item.x * ${heads}u + kv * ${group}u) * ${headDim}u;\n  let made = lane * ${own}u % ${all}u;\n  let source = lane % ${QUAD}u * ${sharers}u;`,
  );
  for (const j of count(own)) {
    emit(
      `  let b${j} = made % ${words}u + ${j}u; let d${j} = query + made / ${words}u * ${keys.dims}u + b${j} / ${step}u * ${4 * step}u + b${j} % ${step}u;`,
    );
    for (const h of count(group))
      emit(
        `  let q${h}_${j} = vec4<f32>(${count(4)
          .map((e) => `q[d${j} + ${h * headDim + e * step}u]`)
          .join(', ')});`,
      );
  }
  for (const h of count(group)) {
    const most = count(own).flatMap((j) => 'xyzw'.split('').map((e) => `abs(q${h}_${j}).${e}`));
    // As bits, for these rank what is not finite highest.
    const bits = most.map((m) => `bitcast<u32>(${m})`).reduce((a, b) => `max(${a}, ${b})`);
    emit(`  let mostbits${h} = ${bits};\n  let peakbits${h} = subgroupMax(mostbits${h});
  let peak${h} = bitcast<f32>(peakbits${h});
  let unit${h} = select(0.0, ${MOST}.0 / peak${h}, peak${h} > ${LEAST} && peakbits${h} < 0x7f800000u);
  var sum${h} = 0;`);
    for (const j of count(own)) {
      const to = (plane: number): string =>
        `${plan.overlaid ? 'cells' : 'area'}[${queriesAt}u + (${(h * PLANES + plane) * (words / 4)}u + b${j} / 4u) * ${QUAD}u + made / ${words}u]`;
      emit(`  { let n = vec4<i32>(round(q${h}_${j} * unit${h}));
    sum${h} += (n.x + n.y) + (n.z + n.w);
    if (lane < ${all}u) {`);
      emit(`      let high = (n + vec4<i32>(128)) >> vec4<u32>(8u);
      ${to(0)}[b${j} % 4u] = bytes_(high);
      ${to(1)}[b${j} % 4u] = bytes_(n - high * 256);`);
      emit('    }\n  }');
    }
    for (let s = 1; s < sharers; s *= 2) emit(`  sum${h} += subgroupShuffleXor(sum${h}, ${s}u);`);
    emit(`  let whole${h} = f32(subgroupShuffle(sum${h}, source));`);
  }
  const head = `lane % ${plan.cell}u`;
  let peak = 'peakbits0';
  for (let h = 1; h < group; h++) peak = `select(${peak}, peakbits${h}, ${head} == ${h}u)`;
  emit(`  let own_peak = ${peak};
  let end = bitcast<f32>(select(bitcast<u32>(bitcast<f32>(own_peak) * ${f32Literal(scale / MOST)}), 0x7fc00000u, own_peak >= 0x7f800000u));
  workgroupBarrier();`);
  return lines;
}

/**
 * The scores of all positions to `cells`, each by the lane that takes its softmax, and in `top` the greatest of a lane's.
 * The loads of the first turn, from `begin` on, are on their way.
 */
export function quadsScores(
  shape: AttendShape,
  plan: QuadsPlan,
  loads: QuadsLoads,
  seen: (t: string) => string,
): string[] {
  const { headDim, softcap } = shape;
  const { group, words, keys, turn, cell, queriesAt, overlaid } = plan;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const write = (u: number, base: string, value: string): string => {
    const store = `${cellAt(plan, loads.position(u, base))} = bitcast<u32>(${value});`;
    return group === QUAD ? `    ${store}` : `    if (lane % ${QUAD}u < ${group}u) { ${store} }`;
  };
  if (overlaid) for (const u of count(SETS)) emit(`  var newer${u} = 0.0; var older${u} = 0.0;`);
  emit(`  var top = ${LOWEST};
  for (var base = begin; base <= reach; base += ${turn}u) {`);
  for (const u of count(SETS)) {
    const made = bytesText(keys.format, headDim, keys.dims, `e${u}`, loads.word(u));
    emit(`    ${made.text}
    var affine${u} = unpack2x16float(${loads.meta(u)});`);
    const centre = byteCentre(keys.format);
    if (centre !== 0) emit(`    affine${u}.y = fma(affine${u}.x, ${f32Literal(centre)}, affine${u}.y);`);
  }
  // The words are unpacked: the next ones may come.
  emit(`    if (base + ${turn}u <= reach) {`);
  lines.push(...loads.runs('next', `(base + ${turn}u)`));
  for (const u of count(SETS)) lines.push(...loads.load(u, 'next'));
  emit('    }');
  for (const u of count(SETS)) for (const h of count(cell)) if (h >= group) emit(`    let s${u}_${h} = 0.0;`);
  for (const h of count(group)) {
    for (const u of count(SETS)) emit(`    var s${u}_${h}: f32;`);
    emit('    {');
    for (const p of count(PLANES))
      for (const i of count(words / 4))
        emit(
          `      let x${p}_${i} = ${overlaid ? 'cells' : 'area'}[${queriesAt + ((h * PLANES + p) * (words / 4) + i) * QUAD}u + lane % ${QUAD}u];`,
        );
    for (const u of count(SETS)) for (const p of count(PLANES)) emit(`      var d${u}_${p} = ${START};`);
    for (const b of count(words))
      for (const u of count(SETS))
        for (const p of count(PLANES))
          emit(`      d${u}_${p} += dot4I8Packed(e${u}_${b}, x${p}_${b >> 2}.${'xyzw'[b & 3]});`);
    for (const u of count(SETS)) {
      const float = (p: number): string => `(bitcast<f32>(d${u}_${p}) - ${STARTED})`;
      const sum = `fma(256.0, ${float(0)}, ${float(1)})`;
      emit(`      s${u}_${h} = fma(affine${u}.x, ${sum}, affine${u}.y * whole${h});`);
    }
    emit('    }');
  }
  for (const u of count(SETS)) {
    emit(`    var score${u}: f32;\n    {`);
    lines.push(...overQuad(`s${u}_`, cell));
    emit(`    score${u} = all * end;`);
    if (softcap !== null)
      emit(
        `    { let e = exp(clamp(2.0 * score${u} / ${f32Literal(softcap)}, -80.0, 80.0)); score${u} = ${f32Literal(softcap)} * (1.0 - 2.0 / (e + 1.0)); }`,
      );
    emit(`    score${u} = select(${LOWEST}, score${u}, ${seen(loads.position(u, 'base'))});
    top = max(top, score${u});\n    }`);
  }
  if (overlaid) {
    emit(`    if (base >= begin + ${2 * turn}u) {`);
    for (const u of count(SETS)) emit(write(u, `(base - ${2 * turn}u)`, `older${u}`));
    emit('    }');
    for (const u of count(SETS)) emit(`    older${u} = newer${u}; newer${u} = score${u};`);
  } else for (const u of count(SETS)) emit(write(u, 'base', `score${u}`));
  emit(`  }
  let walked = (reach / ${turn}u + 1u) * ${turn}u;`);
  if (overlaid) {
    emit('  workgroupBarrier();');
    for (const [name, turns] of [
      ['older', 2],
      ['newer', 1],
    ] as const) {
      emit(`  if (walked >= begin + ${turns * turn}u) {`);
      for (const u of count(SETS)) emit(write(u, `(walked - ${turns * turn}u)`, `${name}${u}`));
      emit('  }');
    }
  }
  return lines;
}

/** A position's score, or weight, of a lane's head, as bits. */
export function cellAt({ cell }: QuadsPlan, t: string): string {
  return cell === 1 ? `cells[${t}]` : `cells[${t}][lane % ${QUAD}u]`;
}

/** Leaves `all`: in lane l of a quad the sum, over the quad, of `NAMEh` for head l, modulo the heads there are. */
function overQuad(name: string, heads: 1 | 2 | 4): string[] {
  const halve = (to: string, a: string, b: string, step: number): string => {
    const upper = `(lane & ${step}u) != 0u`;
    return `    let ${to}_give = select(${b}, ${a}, ${upper});
    let ${to} = select(${a}, ${b}, ${upper}) + subgroupShuffleXor(${to}_give, ${step}u);`;
  };
  if (heads === 4)
    return [
      halve('even', `${name}0`, `${name}2`, 2),
      halve('odd', `${name}1`, `${name}3`, 2),
      halve('all', 'even', 'odd', 1),
    ];
  const lines =
    heads === 2
      ? [halve('half', `${name}0`, `${name}1`, 1)]
      : [`    let half = ${name}0 + subgroupShuffleXor(${name}0, 1u);`];
  return [...lines, '    let all = half + subgroupShuffleXor(half, 2u);'];
}
