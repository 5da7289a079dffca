/**
 * What a subgroup of the GEMV does in one step along K: the loads of its pieces of the weight, a step ahead of their use, and
 * the arithmetic on them.
 */

import { rowMetaWords } from '../weights-layout.js';
import { groupScales } from './group-scales.js';
import type { GemvConfig, GemvPlan } from './linear-gemv-plan.js';
import type { LinearSpec } from './linear-spec.js';
import { codesOf, usedIn } from './linear-unpack.js';

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
  const quantised = weight.kind === 'float' ? null : weight;
  const scales = quantised && groupScales(quantised, `${k / 32}u`, piece.cols);
  /** Words of metas of a piece, and its parts that have scales of their own. */
  const metas = scales?.words('p') ?? [];
  const runs = scales?.runs ?? 1;
  const biased = weight.kind !== 'lut4';
  const quads = piece.cols / 4;
  const stride = quadStride(config);
  const stageRow = stageStride(plan, config);
  const wordsPerRow =
    weight.kind === 'float' ? (k * (weight.dtype === 'f32' ? 32 : 16)) / 32 : (k * weight.bits) / 32;
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
        return `  ${words}${metas.map((_, m) => ` var ${metaName(slot, r, m)}: u32;`).join('')}`;
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
    metas.forEach((word, m) => {
      lines.push(`${pad}  let g${m} = ${word};`);
      for (const r of rowIndex) lines.push(`${pad}  ${metaName(slot, r, m)} = metas[meta${r} + g${m}];`);
    });
    lines.push(`${pad}}`);
    return lines.join('\n');
  };

  // --- arithmetic of one step
  const compute = (slot: string, pad: string): string => {
    const lines: string[] = [];
    const perLoad = Math.max(4, quantised === null ? piece.cols : Math.min(8, 32 / quantised.bits));
    // Columns are taken in runs small enough for x of the whole batch to stay in registers.
    const run = quantised !== null && 32 % quantised.bits !== 0 ? 8 : Math.min(piece.cols, perLoad);
    const word = (r: number, i: number): string => {
      const name = `w${slot}${r}_${Math.floor(i / piece.vector)}`;
      return piece.vector === 1 ? name : `${name}.${'xyzw'[i % piece.vector]}`;
    };
    const unpacked = rowIndex.map((r) => {
      const words = Array.from({ length: piece.words }, (_, i) => word(r, i));
      return codesOf(weight, words, `t${r}`);
    });
    // Of each part of the piece: its products, what offsets add to them, and the sum of x.
    const parts = Array.from({ length: runs }, (_, g) => (runs === 1 ? '' : `_${g}`));
    if (quantised !== null)
      for (const g of parts) {
        for (const r of rowIndex) for (const b of batchIndex) lines.push(`var d${r}_${b}${g} = 0.0;`);
        if (biased) for (const b of batchIndex) lines.push(`var c_${b}${g} = 0.0; var s_${b}${g} = 0.0;`);
      }
    for (let first = 0; first < piece.cols; first += run) {
      const g = parts[Math.floor((first * runs) / piece.cols)]!;
      lines.push('{');
      const offsets = new Map<number, number[]>();
      for (let j = 0; j < run; j++) {
        const offset = unpacked[0]!.codes[first + j]!.offset;
        offsets.set(offset, [...(offsets.get(offset) ?? []), j]);
      }
      for (const b of batchIndex) {
        for (let q = 0; q < run / 4; q++)
          lines.push(`  let x${b}_${q} = xs[at + ${b * stageRow + (first / 4 + q) * stride}u];`);
        if (quantised !== null && biased) {
          const sums: string[] = [];
          for (const [offset, columns] of offsets) {
            const sum = `o${b}_${offset}`;
            lines.push(`  let ${sum} = ${columns.map((j) => xOf(b, j)).join(' + ')};`);
            lines.push(`  c_${b}${g} = fma(${sum}, ${offset}.0, c_${b}${g});`);
            sums.push(sum);
          }
          lines.push(`  s_${b}${g} += ${sums.join(' + ')};`);
        }
      }
      for (const r of rowIndex) {
        const { codes, lines: lets } = unpacked[r]!;
        for (const text of lets) if (usedIn(text, codes, first, run)) lines.push(`  ${text}`);
        for (let j = 0; j < run; j++) {
          const value = codes[first + j]!.text;
          if (batch === 1) {
            const into = quantised === null ? `acc${r}_0` : `d${r}_0${g}`;
            lines.push(`  ${into} = fma(${value}, ${xOf(0, j)}, ${into});`);
            continue;
          }
          lines.push(`  let v${r}_${j} = ${value};`);
          for (const b of batchIndex) {
            const into = quantised === null ? `acc${r}_${b}` : `d${r}_${b}${g}`;
            lines.push(`  ${into} = fma(v${r}_${j}, ${xOf(b, j)}, ${into});`);
          }
        }
      }
      lines.push('}');
    }
    if (scales !== null)
      for (const r of rowIndex) {
        lines.push(
          ...scales.lines(
            metas.map((_, m) => metaName(slot, r, m)),
            'p',
            `sb${r}_`,
          ),
        );
        parts.forEach((g, part) => {
          const sb = `sb${r}_${part}`;
          for (const b of batchIndex) {
            const [acc, d] = [`acc${r}_${b}`, `d${r}_${b}${g}`];
            lines.push(
              biased
                ? `${acc} = fma(${sb}.x, ${d} - c_${b}${g}, fma(${sb}.y, s_${b}${g}, ${acc}));`
                : `${acc} = fma(${sb}.x, ${d}, ${acc});`,
            );
          }
        });
      }
    return lines.map((line) => `${pad}${line}`).join('\n');
  };

  /** The piece of a lane in a step, where its scales ask for it. */
  function ownPiece(step: string): string {
    return weight.kind !== 'float' && weight.kind !== 'affine'
      ? `\n      let p = (${step}) * ${lanes}u + lane;`
      : '';
  }

  function stepLoop(): string {
    if (turns === 1 && chunks === 1)
      return `    {\n      let at = split * ${quads * stride}u + lane;${ownPiece('split')}\n${compute('a', '      ')}\n    }`;
    const last = steps / splits - 1;
    return `    for (var t = 0u; t < ${turns}u; t++) {
      let turn = chunk * ${turns}u + t;
${chunks * turns > last + 1 ? `      if (turn > ${last}u) { break; }` : ''}
${load('b', `min(turn + 1u, ${last}u) * ${splits}u + split`, '      ')}
      let at = (t * ${splits}u + split) * ${quads * stride}u + lane;${ownPiece(`turn * ${splits}u + split`)}
${compute('a', '      ')}
${rowIndex
  .map(
    (r) =>
      `      ${Array.from({ length: loads }, (_, i) => `wa${r}_${i} = wb${r}_${i};`).join(' ')}${metas
        .map((_, m) => ` ${metaName('a', r, m)} = ${metaName('b', r, m)};`)
        .join('')}`,
  )
  .join('\n')}
    }`;
  }

  return {
    codes: vector,
    codesAt: (row) => `${row} * ${wordsPerRow / piece.vector}u`,
    metasAt: (row) => `${row} * ${rowMetaWords(weight, k)}u`,
    declarations: `${declare('a')}\n${steps > splits ? declare('b') : ''}`,
    first: load('a', 'split', '  '),
    loop: stepLoop(),
  };
}

/** Word `m` of the metas of a piece of row r. */
function metaName(slot: string, r: number, m: number): string {
  return `m${slot}${r}${m === 0 ? '' : `_${m}`}`;
}

function xOf(b: number, j: number): string {
  return `x${b}_${j >> 2}.${'xyzw'[j & 3]}`;
}
