/**
 * What attention hands to a dp4a product as bytes: the merge of rows that decode leaves those that a launch would make of its
 * f32, bit for bit, as a kernel and in a program; and a step with tiles keeps the launch.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import type { Capabilities, Stage } from '../../src/device/webgpu/kernel.js';
import type { AttendShape } from '../../src/device/webgpu/kernels/attend.js';
import { handedBytesStage, leavesBytes } from '../../src/device/webgpu/kernels/attend-out.js';
import { reduceStage } from '../../src/device/webgpu/kernels/attend-reduce.js';
import { allRows } from '../../src/device/webgpu/kernels/kv-rows.js';
import { bytesScratch, HANDED_BYTES } from '../../src/device/webgpu/kernels/linear-bytes.js';
import type { Dp4aConfig } from '../../src/device/webgpu/kernels/linear-dp4a-plan.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import type { BytesLayout } from '../../src/device/webgpu/shapes.js';
import { StepPacker } from '../../src/device/webgpu/step-buffer.js';
import { type AttentionCase, AttentionBench as Bench } from '../devices/attention-bench.js';
import { grid } from '../devices/devices.js';
import { affine, F16, F32, turbo } from '../devices/kv-cases.js';
import { randomKvWords } from '../devices/kv-words.js';
import { Random, worstRow } from '../devices/numbers.js';
import * as reference from '../devices/reference.js';
import { stepOf } from '../devices/run.js';
import { randomMatrix } from '../devices/sources.js';
import { emulateSubgroups } from '../setup/emulate-subgroups.js';
import { casesOf } from '../setup/every-case.js';
import { emptyOn, uploadTo } from '../setup/raw-buffers.js';
import { runKernel } from '../setup/run-kernel.js';
import { openTestDevice } from '../setup/swiftshader.js';

let device: WebGpuDevice;
let raw: GPUDevice;
let plainly: Capabilities;
beforeAll(async () => {
  ({ device, raw } = await openTestDevice({ minLanes: 4 }));
  plainly = device.capabilities;
});
afterAll(async () => {
  await device[Symbol.asyncDispose]();
});

describe('bytes that the merge leaves', () => {
  const HEADS = 4;
  const BLOCK = 32;
  const MOST_ITEMS = 64;
  /** Of rows by turns: one split, its last position and the one behind it, three, and many. */
  const POSITIONS = [5, 255, 256, 600, 1030, 2000, 511, 512];
  /** A row that goes wrong in one number, and one that does in all. */
  const [SPOILT, LOST] = [1, 3];

  interface Case {
    readonly rows: number;
    readonly headDim: 64 | 128;
    readonly bits: 4 | 8;
    readonly pieces: 1 | 2;
    readonly planes: 1 | 2;
    readonly across: 1 | 4;
    readonly slices: 1 | 4;
    readonly value: 'f16' | 'turbo';
    /** Of a subgroup: as many as the device has, or 32 emulated. */
    readonly lanes: 'own' | 'emulated';
  }
  const CASES = grid(
    {
      rows: [1, 2, 4, 8],
      headDim: [64, 128],
      bits: [4, 8],
      pieces: [1, 2],
      planes: [1, 2],
      across: [1, 4],
      slices: [1, 4],
      value: ['f16', 'turbo'],
      lanes: ['own', 'emulated'],
    } as const,
    true,
  ) as readonly Case[];

  it.each(CASES)(
    'are those of a launch: $rows rows, $headDim dims, $value, $bits bits, pieces $pieces, planes $planes, $slices slices, $lanes lanes',
    async (c) => {
      const { rows, headDim, pieces, planes } = c;
      const lanes = c.lanes === 'own' ? plainly.subgroupMaxSize : 32;
      const k = HEADS * headDim;
      const random = new Random(17);
      const layout: BytesLayout = {
        rows,
        k,
        bits: c.bits,
        pieces,
        planes,
        across: c.across,
        chunkSteps: k / (32 * pieces * c.across),
      };
      const kv = c.value === 'f16' ? F16 : turbo(4);
      const shape: AttendShape = {
        heads: HEADS,
        kvHeads: 2,
        headDim,
        key: kv,
        value: kv,
        rows: allRows(1),
        blockTokens: BLOCK,
        maxBlocksPerSlot: 64,
        scale: 1,
        window: null,
        softcap: null,
        maxItems: MOST_ITEMS,
      };
      expect(leavesBytes(shape, layout)).toBe(true);
      const limits = {
        maxTokens: 8,
        maxOutputs: 1,
        maxSequences: 8,
        maxContext: 2048,
        inFlight: 1,
      };
      const packer = new StepPacker(limits, { slots: 8, positions: 2048 }, MOST_ITEMS, true);
      const lengths = new Array<number>(rows).fill(1);
      const words = packer.pack(stepOf(lengths, POSITIONS.slice(0, rows), undefined, limits));
      expect(packer.facts).toMatchObject({ itemRows: rows, tiles: 0 });

      const sums = random.normals(MOST_ITEMS * k);
      const tops = random.normals(MOST_ITEMS * HEADS * 2);
      for (let i = 1; i < tops.length; i += 2) tops[i] = 1 + Math.abs(tops[i]!);
      const itemsOf = (row: number): number => Math.floor(POSITIONS[row]! / 256) + 1;
      const firstOf = (row: number): number => lengths.slice(0, row).reduce((n, _, r) => n + itemsOf(r), 0);
      if (rows > SPOILT) sums[firstOf(SPOILT) * k + headDim + 40] = Number.POSITIVE_INFINITY;
      if (rows > LOST)
        tops.fill(Number.NaN, firstOf(LOST) * HEADS * 2, (firstOf(LOST) + itemsOf(LOST)) * HEADS * 2);

      const place = { headDim, kvHeads: 2, blockTokens: BLOCK, blocks: 1 };
      const out = emptyOn(raw, rows * k * 4);
      const roles = {
        step: uploadTo(raw, packer.words.slice(0, words)),
        scratchSums: uploadTo(raw, sums),
        scratchTops: uploadTo(raw, tops),
        values: uploadTo(raw, randomKvWords(kv, 'value', place, random).words),
        out,
      };
      const run = (stage: Stage, to: Record<string, GPUBuffer>): Promise<Float32Array> => {
        const params = stage.params === undefined ? {} : { params: uploadTo(raw, stage.params, 64 | 8) };
        const ours: Stage = { ...stage, workgroups: (_, size) => stage.workgroups(packer.facts, size) };
        const text = c.lanes === 'own' || !stage.wgsl.includes('subgroup') ? undefined : emulateSubgroups;
        return runKernel(raw, { stages: [ours] }, rows, { ...roles, ...to, ...params }, text);
      };
      const sizes = bytesScratch(layout, HANDED_BYTES);
      const handed = () =>
        Object.fromEntries(Object.entries(sizes).map(([n, size]) => [n, emptyOn(raw, size)]));
      const [apart, together] = [handed(), handed()];
      const floats = await run(reduceStage(shape, c.slices), {});
      const base = { k, xStride: k, rowKind: 'tokens' } as const;
      await run(handedBytesStage(base, { layout, lanes }, 256), { ...apart, x: out });
      await run(reduceStage(shape, c.slices, { layout, lanes }), together);
      const wordsOf = async (buffers: Record<string, GPUBuffer>, role: string): Promise<Uint32Array> => {
        const none: Stage = {
          label: 'nothing',
          wgsl: '@compute @workgroup_size(1) fn main() {}',
          bindings: [],
          workgroups: (_, size) => size.fill(1),
        };
        return new Uint32Array((await runKernel(raw, { stages: [none] }, 1, { out: buffers[role]! })).buffer);
      };
      const { bytes, terms } = HANDED_BYTES;
      const [wanted, got] = [await wordsOf(apart, terms), await wordsOf(together, terms)];
      expect(got).toEqual(wanted);
      const [wantedBytes, gotBytes] = [await wordsOf(apart, bytes), await wordsOf(together, bytes)];
      // Of a piece that went wrong only that it did is told.
      const wrong = new Float32Array(got.buffer).filter(Number.isNaN).length / 2;
      if (wrong === 0) expect(gotBytes).toEqual(wantedBytes);
      else {
        const differing = gotBytes.filter((word, i) => word !== wantedBytes[i]).length;
        expect(differing).toBeLessThanOrEqual((wrong * 32 * pieces * planes) / 4);
      }
      expect(new Set(gotBytes).size).toBeGreaterThan(20);

      const rowOf = (row: number): Float32Array => floats.subarray(row * k, (row + 1) * k);
      for (let row = 0; row < rows; row++)
        expect(rowOf(row).every(Number.isFinite), `row ${row}`).toBe(row !== SPOILT && row !== LOST);
      if (rows > LOST) expect(rowOf(LOST).every(Number.isNaN)).toBe(true);
      // What is rotated back spoils the whole head.
      const poisoned = c.value === 'turbo' ? headDim / (32 * pieces) : 1;
      expect(wrong).toBe((rows > SPOILT ? poisoned : 0) + (rows > LOST ? k / (32 * pieces) : 0));
      for (const buffer of [
        ...Object.values({ ...roles }),
        ...Object.values(apart),
        ...Object.values(together),
      ])
        buffer.destroy();
    },
  );

  it('are not, where a head is no whole pieces, or the product takes another row', () => {
    const layout = { rows: 2, k: 256, bits: 4, pieces: 2, planes: 1, across: 4, chunkSteps: 1 } as const;
    const shape = { heads: 4, kvHeads: 2, headDim: 64 };
    expect(leavesBytes(shape, layout)).toBe(true);
    expect(leavesBytes({ ...shape, heads: 8 }, layout)).toBe(false);
    const odd = { heads: 4, kvHeads: 2, headDim: 96 };
    expect(leavesBytes(odd, { ...layout, k: 384 })).toBe(false);
    expect(leavesBytes(odd, { ...layout, k: 384, pieces: 1 })).toBe(true);
    expect(leavesBytes({ ...odd, headDim: 80 }, { ...layout, k: 320, pieces: 1 })).toBe(false);
  });
});

