import { describe, expect, it } from 'vitest';
import { kvFormatName } from '../device/kv.js';
import { KvantError } from '../errors.js';
import { type KvOptions, readKvOptions } from './options.js';

function names(options: KvOptions): string {
  const { key, value } = readKvOptions(options);
  return [key, value].map((format) => (format === null ? '-' : kvFormatName(format))).join(' ');
}

function refusal(options: KvOptions): string {
  try {
    readKvOptions(options);
  } catch (error) {
    if (!(error instanceof KvantError)) throw error;
    expect(error.kind).toBe('invalid-request');
    expect(error.fix).toMatch(/\w/);
    return `${error.where}: ${error.message}`;
  }
  throw new Error('it was taken');
}

describe('KV options', () => {
  it.each([
    [{}, '- -'],
    [{ kvFormat: 'affine8/turbo4' }, 'affine8 turbo4'],
    [{ kvBits: 8 }, 'affine8 affine8'],
    [{ kvBits: 4, kvGroupSize: 32 }, 'affine4-g32 affine4-g32'],
    [{ kvBits: 6, kvQuantScheme: 'uniform' }, 'affine6 affine6'],
    [{ kvBits: 4, kvQuantScheme: 'turboquant' }, 'turbo4 turbo4'],
    // A fraction means TurboQuant, K the lower, V the higher.
    [{ kvBits: 3.5 }, 'turbo3 turbo4'],
    [{ kvBits: 2.5, kvQuantScheme: 'turboquant' }, 'turbo2 turbo3'],
    // One side apart.
    [{ kvBits: 8, kvValueBits: 4 }, 'affine8 affine4'],
    [{ kvBits: 3.5, kvKeyBits: 8 }, 'turbo8 turbo4'],
    [{ kvBits: 3.5, kvKeyBits: 8, kvKeyScheme: 'uniform' }, 'affine8 turbo4'],
    [{ kvBits: 8, kvValueScheme: 'turboquant', kvValueBits: 3 }, 'affine8 turbo3'],
    [{ kvKeyBits: 8, kvValueBits: 4, kvGroupSize: 128 }, 'affine8-g128 affine4-g128'],
    [{ kvKeyBits: 8 }, 'affine8 -'],
    [{ kvValueBits: 4, kvQuantScheme: 'turboquant' }, '- turbo4'],
    [{ kvKeyBits: 4, kvValueBits: 4, kvKeyScheme: 'uniform', kvValueScheme: 'turboquant' }, 'affine4 turbo4'],
  ] as const)('%j come to %s', (options, expected) => {
    expect(names(options)).toBe(expected);
  });

  it.each([
    [{ kvBits: 7 }, /^kvBits: Uniform quantisation has no 7 bits/],
    [{ kvBits: 1 }, /^kvBits/],
    [{ kvBits: 16 }, /^kvBits/],
    [{ kvBits: 0 }, /^kvBits/],
    [{ kvBits: -4 }, /^kvBits/],
    [{ kvBits: Number.NaN }, /^kvBits/],
    [{ kvBits: 3.25 }, /^kvBits: 3.25 bits/],
    [{ kvBits: 4.5 }, /^kvBits: TurboQuant has no 5 bits, which 4.5 means for V/],
    [{ kvBits: 1.5 }, /^kvBits: TurboQuant has no 1 bits, which 1.5 means for K/],
    [{ kvBits: 6, kvQuantScheme: 'turboquant' }, /^kvBits: TurboQuant has no 6 bits/],
    // What sank others: 3.5 cut to 3 on the uniform path.
    [{ kvBits: 3.5, kvQuantScheme: 'uniform' }, /^kvQuantScheme: 3.5 bits mean TurboQuant/],
    [{ kvBits: 3.5, kvKeyScheme: 'uniform' }, /^kvKeyScheme: 3.5 bits mean TurboQuant/],
    [{ kvBits: 3.5, kvValueScheme: 'uniform', kvKeyBits: 8 }, /^kvValueScheme/],
    [{ kvKeyBits: 3.5 }, /^kvKeyBits: 3.5 bits cannot be had for one side/],
    [{ kvBits: 8, kvValueBits: 2.5 }, /^kvValueBits/],
    [{ kvBits: 8, kvGroupSize: 48 }, /^kvGroupSize: A group of 48/],
    [{ kvBits: 3.5, kvGroupSize: 64 }, /^kvGroupSize: .*TurboQuant has no groups/],
    [{ kvGroupSize: 64 }, /^kvGroupSize: .*no bits/],
    [{ kvQuantScheme: 'turboquant' }, /^kvQuantScheme: .*no bits/],
    [{ kvKeyBits: 8, kvValueScheme: 'turboquant' }, /^kvValueScheme: .*no bits/],
    [{ kvBits: 8, kvQuantScheme: 'magic' as 'uniform' }, /^kvQuantScheme: There is no scheme "magic"/],
    [{ kvFormat: 'affine8', kvBits: 8 }, /^kvBits: .*named .affine8./],
    [{ kvFormat: 'q4' }, /^kvFormat/],
    [{ kvFormat: '' }, /^kvFormat/],
    [{ quantizedKvStart: 100 }, /^quantizedKvStart: .*float/],
    [{ kvBits: 8, quantizedKvStart: -1 }, /^quantizedKvStart/],
    [{ kvBits: 8, quantizedKvStart: 1.5 }, /^quantizedKvStart/],
    [{ kvFormat: 'f16', quantizedKvStart: 5 }, /^quantizedKvStart/],
    [{ kvSkipLayers: [0] }, /^kvSkipLayers: .*float/],
    [{ kvBits: 8, kvSkipLayers: [0.5] }, /^kvSkipLayers/],
  ] as const)('%j are refused: %s', (options, why) => {
    expect(refusal(options)).toMatch(why);
  });

  it('pass the start and the layers on', () => {
    expect(readKvOptions({})).toMatchObject({ quantizedStart: 0, skipLayers: null });
    expect(readKvOptions({ quantizedKvStart: 0, kvSkipLayers: [] })).toMatchObject({ skipLayers: [] });
    expect(readKvOptions({ kvBits: 8, quantizedKvStart: 512, kvSkipLayers: [0, -1] })).toMatchObject({
      quantizedStart: 512,
      skipLayers: [0, -1],
    });
  });
});
