import { describe, expect, it } from 'vitest';
import { kvFormatName, kvTokenBytes } from '../device/kv.js';
import { AFFINE_BITS, AFFINE_GROUPS } from '../device/kv-formats/affine.js';
import { TURBO_BITS } from '../device/turboquant/codebooks.js';
import { kvChoiceName, parseKvChoice, parseKvFormat } from './formats.js';

describe('KV format names', () => {
  const names = [
    'f16',
    'f32',
    ...AFFINE_BITS.flatMap((b) => AFFINE_GROUPS.map((g) => `affine${b}${g === 64 ? '' : `-g${g}`}`)),
    ...TURBO_BITS.flatMap((b) => [`turbo${b}`, `turbo${b}-plain`]),
  ];

  it('are read as they are written', () => {
    for (const name of names) expect(kvFormatName(parseKvFormat(name))).toBe(name);
    expect(parseKvFormat('affine4')).toEqual({ kind: 'affine', bits: 4, groupSize: 64 });
    expect(parseKvFormat('affine5-g128')).toEqual({ kind: 'affine', bits: 5, groupSize: 128 });
    expect(parseKvFormat('turbo8')).toEqual({ kind: 'turboquant', bits: 8 });
  });

  it('name K and V apart', () => {
    for (const key of names)
      for (const value of names) {
        const choice = parseKvChoice(`${key}/${value}`);
        expect(choice).toEqual({ key: parseKvFormat(key), value: parseKvFormat(value) });
        expect(parseKvChoice(kvChoiceName(choice))).toEqual(choice);
      }
    expect(parseKvChoice('turbo3.5')).toEqual(parseKvChoice('turbo3/turbo4'));
    expect(parseKvChoice('turbo3.5-plain')).toEqual(parseKvChoice('turbo3-plain/turbo4'));
    expect(parseKvChoice('turbo2.5')).toEqual(parseKvChoice('turbo2/turbo3'));
    expect(
      ['turbo3/turbo4', 'affine8/affine8', 'affine8/turbo4'].map((n) => kvChoiceName(parseKvChoice(n))),
    ).toEqual(['turbo3.5', 'affine8', 'affine8/turbo4']);
  });

  it.each([
    '',
    'q4',
    'toString',
    'affine',
    'affine7',
    'affine4-g48',
    'affine4-g',
    'turbo5',
    'turbo4.5',
    'turbo0.5',
    'f16/',
    '/f16',
    'f16/f16/f16',
    'F16',
    'turbo3.5/f16',
    'f64',
  ])('refuse %s and name what there is', (name) => {
    expect(() => parseKvChoice(name)).toThrow(
      expect.objectContaining({
        code: 'kv-format-unknown',
        where: 'kvFormat',
        fix: expect.stringMatching(/f16, f32, affine/),
      }),
    );
  });

  it('take the bytes that the tables say', () => {
    const bytes = (name: string, headDim: number) => kvTokenBytes(parseKvFormat(name), headDim, 2) / 2;
    expect(['f16', 'affine8', 'affine4', 'turbo3', 'turbo4'].map((n) => bytes(n, 128))).toEqual([
      256, 136, 72, 50, 66,
    ]);
    // Whole words: 80 values of 3 bits are 30 bytes and take 32.
    expect(bytes('turbo3', 80)).toBe(34);
    // Of 80 values the last group of 64 holds 16.
    expect(bytes('affine4', 80)).toBe(48);
    // Norms go in pairs: an odd head has one to itself.
    expect(kvTokenBytes(parseKvFormat('turbo4'), 64, 1)).toBe(36);
    expect(kvTokenBytes(parseKvFormat('turbo4'), 64, 3)).toBe(3 * 32 + 8);
  });
});
