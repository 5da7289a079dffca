import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { parseKvChoice } from '../kv/formats.js';
import { readKvOptions } from '../kv/options.js';
import { addEngineFlags, type EngineFlags, engineOptions } from './flags.js';
import { addKvFlags, type KvFlags, kvOptions } from './kv-flags.js';
import { writtenOut } from './short-flags.js';

function read(...words: string[]): object {
  const command = addKvFlags(new Command('serve').exitOverride().configureOutput({ writeErr: () => {} }));
  command.parse(writtenOut(words), { from: 'user' });
  return kvOptions(command.opts<KvFlags>());
}

describe('unasked', () => {
  const engine = (...words: string[]): object => {
    const command = addEngineFlags(new Command('serve').exitOverride());
    command.parse(words, { from: 'user' });
    return engineOptions(command.opts<EngineFlags>());
  };

  it('what is quantised is calibrated and has a float head; float caches and late ones are left alone', () => {
    expect(engine('--kv-bits', '4')).toMatchObject({ kvCalibration: 'auto', kvFloatHead: 'auto' });
    expect(engine('--kv-bits', '4', '--kv-calibration', 'a.kvcal')).toMatchObject({
      kvCalibration: 'a.kvcal',
    });
    const off = engine('--kv-bits', '4', '--no-kv-calibration', '--kv-float-head', '0');
    expect(off).toMatchObject({ kvBits: 4, kvFloatHead: 0 });
    expect(off).not.toHaveProperty('kvCalibration');
    for (const words of [[], ['--kv-format', 'f32']]) {
      expect(engine(...words)).not.toHaveProperty('kvCalibration');
      expect(engine(...words)).not.toHaveProperty('kvFloatHead');
    }
    expect(readKvOptions({ kvBits: 4, quantizedKvStart: 50, kvFloatHead: 'auto' }).floatHead).toBe(0);
  });
});

describe("llama.cpp's types of the cache", () => {
  it('are formats of this one, K and V apart, a side without one f16', () => {
    expect(read('-ctk', 'q8_0', '-ctv', 'q4_0')).toEqual({
      kvFormat: 'affine8-g32/affine4-g32',
      kvFloatHead: 'auto',
    });
    expect(read('--cache-type-k', 'Q4_1')).toMatchObject({ kvFormat: 'affine4-g32/f16' });
    expect(read('-ctk', 'q5_1', '-ctv', 'q5_0')).toMatchObject({ kvFormat: 'affine5-g32' });
    expect(read('-ctv', 'f32', '--kv-skip-layers', 'none')).toEqual({
      kvFormat: 'f16/f32',
      kvSkipLayers: [],
    });
    expect(read('--kv-bits', '8', '--kv-float-head', '0')).toEqual({ kvBits: 8, kvFloatHead: 0 });
    expect(read('--kv-bits', '8', '--kv-float-tail', '128')).toMatchObject({ kvFloatTail: 128 });
    expect(read('--kv-format', 'f32')).toEqual({ kvFormat: 'f32' });
    for (const type of ['f32', 'f16', 'q8_0', 'q5_1', 'q5_0', 'q4_1', 'q4_0'])
      expect(() => parseKvChoice((read('-ctk', type) as { kvFormat: string }).kvFormat)).not.toThrow();
  });

  it('others, and a cache that is described twice, are refused', () => {
    expect(() => read('-ctk', 'iq4_nl')).toThrow(/Allowed choices/);
    expect(() => read('-ctk', 'q8_0', '--kv-bits', '4')).toThrow(
      expect.objectContaining({ code: 'invalid-flags' }),
    );
  });
});