describe('bytes of attention in a program', () => {
  const OUT = 192;
  /** dp4a takes the product, whatever its size, with two planes of few rows as by the rules. */
  const sizes: Omit<Dp4aConfig, 'subgroupSize' | 'workgroupBytes' | 'planes' | 'pieces'> = {
    across: 2,
    each: 1,
    subgroups: 4,
    splits: 1,
    chunks: 1,
  };
  const withDp4a = (pieces: 1 | 2): Capabilities => ({
    ...plainly,
    tuned: {
      linear: ({ rows }) => {
        if (rows > 8) return undefined;
        const { workgroupBytes, subgroupMaxSize: subgroupSize } = plainly;
        const planes = rows > 2 ? 1 : 2;
        return { family: 'dp4a', config: { ...sizes, pieces, planes, subgroupSize, workgroupBytes } };
      },
      decode: () => undefined,
    },
  });

  /** Two of a kind: between attention and product f32 is kept, or nothing is. */
  async function open(c: AttentionCase, pieces: 1 | 2) {
    Object.assign(device, { capabilities: withDp4a(pieces) });
    try {
      const format = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const;
      const { source, values } = randomMatrix(new Random(5), OUT, c.heads * c.headDim, format);
      const weight = await device.loadMatrix([source], { use: 'linear' });
      const plain = await Bench.open(device, c, 21, { weight, keeps: true });
      const handing = await Bench.open(device, c, 21, { weight, keeps: false });
      return { plain, handing, weights: values };
    } finally {
      Object.assign(device, { capabilities: plainly });
    }
  }
  const labels = ({ program }: Bench, rows: number): string[] => (program as WebGpuProgram).describe(rows, 0);

  const shape = { heads: 4, kvHeads: 2, headDim: 64 };
  const CASES: readonly (readonly [name: string, pieces: 1 | 2, c: AttentionCase])[] = [
    ['f32, a window', 1, { ...shape, key: F32, value: F32, window: 300 }],
    ['affine 4', 1, { ...shape, key: affine(4), value: affine(4) }],
    [
      'TurboQuant and float-start rows',
      2,
      { ...shape, key: turbo(3), value: turbo(4), floatStart: { dtype: 'f16', slots: [1, 2] } },
    ],
  ];

  const MORE: typeof CASES = [
    ['f16', 2, { ...shape, key: F16, value: F16 }],
    ['affine 8, 128 dims', 2, { ...shape, headDim: 128, key: affine(8), value: affine(8) }],
    ['TurboQuant', 1, { ...shape, key: turbo(3), value: turbo(4) }],
  ];

  it.each(casesOf(CASES, MORE))('save the launch, with the same bits: %s', async (_, pieces, c) => {
    const { plain, handing, weights } = await open(c, pieces);
    const k = c.heads * c.headDim;
    for (const rows of [2, 4, 8]) {
      expect(labels(plain, rows)).toContain(`bytes [${k}]`);
      expect(labels(handing, rows)).not.toContain(`bytes [${k}]`);
      expect(labels(handing, rows).some((l) => /^attend reduce.* to bytes$/.test(l))).toBe(true);
    }
    const both = async (slots: number[], lengths: number[], poison: number | null = null): Promise<void> => {
      const where = `slots ${slots} lengths ${lengths}`;
      const rows = lengths.reduce((a, b) => a + b, 0);
      const data = plain.draw(rows);
      const width = (c.heads + 2 * c.kvHeads) * c.headDim;
      if (poison !== null) data.fill(Number.NaN, poison * width, poison * width + k);
      const kept = await plain.step(slots, lengths, data);
      const { product, expected } = await handing.step(slots, lengths, data);
      const [got, same] = [product, kept.product].map((all) =>
        Array.from(all, (v) => (Number.isNaN(v) ? 'NaN' : v)),
      );
      expect(got, where).toEqual(same);
      const wanted = reference.linear(expected, weights, rows, k, OUT);
      for (let row = 0; row < rows; row++) {
        const [own, want] = [product, wanted].map((all) => all.slice(row * OUT, (row + 1) * OUT));
        if (row === poison) expect(own!.every(Number.isNaN), where).toBe(true);
        else expect(worstRow(own!, want!, 1, OUT), `${where}, row ${row}`).toBeLessThan(3e-2);
      }
    };
    // Kernels on codes make a number of a query that is none: what went wrong before attention is theirs to keep.
    const wrong = (row: number): number | null => (c.key.kind === 'float' ? row : null);
    // Contexts on both sides of where a split ends.
    await both([0], [254]);
    await both([1], [255]);
    await both([2], [200]);
    await both([3], [20]);
    for (let i = 0; i < 3; i++) await both([0, 1], [1, 1]);
    await both([3, 0, 2], [1, 1, 1]);
    await both([0, 3, 1, 2], [1, 1, 1, 1], wrong(1));
    await both([4, 5, 6, 7, 3, 0, 2, 1], new Array<number>(8).fill(1));
    await both([4, 5, 6, 7, 3, 0, 2, 1], new Array<number>(8).fill(1), wrong(6));
    // Some rows are a prompt's, or all, and its bucket is that of rows that decode.
    await both([3, 4, 0], [1, 5, 1], wrong(3));
    await both([5], [8]);
    await both([0, 1], [1, 1]);
    await plain.close();
    await handing.close();
  });

  it('keep their launch where a head is no whole pieces', async () => {
    const c = { ...shape, heads: 8, headDim: 96, key: F16, value: F16 };
    const { plain, handing } = await open(c, 2);
    for (const bench of [plain, handing]) expect(labels(bench, 4)).toContain('bytes [768]');
    await plain.close();
    await handing.close();
  });
});
