// The part of matmul-tiles.ts that multiplies a block of weights, unpacked to a panel, with many rows.

const range = (n) => Array.from({ length: n }, (_, i) => i);
/** Where a tile leaves what it saw of the memory that it fetched ahead, behind its sums: so that the loads are made. */
const SEEN = 192;
const HALVES = ['lo', 'hi'];

/** `emit(depth, ...lines)` and `declare(depth, names)` as in generate-matmul.mjs. */
export function emitPanelTiles(emit, declare) {
  /** Codes of 4 columns and 8 weight rows to lo and hi, then `each(sum, half, row)` with that row's activations in xa. */
  const step = (depth, rows, each) => {
    emit(depth, 'lo = v128.load(w);', 'hi = v128.load(w, 16);');
    for (const r of range(rows)) {
      emit(depth, `xa = v128.load32_splat(x, ${4 * r});`);
      for (const h of range(2)) emit(depth, each(2 * r + h, HALVES[h]));
    }
    emit(depth, 'w += 32;', `x += ${4 * rows};`);
  };
  const product = (half) => `i16x8.relaxed_dot_i8x16_i7x16_s(xa, ${half})`;
  const loop = (depth, end, body) => {
    emit(depth, 'do {');
    body();
    emit(depth, `} while (w != ${end});`);
  };

  /**
   * Adds a group to the sums, which stay in memory. Row by row, with the sums stored before the next row is loaded: so
   * V8 does not load everything first, which would not fit its registers. `each`: what a row loads beside, `term(i, h)`: code sums
   * times scale, `meta`: what is done to scales and biases.
   */
  const addGroup = (rows, term, each, meta) => {
    emit(
      2,
      'let c0 = v128.load(w);',
      'let c1 = v128.load(w, 16);',
      'let d0 = v128.load(w, 32);',
      'let d1 = v128.load(w, 48);',
      ...meta,
      'w += 64;',
    );
    for (const r of range(rows)) {
      emit(2, ...each, `xa = v128.load32_splat(y, ${8 * r});`, `xb = v128.load32_splat(y, ${8 * r + 4});`);
      for (const h of range(2)) {
        const i = 2 * r + h;
        emit(
          2,
          `f = v128.load(sums, ${16 * i});`,
          `f = madd(madd(d${h}, xb, ${term(i, h)}), xa, f);`,
          `v128.store(sums, f, ${16 * i});`,
        );
      }
    }
    emit(2, `y += ${8 * rows};`);
  };
  const scaled = (integer) => (i, h) => `f32x4.mul(c${h}, ${integer(i)})`;

  /** A function of the tile: `group` emits what adds a group up, from `w` and `x` to `integer(i)`. `run`: see panelRuns. */
  const tile = (name, rows, xBytes, group, term, { each = [], meta = [], parameter = '' } = {}) => {
    emit(
      0,
      `export function ${name}(w: usize, x: usize, sums: usize, cols: u32, group: u32, bits: u32, run: u32, ahead: usize, last: usize, near: u32${parameter}): void {`,
    );
    emit(1, `let y = x + cols * ${xBytes};`, 'const xEnd = y;', 'let seen: u32 = 0;');
    for (const i of range(2 * rows)) emit(1, `v128.store(sums, i32x4.splat(0), ${16 * i});`);
    declare(1, ['f', 'lo', 'hi', 'xa', 'xb']);
    emit(1, 'do {');
    group();
    addGroup(rows, term, each, meta);
    emit(2, 'for (const far = min(ahead + near, last); ahead < far; ahead += 64) seen |= load<u8>(ahead);');
    emit(1, '} while (x != xEnd);', `store<u32>(sums, seen, ${SEEN});`);
    emit(0, '}', '');
  };
  const four = range(8);

  emit(
    0,
    '/*',
    ' * Products of a tile of rows with one block of weights. The block is unpacked once into a panel that stays in the',
    ' * first cache, so that 4 rows of activations cost 16 vector operations for 4 columns instead of 19, for every width',
    ' * of codes. The sums are left at `sums`: v128 [row][half of the block].',
    ' *',
    ' * A panel is groups, one after the other: for each 4 columns the codes of rows 0–3 and those of rows 4–7 (bytes with',
    ' * relaxed SIMD; i16 without, columns 0, 1 before 2, 3), then 8 f32 scales and 8 f32 biases (or what scale-panel.ts makes',
    ' * of them). With relaxed SIMD 8-bit codes are all high nibbles of the group, then all low ones.',
    ' */',
    '',
    '/** Without relaxed SIMD. */',
  );
  tile(
    'panelWide',
    4,
    8,
    () => {
      declare(2, ['l1', 'h1', ...four.map((i) => `a${i}`)]);
      emit(2, 'const end = w + group * 16;');
      loop(2, 'end', () => {
        emit(
          3,
          'lo = v128.load(w);',
          'l1 = v128.load(w, 16);',
          'hi = v128.load(w, 32);',
          'h1 = v128.load(w, 48);',
        );
        for (const r of range(4)) {
          emit(3, `xa = v128.load32_splat(x, ${8 * r});`, `xb = v128.load32_splat(x, ${8 * r + 4});`);
          for (const [h, [a, b]] of [
            ['lo', 'l1'],
            ['hi', 'h1'],
          ].entries()) {
            const i = 2 * r + h;
            const dots = `i32x4.add(i32x4.dot_i16x8_s(xa, ${a}), i32x4.dot_i16x8_s(xb, ${b}))`;
            emit(3, `a${i} = i32x4.add(a${i}, ${dots});`);
          }
        }
        emit(3, 'w += 64;', 'x += 32;');
      });
    },
    scaled((i) => `f32x4.convert_i32x4_s(a${i})`),
  );

  emit(
    0,
    '// Loaded, not made: see integerTile.',
    `const ONES = memory.data<u16>([${range(8).fill('1').join(', ')}], 16);`,
    '',
  );
  emit(0, '/** Relaxed SIMD, where 16 bits hold the sums of a group. */');
  tile(
    'panelOnce',
    4,
    4,
    () => {
      declare(
        2,
        four.map((i) => `p${i}`),
      );
      emit(2, 'const ones = v128.load(ONES);', 'const end = w + group * 8;');
      step(2, 4, (i, half) => `p${i} = ${product(half)};`);
      loop(2, 'end', () => step(3, 4, (i, half) => `p${i} = i16x8.add(p${i}, ${product(half)});`));
    },
    // As panelDots does it: a conversion would take a turn from the products.
    scaled((i) => `f32x4.sub(i32x4.add(i32x4.dot_i16x8_s(p${i}, ones), lo), lo)`),
    { each: ['lo = v128.load(MAGIC);'] },
  );

  emit(0, '/** As panelOnce, over a panel with integer scales (scale-panel.ts). */');
  tile(
    'panelScaled',
    4,
    4,
    () => {
      declare(
        2,
        four.map((i) => `p${i}`),
      );
      emit(2, 'const end = w + group * 8;');
      step(2, 4, (i, half) => `p${i} = ${product(half)};`);
      loop(2, 'end', () => step(3, 4, (i, half) => `p${i} = i16x8.add(p${i}, ${product(half)});`));
    },
    (i, h) => `f32x4.convert_i32x4_s(i32x4.dot_i16x8_s(p${i}, c${h}))`,
  );

  emit(
    0,
    '/** Relaxed SIMD, sums widened after every `run` bytes of panel. `by`: see scale-panel.ts; 0 if scales are floats. */',
  );
  tile(
    'panelRuns',
    4,
    4,
    () => {
      declare(2, [...four.map((i) => `p${i}`), ...four.map((i) => `a${i}`)]);
      emit(
        2,
        'const from = x;',
        'const planeEnd = w + group * 8;',
        'const groupEnd = bits == 8 ? planeEnd + group * 8 : planeEnd;',
        'let times = i16x8.splat(bits == 8 ? 16 : 1);',
      );
      loop(2, 'groupEnd', () => {
        emit(3, four.map((i) => `p${i} = i32x4.splat(0);`).join(' '), 'const end = w + run;');
        loop(3, 'end', () => step(4, 4, (i, half) => `p${i} = i16x8.add(p${i}, ${product(half)});`));
        for (const i of four) emit(3, `a${i} = i32x4.add(a${i}, i32x4.dot_i16x8_s(p${i}, times));`);
        emit(
          3,
          'if (bits == 8 && w == planeEnd) {',
          '  // The low nibbles.',
          '  x = from;',
          '  times = i16x8.splat(1);',
          '}',
        );
      });
    },
    scaled((i) => `f32x4.convert_i32x4_s(a${i})`),
    {
      parameter: ', by: usize',
      meta: [
        'if (by != 0) {',
        ...range(2).flatMap((h) => [
          `  c${h} = f32x4.mul(f32x4.convert_i32x4_s(i32x4.shr_s(c${h}, 16)), v128.load(by, ${16 * h}));`,
          `  d${h} = f32x4.mul(d${h}, v128.load(by, ${16 * h}));`,
        ]),
        '}',
      ],
    },
  );

  emit(
    0,
    '/** Bytes of panel whose products of a lane are sure to fit 16 bits: 2 · 127 · the largest code for every 16 or 32. */',
    '// @ts-ignore: decorator',
    '@inline export function runBytes(bits: u32): u32 {',
    '  return bits == 2 ? 1024 : bits == 3 ? 512 : bits == 5 ? 128 : bits == 6 ? 64 : 256;',
    '}',
    '',
  );

  // Sums of 32 bits: one instruction for 16 products and their sums, where the engine has it.
  const six = range(12);
  const dot = (i, half) => `p${i} = i32x4.relaxed_dot_i8x16_i7x16_add_s(xa, ${half}, p${i});`;
  emit(
    0,
    '/** Sums of 32 bits. An instruction takes 5 cycles and two start in one: 12 sums keep that busy. */',
  );
  // Sums begin at the bits of 1.5 · 2^23 and are then floats from which to take that: a subtraction, which runs beside the
  // products, in place of a conversion, which takes a turn from them. Exact: a sum is below 2^22 = 128 · 127 · 258.
  emit(0, `const MAGIC = memory.data<u32>([${range(4).fill('0x4b400000').join(', ')}], 16);`, '');
  tile(
    'panelDots',
    6,
    6,
    () => {
      emit(2, 'const magic = v128.load(MAGIC);', `let ${six.map((i) => `p${i} = magic`).join(', ')};`);
      emit(2, 'let end = w + group * 8;', 'if (bits == 8) {', '  // The high nibbles.', '  const from = x;');
      for (const i of six) emit(3, `p${i} = i32x4.splat(0);`);
      loop(3, 'end', () => step(4, 6, dot));
      for (const i of six) emit(3, `p${i} = i32x4.add(i32x4.shl(p${i}, 4), magic);`);
      emit(2, '  x = from;', '  end = w + group * 8;', '}');
      loop(2, 'end', () => step(3, 6, dot));
    },
    scaled((i) => `f32x4.sub(p${i}, magic)`),
  );
}
