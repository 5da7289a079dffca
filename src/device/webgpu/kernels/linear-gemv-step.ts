/**
 * What a subgroup of the GEMV does in one step along K: the loads of its pieces of the weight, a step ahead of their use, and
 * the arithmetic on them.
 */

import type { GemvConfig, GemvPlan } from './linear-gemv-plan.js';
import type { LinearSpec } from './linear-spec.js';
import { floatCodes, unpackCodes, usedIn } from './linear-unpack.js';

export interface StepText {
  /** Element type of the codes. */
  readonly codes: string;
  /** Element in `codes`, and in `metas`, where weight row `row` begins; both are u32 expressions. */
  codesAt(row: string): string;
  metasAt(row: string): string;
  /** Variables of the words of one step; `b` is one step ahead of `a`. */
  readonly declarations: string;
  /** Loads the first step of share `split` of K. */
  readonly first: string;
  /** All steps of what is staged of x, `turns` of a share. Reads `split`, `lane`, `chunk`; adds to acc<row>_<batch>. */
  readonly loop: string;
}

/** Elements of `xs` from one quad of a lane's columns to the next. */
export function quadStride(config: GemvConfig): number {
  return config.subgroupSize + 1;
}

/** Elements of `xs` of one row of x. */
export function stageStride({ piece, chunk }: GemvPlan, config: GemvConfig): number {
  return chunk * (piece.cols / 4) * quadStride(config);
}

