// Products of codes with activations of 8 bits.
import { advance, fieldMasks, looked, maskName, planePointers, unpack, vectors } from './codes.mjs';
import { centreOf, chunked, title } from './formats.mjs';
import { head, headNames, metas, scalesAndBiases } from './metas.mjs';
import { declare, each, emit, range, storeSums } from './text.mjs';

/** Steps whose products of a lane are sure to fit 16 bits: 2 columns · 127 · the largest code, each. */
const RUN = { 2: 8, 3: 8, 4: 8, 5: 4, 6: 2, 8: 8 };

/** Passes over the nibbles of a chunk: where they lie, what their products count, from which step on. Sums of a pass fit 16 bits. */
function nibblePasses({ bits, table }) {
  if (table !== undefined)
    return [0, 4].map((first) => ({ at: 16 * first, times: 1, table, first, bytes: 64 }));
  if (bits === 4) return [{ at: 0, times: 1 }];
  return [
    { at: 0, times: 16 },
    { at: 128, times: 1 },
  ];
}

/**
 * Sums of a chunk whose table is 15 times the code and a rest of up to 19: what the codes add, and what the rests add, of which four steps
 * fit 16 bits. `blocks` at a time, so that all sums stay in registers.
 */
function sumLine({ table }, m, b, stepBytes) {
  const at = m === 1 ? 2 : 1;
  for (let first = 0; first < b; first += at) {
    const blocks = range(Math.min(at, b - first)).map((k) => first + k);
    const names = range(m).flatMap((r) => blocks.flatMap((k) => [0, 1].map((h) => `${r}${k}${h}`)));
    emit(4, '{', `const table = v128.load(${table}Rest);`, 'let z = x0;');
    emit(4, `let ${blocks.map((k) => `q${k} = w${k}`).join(', ')};`);
    emit(4, ...names.map((n) => `p${n} = i32x4.splat(0);`));
    emit(4, `const last = q${first} + 128;`, 'do {');
    emit(5, ...names.map((n) => `t${n} = i32x4.splat(0);`));
    emit(5, `const end = q${first} + 64;`, 'do {');
    for (const r of range(m)) emit(6, `y${r} = v128.load32_splat(z, ${4 * r});`);
    for (const k of blocks) {
      emit(6, `v${k}p4 = v128.load(q${k});`, `q${k} += 16;`);
      for (const h of [0, 1]) {
        const u = `u${k}${h}`;
        emit(6, `${u} = v128.and(${h ? `i32x4.shr_u(v${k}p4, 4)` : `v${k}p4`}, mask15);`);
        const add = (depth, to) => {
          for (const r of range(m)) {
            const sum = `${to}${r}${k}${h}`;
            emit(depth, `if (DOT) ${sum} = i32x4.relaxed_dot_i8x16_i7x16_add_s(y${r}, ${u}, ${sum});`);
            emit(depth, `else ${sum} = i16x8.add(${sum}, i16x8.relaxed_dot_i8x16_i7x16_s(y${r}, ${u}));`);
          }
        };
        add(6, 'p');
        emit(6, `${u} = lookUp(table, ${u});`);
        add(6, 't');
      }
    }
    emit(6, `z += ${stepBytes};`);
    emit(5, `} while (q${first} != end);`);
    for (const n of names) emit(5, `a${n} = i32x4.add(a${n}, DOT ? t${n} : i32x4.dot_i16x8_s(t${n}, ones));`);
    emit(4, `} while (q${first} != last);`);
    for (const n of names) {
      const sum = `DOT ? i32x4.sub(i32x4.shl(p${n}, 4), p${n}) : i32x4.dot_i16x8_s(p${n}, v128.load(FIFTEEN))`;
      emit(4, `a${n} = i32x4.add(a${n}, ${sum});`);
    }
    emit(4, '}');
  }
}

/**
 * int8 activations, as quantize-rows.ts lays them out for tiles of m rows. 32 columns at a time; with relaxed SIMD
 * products are added up in 16 bits for as long as they are sure to fit.
 *
 * The loops are short on purpose: V8 sinks operations to their uses, so that a long body computes one sum after the
 * other and spills every operand. Sums that a loop carries cannot be moved.
 */
