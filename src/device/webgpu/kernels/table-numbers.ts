/**
 * The numbers of a table of four-bit codes, for kernels that read them one by one: sixteen floats in workgroup memory. Each lies in a bank
 * of its own, and lanes that want the same one share it, so a look-up takes one turn whatever the codes.
 */

import { LUT4_TABLES, type Lut4Table } from '../../weights.js';
import { f32ToF16 } from '../half.js';
import { TABLE_NUMBERS } from './group-scales.js';

/** Bytes of workgroup memory. */
export const TABLE_BYTES = 64;

const NAME = 'table_numbers';

/** What halves of numbers are divided by, so that their scale does not leave the range of halves. */
export const HALF_NUMBERS = { e2m1: 8, iq4: 128 } as const satisfies Record<Lut4Table, number>;

/** What a table holds: floats; bits of halves, {@link HALF_NUMBERS}; or bytes, those of negative numbers as 8 bits. */
export type TableForm = 'floats' | 'halves' | 'bytes';

/** Declares the table: it is filled by {@link fillTable}. */
export function declareTable(table: Lut4Table, form: TableForm): string {
  const { times } = TABLE_NUMBERS[table];
  const numbers = LUT4_TABLES[table].map((v) => {
    const whole = times * v + 0;
    if (form === 'floats') return `${whole}.0`;
    return form === 'halves' ? `${f32ToF16(whole / HALF_NUMBERS[table])}u` : `${whole & 255}u`;
  });
  const type = form === 'floats' ? 'f32' : 'u32';
  return `var<workgroup> ${NAME}: array<${type}, 16>;
const TABLE_OF_CODES = array<${type}, 16>(${numbers.join(', ')});`;
}

/** A barrier has to stand between this and the first look-up. */
export function fillTable(threads: number): string {
  return `for (var code = lid; code < 16u; code += ${threads}u) { ${NAME}[code] = TABLE_OF_CODES[code]; }`;
}

/** The element of the table for code i of a word. */
export function lookUp(word: string, i: number): string {
  return `${NAME}[${i === 0 ? word : `(${word} >> ${4 * i}u)`} & 15u]`;
}

/** The numbers of the eight codes of each word. */
export function lookUpCodes(words: readonly string[]): { text: string; offset: number }[] {
  return words.flatMap((word) => Array.from({ length: 8 }, (_, i) => ({ text: lookUp(word, i), offset: 0 })));
}

/**
 * Lines that make the numbers of the eight codes of each word of a vector bytes, `<even>` those of codes 0, 2, 4 and 6 and `<odd>` the others.
 * Of iq4 they are looked up. Those of e2m1 are computed, eight at a time: doubled, a code below 4 is its own number, and above, with `low` its
 * lower bits, 4 + 2 · low, and 12 for 7. Bytes of negative ones are made of 128 more, so that none borrows from its neighbour.
 */
export function tableBytes(table: Lut4Table, word: string, even: string, odd: string): string[] {
  if (table === 'iq4') {
    const bytes = (first: number): string => {
      const each = [0, 2, 4, 6].map((i) => {
        const found = ['x', 'y', 'z', 'w'].map((e) => lookUp(`${word}.${e}`, first + i));
        return `(vec4<u32>(${found.join(', ')}) << vec4<u32>(${4 * i}u))`;
      });
      return each.join(' | ');
    };
    return [`let ${even} = ${bytes(0)};`, `let ${odd} = ${bytes(1)};`];
  }
  const all = (v: number): string => `vec4<u32>(0x${v.toString(16).padStart(8, '0')}u)`;
  const by = (bits: number): string => `vec4<u32>(${bits}u)`;
  const [size, twice, minus] = [`${even}_size`, `${even}_twice`, `${even}_minus`];
  const signed = (v: string, m: string): string =>
    `(((${v} & ${all(0x0f0f0f0f)}) | ${all(0x80808080)}) - (${m} & ${all(0x1e1e1e1e)})) ^ ${all(0x80808080)}`;
  return [
    `var ${size} = ${word} & ${all(0x77777777)};`,
    `let ${twice} = ${size} & (((${size} >> ${by(2)}) & ${all(0x11111111)}) * 3u);`,
    `${size} += ${twice} + ((${twice} & (${twice} >> ${by(1)}) & ${all(0x11111111)}) << ${by(1)});`,
    `let ${minus} = ${size} & (((${word} >> ${by(3)}) & ${all(0x11111111)}) * 15u);`,
    `let ${even} = ${signed(size, `(${minus} << ${by(1)})`)};`,
    `let ${odd} = ${signed(`(${size} >> ${by(4)})`, `(${minus} >> ${by(3)})`)};`,
  ];
}
