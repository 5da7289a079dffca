import { describe, expect, it } from 'vitest';
import { kvLayerBlockBytes } from '../device/kv.js';
import { placesOf } from './groups.js';
import { type KvOptions, readKvOptions } from './options.js';
import { defaultKvFormat, groupLayers, type KvLayerShape, planKvLayers } from './policy.js';

const full: KvLayerShape = { kvHeads: 2, headDim: 64, window: null, group: 0 };
const sliding: KvLayerShape = { ...full, window: 32 };
const f16 = { kind: 'float', dtype: 'f16' } as const;

function plan(layers: readonly KvLayerShape[], options: KvOptions, context?: number) {
  return planKvLayers(layers, readKvOptions(options), f16, context);
}
const stack = (depth: number): KvLayerShape[] => new Array(depth).fill(full);
const keys = (layers: readonly KvLayerShape[], options: KvOptions) =>
  plan(layers, options).info.map(({ key }) => key);

describe('layer policy', () => {
  it('keeps the last attention layer float where there are more than two', () => {
    for (const options of [{ kvBits: 8 }, { kvFormat: 'turbo3.5' }]) {
      const name = options.kvBits === undefined ? 'turbo3' : 'affine8';
      expect(keys(stack(1), options)).toEqual([name]);
      expect(keys(stack(2), options)).toEqual([name, name]);
      expect(keys(stack(3), options)).toEqual([name, name, 'f16']);
      expect(keys(stack(28), options)).toEqual([...new Array(27).fill(name), 'f16']);
    }
    const last = plan(stack(3), { kvBits: 3.5 }).info[2]!;
    expect(last).toMatchObject({
      layer: 2,
      key: 'f16',
      value: 'f16',
      reason: expect.stringMatching(/last attention/),
    });
  });

  it('skips the layers that are named, from either end, and no others', () => {
    expect(keys(stack(3), { kvBits: 8, kvSkipLayers: [] })).toEqual(['affine8', 'affine8', 'affine8']);
    expect(keys(stack(4), { kvBits: 8, kvSkipLayers: [0, -2] })).toEqual([
      'f16',
      'affine8',
      'f16',
      'affine8',
    ]);
    expect(keys(stack(1), { kvBits: 8, kvSkipLayers: [-1] })).toEqual(['f16']);
    for (const layer of [3, -4])
      expect(() => keys(stack(3), { kvBits: 8, kvSkipLayers: [layer] })).toThrow(
        expect.objectContaining({ code: 'kv-layer-unknown', where: 'kvSkipLayers' }),
      );
  });

  it('keeps sliding layers float, and the last of the others', () => {
    const hybrid = [sliding, full, sliding, full, sliding, full, sliding];
    const { info } = plan(hybrid, { kvBits: 8 });
    expect(info.map(({ key }) => key)).toEqual(['f16', 'affine8', 'f16', 'affine8', 'f16', 'f16', 'f16']);
    expect(info[0]).toMatchObject({ kind: 'sliding', reason: expect.stringMatching(/sliding/) });
    expect(info[5]).toMatchObject({ kind: 'full', reason: expect.stringMatching(/last attention/) });
    // Two that can be quantised: both are.
    expect(keys([sliding, full, sliding, full], { kvBits: 8 })).toEqual(['f16', 'affine8', 'f16', 'affine8']);
  });

  it('falls back where a layer cannot use a format, side by side', () => {
    const odd = { ...full, headDim: 100 };
    const wide = { ...full, headDim: 512 };
    expect(plan([odd], { kvBits: 8 }).info[0]).toMatchObject({
      key: 'f16',
      reason: expect.stringMatching(/100/),
    });
    expect(plan([wide], { kvFormat: 'affine8/turbo4' }).info[0]).toMatchObject({
      key: 'f16',
      value: 'f16',
      reason: expect.stringMatching(/512/),
    });
    expect(keys([{ ...full, headDim: 80 }], { kvBits: 3.5 })).toEqual(['turbo3']);
  });

  it('takes the float format that is named, or the one of the device', () => {
    expect(plan(stack(3), { kvFormat: 'f32/affine4' }).info.map((l) => `${l.key} ${l.value}`)).toEqual([
      'f32 affine4',
      'f32 affine4',
      'f32 f32',
    ]);
    expect(plan(stack(2), {}).info[0]).toEqual({
      layer: 0,
      kind: 'full',
      key: 'f16',
      value: 'f16',
      keyBytes: 256,
      valueBytes: 256,
    });
    expect(defaultKvFormat({ precision: 'reference' })).toEqual({ kind: 'float', dtype: 'f32' });
    expect(defaultKvFormat({ precision: 'default' })).toEqual(f16);
  });

  it('counts codes, scales, norms and padding, and blocks stay aligned', () => {
    for (const kvHeads of [1, 2, 3, 8])
      for (const headDim of [8, 64, 80, 96, 128, 256])
        for (const kvFormat of [
          'affine8',
          'affine3-g32',
          'affine5',
          'turbo2.5',
          'turbo3.5',
          'affine8/turbo4',
        ]) {
          const { layers, info } = plan([{ ...full, kvHeads, headDim }], { kvFormat });
          const bytes = info[0]!.keyBytes + info[0]!.valueBytes;
          expect(kvLayerBlockBytes(layers[0]!, 16)).toBe(16 * bytes);
          expect(kvLayerBlockBytes(layers[0]!, 16) % 64).toBe(0);
        }
  });

  it('keeps sequences float up to the start, and for good where none gets so far', () => {
    expect(plan(stack(3), { kvBits: 8 }).floatStart).toBeNull();
    expect(plan(stack(3), { kvBits: 8, quantizedKvStart: 100 }).floatStart).toEqual({
      start: 100,
      dtype: 'f16',
    });
    expect(plan(stack(3), { kvFormat: 'f32/affine8', quantizedKvStart: 9 }).floatStart).toEqual({
      start: 9,
      dtype: 'f32',
    });
    expect(plan(stack(3), { kvBits: 8, quantizedKvStart: 99 }, 100).floatStart).not.toBeNull();
    const never = plan(stack(3), { kvBits: 8, quantizedKvStart: 100 }, 100);
    expect(never.floatStart).toBeNull();
    expect(never.info.map(({ key }) => key)).toEqual(['f16', 'f16', 'f16']);
    expect(never.info[0]!.reason).toMatch(/100 tokens reaches the 100/);
    // Nothing is quantised here, so nothing has to be converted.
    expect(plan([sliding], { kvBits: 8, quantizedKvStart: 10 }).floatStart).toBeNull();
  });

  it('a float tail slides beside the layers that are quantised, before a float head', () => {
    const tailed = (options: KvOptions) =>
      planKvLayers([full, sliding, full, full, full], readKvOptions(options), f16, 1000, 16, {
        floatHeads: true,
        floatTails: 256,
      });
    const { groups, floatTail } = tailed({ kvBits: 8, kvFloatTail: 100, kvFloatHead: 32 });
    expect(floatTail).toEqual({ tokens: 100, dtype: 'f16' });
    expect(groups).toEqual([
      { window: null, layers: [0, 2, 3, 4] },
      { window: 32, layers: [1] },
      { window: 100, layers: [0, 2, 3], tail: true },
      { window: null, layers: [0, 2, 3, 4], head: 32 },
    ]);
    expect(placesOf(groups)).toEqual([
      { group: 0, index: 0, tail: { group: 2, index: 0, tokens: 100 } },
      { group: 1, index: 0 },
      { group: 0, index: 1, tail: { group: 2, index: 1, tokens: 100 } },
      { group: 0, index: 2, tail: { group: 2, index: 2, tokens: 100 } },
      { group: 0, index: 3 },
    ]);
    const asked = tailed({ kvFormat: 'f32/affine8', kvFloatTail: 9 });
    expect(groupLayers(asked, asked.groups[2]!)[0]).toMatchObject({
      key: { dtype: 'f32' },
      value: { dtype: 'f32' },
    });
    expect(tailed({ kvBits: 8 }).floatTail).toBeNull();
    expect(() => plan(stack(3), { kvBits: 8, kvFloatTail: 64 })).toThrow(
      expect.objectContaining({ code: 'kv-tail-unsupported', where: 'kvFloatTail' }),
    );
    for (const kvFloatTail of [-1, 1.5])
      expect(() => readKvOptions({ kvBits: 8, kvFloatTail })).toThrow(/no number of tokens/);
    expect(() => readKvOptions({ kvFloatTail: 64 })).toThrow(/float from first to last/);
  });
});