export function integerTile(format, m, b) {
  const { bits, name, alone = false } = format;
  emit(
    0,
    `/** ${title(format)} codes, ${m} row${m > 1 ? 's' : ''}, ${b} block${b > 1 ? 's' : ''}. */`,
    `export function int${name}x${m}x${b}(w0: usize, stride: usize, x0: usize, cols: u32, group: u32, dtype: u32): void {`,
  );
  for (let k = 1; k < b; k++) emit(1, `let w${k} = w0 + ${k} * stride;`);
  emit(1, `let y = x0 + cols * (RELAXED ? ${m} : ${2 * m});`);
  declare(1, each(m, b, 'f'));
  const halves = range(b).flatMap((k) => range(2).map((h) => `${k}${h}`));
  declare(1, [...halves.map((n) => `c${n}`), ...halves.map((n) => `d${n}`), ...headNames(format, b)]);
  declare(
    1,
    range(b).flatMap((k) => vectors(bits, k)),
  );
  declare(1, ['xa', 'xb', ...halves.map((n) => `u${n}`), ...each(m, b, 'p')]);
  if (format.table === 'IQ4') declare(1, [...each(m, b, 't'), ...range(m).map((r) => `y${r}`)]);
  for (const mask of bits === 8 ? [15] : fieldMasks(bits))
    emit(1, `const ${maskName(mask)} = v128.load(${maskName(mask).toUpperCase()});`);
  // Where a scale times it may overflow it stays with the scale, as in a panel.
  const centre = format.kind === 'exponents' ? undefined : centreOf(format);
  emit(1, 'const ones = v128.load(ONES);');
  emit(1, `for (let g: u32 = 0; g < cols; g += ${chunked(format) ? 32 : 'group'}) {`);
  declare(2, each(m, b, 'a'));
  head(2, format, b, 'w');
  emit(2, chunked(format) ? '{' : 'for (let i: u32 = 0; i < group; i += 32) {');
  const nibbles = bits === 4 || bits === 8;
  const scaled = format.minima && bits === 4;
  // One step: codes in u, sums to p (fresh if first) or a.
  const step = (depth, s, fresh, times, blocks = range(b)) => {
    const halves = blocks.flatMap((k) => [`${k}0`, `${k}1`]);
    for (const r of range(m)) {
      emit(
        depth,
        `xa = v128.load32_splat(z, RELAXED ? ${4 * (s * m + r)} : ${8 * (s * m + r)});`,
        `if (!RELAXED) xb = v128.load32_splat(z, ${8 * (s * m + r) + 4});`,
      );
      for (const n of halves) {
        const p = `p${r}${n}`;
        const a = `a${r}${n}`;
        const u = times > 1 ? `i16x8.shl(u${n}, 4)` : `u${n}`;
        const product = `i16x8.relaxed_dot_i8x16_i7x16_s(xa, u${n})`;
        // The high nibbles of 8 bits have sums of their own.
        const sum = times > 1 ? p : a;
        emit(
          depth,
          `if (DOT) ${sum} = i32x4.relaxed_dot_i8x16_i7x16_add_s(xa, u${n}, ${sum});`,
          `else if (RELAXED) ${p} = ${fresh ? product : `i16x8.add(${p}, ${product})`};`,
          `else ${a} = i32x4.add(${a}, dot(xa, xb, ${u}));`,
        );
      }
    }
  };
  // `first`: nothing has been added to a yet.
  const widen = (depth, times, { first = false, blocks = range(b) } = {}) => {
    const names = each(m, b, '').filter((n) => blocks.includes(Number(n[1])));
    if (times > 1) {
      emit(depth, 'if (DOT) {');
      for (const n of names) emit(depth + 1, `a${n} = i32x4.add(a${n}, i32x4.shl(p${n}, 4));`);
      emit(depth, '}');
    }
    const by = times > 1 ? `i16x8.splat(${times})` : 'ones';
    emit(depth, 'if (RELAXED && !DOT) {');
    for (const n of names) {
      const sum = `i32x4.dot_i16x8_s(p${n}, ${by})`;
      emit(depth + 1, `a${n} = ${first ? sum : `i32x4.add(a${n}, ${sum})`};`);
    }
    emit(depth, '}');
  };
  const clear = (depth) =>
    emit(
      depth,
      each(m, b, 'p')
        .map((p) => `${p} = i32x4.splat(0);`)
        .join(' '),
    );
  const addGroup = (depth) => {
    for (const r of range(m)) {
      emit(depth, `xa = v128.load32_splat(y, ${8 * r});`, `xb = v128.load32_splat(y, ${8 * r + 4});`);
      // Exact, and for all weights at once. So is what they have for biases without it.
      if (centre !== undefined) emit(depth, `xb = f32x4.mul(xb, v128.load(LESS${centre}));`);
      for (const n of halves) {
        const bias = centre === undefined ? `d${n}` : `c${n}`;
        emit(
          depth,
          `f${r}${n} = madd(madd(${bias}, xb, f32x4.mul(c${n}, f32x4.convert_i32x4_s(a${r}${n}))), xa, f${r}${n});`,
        );
      }
    }
    emit(depth, `y += ${8 * m};`);
  };
  // The same of sums of 16 bits that scales of 6 bits widen: all that this leaves out of the floats is exact.
  const addScaled = (depth) => {
    const pair = (k, h) => {
      const lanes = range(4).flatMap((i) => [4 * h + i, 4 * h + i]);
      return `v128.shuffle<i16>(c${k}1, c${k}1, ${lanes.join(', ')})`;
    };
    for (const k of range(b)) {
      emit(depth, `c${k}1 = v128.load8x8_u(w${k});`, `d${k}1 = v128.load8x8_u(w${k}, 8);`);
      for (const [h, half] of ['low', 'high'].entries()) {
        emit(depth, `c${k}0 = ${pair(k, h)};`);
        for (const r of range(m)) emit(depth, `a${r}${k}${h} = i32x4.dot_i16x8_s(p${r}${k}${h}, c${k}0);`);
        const minima = `i32x4.extend_${half}_i16x8_u(d${k}1)`;
        emit(depth, `d${k}${h} = f32x4.mul(B${k}${h}, f32x4.convert_i32x4_s(${minima}));`);
      }
      emit(depth, `w${k} += ${format.metaBytes};`);
    }
    for (const r of range(m)) {
      emit(depth, `xa = v128.load32_splat(y, ${8 * r});`, `xb = v128.load32_splat(y, ${8 * r + 4});`);
      for (const n of halves) {
        const sum = `f32x4.mul(S${n}, f32x4.convert_i32x4_s(a${r}${n}))`;
        emit(depth, `f${r}${n} = madd(madd(d${n}, xb, ${sum}), xa, f${r}${n});`);
      }
    }
    emit(depth, `y += ${8 * m};`);
  };
  // Groups of 16 end within a chunk.
  const twice = format.group === 16;
  const stepBytes = `(RELAXED ? ${4 * m} : ${8 * m})`;
  if (nibbles) {
    if (twice)
      emit(
        3,
        `let ${range(b)
          .map((k) => `t${k} = w${k} + ${bits * 32}`)
          .join(', ')};`,
      );
    // Some blocks, a step a turn.
    const loop = (depth, { at, times, table, first = 0, bytes = 128 }, blocks) => {
      emit(depth, '{', `let z = x0 + ${first} * ${stepBytes};`);
      if (table !== undefined) emit(depth, `const table = v128.load(${table});`);
      emit(depth, `let ${blocks.map((k) => `q${k} = w${k} + ${at}`).join(', ')};`);
      emit(depth, `const end = q${blocks[0]} + ${bytes};`, 'do {');
      for (const k of blocks)
        emit(
          depth + 1,
          `v${k}p4 = v128.load(q${k});`,
          `u${k}0 = ${looked(table, `v128.and(v${k}p4, mask15)`)};`,
          `u${k}1 = ${looked(table, `v128.and(i32x4.shr_u(v${k}p4, 4), mask15)`)};`,
        );
      step(depth + 1, 0, false, times, blocks);
      for (const k of blocks) emit(depth + 1, `q${k} += 16;`);
      emit(depth + 1, `z += ${stepBytes};`);
      emit(depth, `} while (q${blocks[0]} != end);`, '}');
    };
    if (format.table === 'IQ4') {
      emit(3, 'if (RELAXED) {');
      sumLine(format, m, b, stepBytes);
      emit(3, '} else {');
      loop(4, { at: 0, times: 1, table: format.table }, range(b));
      emit(3, '}');
    } else {
      // Of 8 bits the high nibbles first.
      for (const [n, pass] of nibblePasses(format).entries()) {
        if (twice) emit(3, ...each(m, b, 'a').map((a) => `${a} = i32x4.splat(0);`));
        clear(3);
        loop(3, pass, range(b));
        if (!scaled) widen(3, pass.times, { first: twice || (chunked(format) && n === 0) });
        if (twice) {
          metas(3, format, b, 't', centre === undefined);
          addGroup(3);
        }
      }
    }
  } else {
    planePointers(3, bits, b);
    if (twice)
      emit(
        3,
        `let ${range(b)
          .map((k) => `t${k} = w${k} + ${bits * 32}`)
          .join(', ')};`,
      );
    else clear(3);
    // As few steps a turn as planes and sums of 16 bits allow, and so few blocks that what is loaded stays in registers.
    const steps = bits === 2 || bits === 6 ? 2 : 4;
    const at = alone ? 1 : b;
    const loop = (depth, from, to) => {
      for (let first = 0; first < b; first += at) {
        const blocks = range(b).slice(first, first + at);
        emit(
          depth,
          '{',
          `let z = x0 + ${from} * ${stepBytes};`,
          `const end = x0 + ${to} * ${stepBytes};`,
          'do {',
        );
        for (const s of range(steps)) {
          for (const k of blocks) {
            const [lo, hi] = unpack(depth + 1, bits, s, k, true);
            emit(depth + 1, `u${k}0 = ${lo};`, `u${k}1 = ${hi};`);
          }
          step(depth + 1, s, RUN[bits] < 8 && s % RUN[bits] === 0, 1, blocks);
          if (RUN[bits] < 8 && s % RUN[bits] === RUN[bits] - 1) widen(depth + 1, 1, { blocks });
        }
        advance(depth + 1, bits, blocks, steps);
        emit(depth + 1, `z += ${steps} * ${stepBytes};`);
        emit(depth, '} while (z != end);', '}');
      }
    };
    if (twice) {
      for (const half of [0, 1]) {
        emit(3, ...each(m, b, 'a').map((a) => `${a} = i32x4.splat(0);`));
        if (RUN[bits] === 8) clear(3);
        loop(3, 4 * half, 4 * half + 4);
        if (RUN[bits] === 8) widen(3, 1, { first: true });
        metas(3, format, b, 't', centre === undefined);
        addGroup(3);
      }
    } else {
      loop(3, 0, 8);
      if (RUN[bits] === 8) widen(3, 1);
    }
  }
  emit(3, `x0 += 8 * ${stepBytes};`);
  for (const k of range(b)) emit(3, `w${k} += ${bits * 32 + (twice ? format.metaBytes : 0)};`);
  emit(2, '}');
  if (!twice) {
    if (scaled) {
      emit(2, 'if (RELAXED && !DOT) {');
      addScaled(3);
      emit(2, '} else {');
    }
    const depth = scaled ? 3 : 2;
    if (chunked(format)) metas(depth, format, b, 'w', centre === undefined);
    else scalesAndBiases(depth, b, 'w');
    addGroup(depth);
    if (scaled) emit(2, '}');
  }
  emit(1, '}');
  storeSums(m, b);
  emit(0, '}', '');
}
