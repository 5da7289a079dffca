import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { turbo } from '../../../../test/devices/kv-cases.js';
import { randomKvWords } from '../../../../test/devices/kv-words.js';
import { fromF16Bits, Random } from '../../../../test/devices/numbers.js';
import { emulateMatrices } from '../../../../test/setup/emulate-matrices.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import type { AttendShape } from './attend.js';
import { type PrefillConfig, planPrefill, prefillFits, tileSizes } from './attend-prefill-plan.js';
import { tileSide } from './attend-prefill-tiles.js';
import { count } from './attend-words.js';
import { allRows } from './kv-rows.js';

const KV_HEADS = 3;
const MAX_BLOCKS = 5;

interface Case {
  readonly name: 'keys' | 'values';
  readonly keys: number;
  readonly rows: number;
  readonly blockTokens: number;
  readonly window: boolean;
  /** The tile's first position, and what rows see. */
  readonly base: number;
  readonly low: number;
  readonly last: number;
  readonly kind: 'pieces' | 'words';
}

/** Tiles of which rows see all, some, one position, or in parts of 16 nothing. */
const SEEN = [
  { base: 64, low: 0, last: 200, window: false },
  { base: 64, low: 0, last: 64, window: false },
  { base: 0, low: 0, last: 21, window: false },
  { base: 64, low: 64, last: 127, window: true },
  { base: 64, low: 85, last: 90, window: true },
  { base: 64, low: 95, last: 95, window: true },
];
const CASES: readonly Case[] = [
  ...[16, 32, 64].flatMap((blockTokens) =>
    SEEN.map((seen) => ({
      name: 'values' as const,
      keys: 64,
      rows: 64,
      blockTokens,
      ...seen,
      kind: 'pieces' as const,
    })),
  ),
  ...(['keys', 'values'] as const).flatMap((name) =>
    SEEN.map((seen) => ({ name, keys: 32, rows: 32, blockTokens: 32, ...seen, kind: 'pieces' as const })),
  ),
  // More threads than pieces.
  ...(['keys', 'values'] as const).flatMap((name) =>
    SEEN.slice(3).map((seen) => ({
      name,
      keys: 32,
      rows: 128,
      blockTokens: 16,
      ...seen,
      kind: 'words' as const,
    })),
  ),
];

/** What a tile of keys in fields and of values that lie transposed is staged as, halves as f32 (emulate-matrices.ts): the products have a test of their own. */
describe('TurboQuant 4 at head_dim 128 in tiles', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(CASES)(
    '$name, of $keys from $base, $low to $last seen, $rows rows, blocks of $blockTokens: $kind',
    async ({ name, keys, rows, blockTokens, window, base, low, last, kind }) => {
      const config: PrefillConfig = {
        matrix: { m: 16, n: 16, k: 16, component: 'f16', result: 'f32' },
        subgroupSize: 32,
        keys,
        rows,
        workgroupBytes: 65536,
      };
      const blocks = MAX_BLOCKS * (64 / blockTokens) + 2;
      const maxBlocks = blocks - 2;
      const shape: AttendShape = {
        heads: 8 * KV_HEADS,
        kvHeads: KV_HEADS,
        headDim: 128,
        key: turbo(4),
        value: turbo(4),
        blockTokens,
        maxBlocksPerSlot: maxBlocks,
        scale: 1,
        window: window ? last - low + 1 : null,
        softcap: null,
        maxItems: 0,
        rows: allRows(blocks),
      };
      expect(prefillFits(shape, config)).toBe(true);
      const side = tileSide(shape, tileSizes(shape, config), name);
      expect(side.kind).toBe(kind);
      const { subs, stride } = planPrefill(shape, config);
      const { headDim } = shape;
      const stored = randomKvWords(
        shape.value,
        name === 'keys' ? 'key' : 'value',
        { headDim, kvHeads: KV_HEADS, blockTokens, blocks },
        new Random(keys + base + last),
      );
      const tables = Uint32Array.from({ length: maxBlocks }, (_, i) => blocks - 1 - i);
      const threads = subs * 32;
      const staged = (keys * stride) / 8;
      // What the emulation's own text is about, though there is no product here.
      const matrices = ['Left', 'Right', 'Sum'].map((name) => `alias ${name} = array<f32, 256>;`);
      const wgsl = `enable f16;
${matrices.join('\n')}
@group(0) @binding(0) var<storage, read> ${name}: ${side.type};
@group(0) @binding(1) var<storage, read> tables: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> dims: array<u32>;
var<workgroup> staged: array<vec4<u32>, ${staged}>;
${side.declarations}
${side.helper}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let kv = wid.x;
  let slot = 0u;
  let base = ${base}u;
  let low_first = ${low}u;
  let last = ${last}u;
  ${side.prepare}
  ${side.variables.join('\n')}
  workgroupBarrier();
  ${side.fetch('base').join('\n')}
  ${side.stage().join('\n')}
  workgroupBarrier();
  for (var i = lid; i < ${staged}u; i += ${threads}u) { out[kv * ${staged}u + i] = staged[i]; }
  for (var i = lid; i < ${headDim}u; i += ${threads}u) { dims[i] = ${side.dimOf('i')}; }
}`;
      const [outBytes, dimBytes] = [KV_HEADS * staged * 16, headDim * 4];
      const made = [outBytes, dimBytes].map((size) => raw.createBuffer({ size, usage: 128 | 4 }));
      const buffers = [uploadTo(raw, stored.words), uploadTo(raw, tables), ...made];
      const pipeline = await raw.createComputePipelineAsync({
        layout: 'auto',
        compute: { module: raw.createShaderModule({ code: emulateMatrices(wgsl, 16) }) },
      });
      const back = raw.createBuffer({ size: outBytes + dimBytes, usage: 1 | 8 });
      const encoder = raw.createCommandEncoder();
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
      pass.setBindGroup(0, raw.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
      pass.dispatchWorkgroups(KV_HEADS);
      pass.end();
      encoder.copyBufferToBuffer(made[0]!, 0, back, 0, outBytes);
      encoder.copyBufferToBuffer(made[1]!, 0, back, outBytes, dimBytes);
      raw.queue.submit([encoder.finish()]);
      await back.mapAsync(1);
      const halves = new Uint16Array(back.getMappedRange(0, outBytes).slice(0));
      const dims = new Uint32Array(back.getMappedRange(outBytes, dimBytes).slice(0));
      for (const buffer of [...buffers, back]) buffer.destroy();

      expect([...dims].sort((a, b) => a - b)).toEqual(count(headDim));
      let worst = 0;
      let finite = true;
      for (const kv of count(KV_HEADS))
        for (const i of count(keys)) {
          const t = base + i;
          const row = halves.subarray((kv * staged * 16) / 2 + i * stride).subarray(0, headDim);
          const got = Array.from(row, fromF16Bits);
          finite &&= got.every(Number.isFinite);
          if (t < low || t > last) continue;
          stored.vector(tables[Math.floor(t / blockTokens)]!, kv, t % blockTokens).forEach((v, d) => {
            worst = Math.max(worst, Math.abs(got[dims.indexOf(d)]! - v) / Math.max(0.1, Math.abs(v)));
          });
        }
      expect(finite).toBe(true);
      expect(worst).toBeLessThan(6e-4);
    },
  );
});
