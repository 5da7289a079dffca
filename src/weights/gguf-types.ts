/**
 * The types of tensors that GGUF files hold: how many elements make a block, and how many bytes it takes.
 * Source: GGML's list of types, as gguf-py publishes it.
 */

/** Name, elements of a block, bytes of a block, by the number that files carry. */
const TYPES = {
  0: ['F32', 1, 4],
  1: ['F16', 1, 2],
  2: ['Q4_0', 32, 18],
  3: ['Q4_1', 32, 20],
  6: ['Q5_0', 32, 22],
  7: ['Q5_1', 32, 24],
  8: ['Q8_0', 32, 34],
  9: ['Q8_1', 32, 40],
  10: ['Q2_K', 256, 84],
  11: ['Q3_K', 256, 110],
  12: ['Q4_K', 256, 144],
  13: ['Q5_K', 256, 176],
  14: ['Q6_K', 256, 210],
  15: ['Q8_K', 256, 292],
  16: ['IQ2_XXS', 256, 66],
  17: ['IQ2_XS', 256, 74],
  18: ['IQ3_XXS', 256, 98],
  19: ['IQ1_S', 256, 50],
  20: ['IQ4_NL', 32, 18],
  21: ['IQ3_S', 256, 110],
  22: ['IQ2_S', 256, 82],
  23: ['IQ4_XS', 256, 136],
  24: ['I8', 1, 1],
  25: ['I16', 1, 2],
  26: ['I32', 1, 4],
  27: ['I64', 1, 8],
  28: ['F64', 1, 8],
  29: ['IQ1_M', 256, 56],
  30: ['BF16', 1, 2],
  34: ['TQ1_0', 256, 54],
  35: ['TQ2_0', 256, 66],
  39: ['MXFP4', 32, 17],
  40: ['NVFP4', 64, 36],
  41: ['Q1_0', 128, 18],
  42: ['Q2_0', 64, 18],
} as const satisfies Record<number, readonly [string, number, number]>;

export type GgufTypeName = (typeof TYPES)[keyof typeof TYPES][0];

export interface GgufType {
  readonly name: GgufTypeName;
  /** Elements of a block; a row is whole blocks. */
  readonly elements: number;
  /** Bytes of a block. */
  readonly bytes: number;
}

/** @returns undefined for a number that stands for nothing, or for a type that was withdrawn */
export function ggufType(id: number): GgufType | undefined {
  const [name, elements, bytes] = (TYPES as Record<number, (typeof TYPES)[keyof typeof TYPES]>)[id] ?? [];
  return name === undefined ? undefined : { name, elements: elements!, bytes: bytes! };
}

/** Types that were withdrawn: errors name them. */
const OTHER_TYPES: Readonly<Record<number, string>> = {
  4: 'Q4_2',
  5: 'Q4_3',
  31: 'Q4_0_4_4',
  32: 'Q4_0_4_8',
  33: 'Q4_0_8_8',
};
/** These numbers are of types that ik_llama.cpp alone has. */
const [FIRST_OF_IK, LAST_OF_IK] = [133, 399];

/** What a type is called that {@link ggufType} does not know, as far as it is known. */
export function otherTypeName(id: number): string {
  if (Object.hasOwn(OTHER_TYPES, id)) return `${OTHER_TYPES[id]}, which was withdrawn`;
  return id >= FIRST_OF_IK && id <= LAST_OF_IK
    ? `${id}, which is one of ik_llama.cpp's own`
    : `${id}, which is not known`;
}