export function stepText(spec: LinearSpec, config: GemvConfig, plan: GemvPlan): StepText {
  const { piece, steps, chunk } = plan;
  const { weight, rows: batch, k } = spec;
  const { subgroupSize: lanes, rowsPerSubgroup: perSub, splits } = config;
  const affine = weight.kind === 'affine' ? weight : null;
  const quads = piece.cols / 4;
  const stride = quadStride(config);
  const stageRow = stageStride(plan, config);
  const wordsPerRow =
    affine === null
      ? (k * (weight.kind === 'float' && weight.dtype === 'f32' ? 32 : 16)) / 32
      : (k * affine.bits) / 32;
  const vector = piece.vector === 1 ? 'u32' : `vec${piece.vector}<u32>`;
  const loads = piece.words / piece.vector;
  const rowIndex = Array.from({ length: perSub }, (_, r) => r);
  const batchIndex = Array.from({ length: batch }, (_, b) => b);
  const pieces = k / piece.cols;
  const exact = k === steps * lanes * piece.cols;
  const chunks = Math.ceil(steps / chunk);
  const turns = chunk / splits;

  // --- loads of one step, into variables w<slot><row>_<i> and m<slot><row>
  const declare = (slot: string): string =>
    rowIndex
      .map((r) => {
        const words = Array.from({ length: loads }, (_, i) => `var w${slot}${r}_${i}: ${vector};`).join(' ');
        return `  ${words}${affine === null ? '' : ` var m${slot}${r}: u32;`}`;
      })
      .join('\n');
  const load = (slot: string, step: string, pad: string): string => {
    const lines = [`${pad}{`];
    const at = `(${step}) * ${lanes}u + lane`;
    lines.push(`${pad}  let p = ${exact ? at : `min(${at}, ${pieces - 1}u)`};`);
    for (const r of rowIndex) {
      for (let i = 0; i < loads; i++) {
        const from = loads === 1 ? `base${r} + p` : `base${r} + p * ${loads}u + ${i}u`;
        lines.push(`${pad}  w${slot}${r}_${i} = codes[${from}];`);
      }
    }
    if (affine !== null) {
      lines.push(`${pad}  let g = p / ${affine.groupSize / piece.cols}u;`);
      for (const r of rowIndex) lines.push(`${pad}  m${slot}${r} = metas[meta${r} + g];`);
    }
    lines.push(`${pad}}`);
    return lines.join('\n');
  };

  // --- arithmetic of one step
  const compute = (slot: string, pad: string): string => {
    const lines: string[] = [];
    const perLoad = Math.max(4, affine === null ? piece.cols : Math.min(8, 32 / affine.bits));
    // Columns are taken in runs small enough for x of the whole batch to stay in registers.
    const run = affine !== null && 32 % affine.bits !== 0 ? 8 : Math.min(piece.cols, perLoad);
    const word = (r: number, i: number): string => {
      const name = `w${slot}${r}_${Math.floor(i / piece.vector)}`;
      return piece.vector === 1 ? name : `${name}.${'xyzw'[i % piece.vector]}`;
    };
    const unpacked = rowIndex.map((r) => {
      const words = Array.from({ length: piece.words }, (_, i) => word(r, i));
      return affine === null ? floatCodes(weight, words) : unpackCodes(affine.bits, words, `t${r}`);
    });
    if (affine !== null) {
      for (const r of rowIndex) for (const b of batchIndex) lines.push(`var d${r}_${b} = 0.0;`);
      for (const b of batchIndex) lines.push(`var c_${b} = 0.0; var s_${b} = 0.0;`);
    }
    for (let first = 0; first < piece.cols; first += run) {
      lines.push('{');
      const offsets = new Map<number, number[]>();
      for (let j = 0; j < run; j++) {
        const offset = unpacked[0]!.codes[first + j]!.offset;
        offsets.set(offset, [...(offsets.get(offset) ?? []), j]);
      }
      for (const b of batchIndex) {
        for (let q = 0; q < run / 4; q++)
          lines.push(`  let x${b}_${q} = xs[at + ${b * stageRow + (first / 4 + q) * stride}u];`);
        if (affine !== null) {
          const sums: string[] = [];
          for (const [offset, columns] of offsets) {
            const sum = `o${b}_${offset}`;
            lines.push(`  let ${sum} = ${columns.map((j) => xOf(b, j)).join(' + ')};`);
            lines.push(`  c_${b} = fma(${sum}, ${offset}.0, c_${b});`);
            sums.push(sum);
          }
          lines.push(`  s_${b} += ${sums.join(' + ')};`);
        }
      }
      for (const r of rowIndex) {
        const { codes, lines: lets } = unpacked[r]!;
        for (const text of lets) if (usedIn(text, codes, first, run)) lines.push(`  ${text}`);
        for (let j = 0; j < run; j++) {
          const value = codes[first + j]!.text;
          if (batch === 1) {
            const into = affine === null ? `acc${r}_0` : `d${r}_0`;
            lines.push(`  ${into} = fma(${value}, ${xOf(0, j)}, ${into});`);
            continue;
          }
          lines.push(`  let v${r}_${j} = ${value};`);
          for (const b of batchIndex) {
            const into = affine === null ? `acc${r}_${b}` : `d${r}_${b}`;
            lines.push(`  ${into} = fma(v${r}_${j}, ${xOf(b, j)}, ${into});`);
          }
        }
      }
      lines.push('}');
    }
    if (affine !== null) {
      for (const r of rowIndex) {
        lines.push(
          affine.meta === 'f16'
            ? `let sb${r} = unpack2x16float(m${slot}${r});`
            : `let sb${r} = vec2<f32>(bitcast<f32>(m${slot}${r} << 16u), bitcast<f32>(m${slot}${r} & 0xffff0000u));`,
        );
        for (const b of batchIndex)
          lines.push(
            `acc${r}_${b} = fma(sb${r}.x, d${r}_${b} - c_${b}, fma(sb${r}.y, s_${b}, acc${r}_${b}));`,
          );
      }
    }
    return lines.map((line) => `${pad}${line}`).join('\n');
  };

  function stepLoop(): string {
    if (turns === 1 && chunks === 1)
      return `    {\n      let at = split * ${quads * stride}u + lane;\n${compute('a', '      ')}\n    }`;
    const last = steps / splits - 1;
    return `    for (var t = 0u; t < ${turns}u; t++) {
      let turn = chunk * ${turns}u + t;
${chunks * turns > last + 1 ? `      if (turn > ${last}u) { break; }` : ''}
${load('b', `min(turn + 1u, ${last}u) * ${splits}u + split`, '      ')}
      let at = (t * ${splits}u + split) * ${quads * stride}u + lane;
${compute('a', '      ')}
${rowIndex
  .map(
    (r) =>
      `      ${Array.from({ length: loads }, (_, i) => `wa${r}_${i} = wb${r}_${i};`).join(' ')}${
        affine === null ? '' : ` ma${r} = mb${r};`
      }`,
  )
  .join('\n')}
    }`;
  }

  return {
    codes: vector,
    codesAt: (row) => `${row} * ${wordsPerRow / piece.vector}u`,
    metasAt: (row) => `${row} * ${affine === null ? 0 : k / affine.groupSize}u`,
    declarations: `${declare('a')}\n${steps > splits ? declare('b') : ''}`,
    first: load('a', 'split', '  '),
    loop: stepLoop(),
  };
}

function xOf(b: number, j: number): string {
  return `x${b}_${j >> 2}.${'xyzw'[j & 3]}`;
}
