import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fromF16Bits, toF16Bits } from '../../../../test/devices/numbers.js';
import { compute, openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import { KV_WGSL } from './kv-format.js';

describe('f16 cache vectors', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it('round to nearest even, with subnormals; the largest f16 stands for what is larger', async () => {
    const values: number[] = [
      0,
      -0,
      65504,
      65519,
      1e9,
      -1e9,
      3e38,
      -65520,
      2 ** -24,
      2 ** -25,
      1.5 * 2 ** -25,
    ];
    for (let bits = 0; bits < 0x7bff; bits += 7) {
      const [low, high] = [fromF16Bits(bits), fromF16Bits(bits + 1)];
      values.push(low, -high, (low + high) / 2, low * 0.75 + high * 0.25, -(low * 0.25 + high * 0.75));
    }
    while (values.length % 4 !== 0) values.push(1);
    const input = Float32Array.from(values);
    const out = await compute(
      raw,
      KV_WGSL,
      `if (i >= ${input.length / 4}u) { return; }
       let at = i * 4u;
       let v = bitcast<vec4<f32>>(vec4<u32>(given[at], given[at + 1u], given[at + 2u], given[at + 3u]));
       let packed_ = pack_four(v);
       out[2u * i] = packed_.x;
       out[2u * i + 1u] = packed_.y;`,
      new Uint32Array(input.buffer),
      input.length / 2,
    );
    const got = new Uint16Array(out.buffer);
    input.forEach((value, i) => {
      const want = toF16Bits(Math.max(-65504, Math.min(65504, value)));
      expect(got[i], `${value}`).toBe(want);
    });
  });

  it('keep NaN', async () => {
    const input = new Float32Array([Number.NaN, 1, 2, 3]);
    const out = await compute(
      raw,
      KV_WGSL,
      `if (i >= 1u) { return; }
       let v = bitcast<vec4<f32>>(vec4<u32>(given[0], given[1], given[2], given[3]));
       out[0] = pack_four(v).x;`,
      new Uint32Array(input.buffer),
      1,
    );
    expect(fromF16Bits(out[0]! & 0xffff)).toBeNaN();
    expect(fromF16Bits(out[0]! >>> 16)).toBe(1);
  });
});
