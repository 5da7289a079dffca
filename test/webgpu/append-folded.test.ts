/**
 * Of one token the product of q, k and v norms heads, rotates and appends itself: against float64, and against the two
 * launches it takes the place of.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Program } from '../../src/device/device.js';
import type { Tensor } from '../../src/device/graph.js';
import type { KvFormat, KvPool } from '../../src/device/kv.js';
import { kvPlanes } from '../../src/device/kv-block.js';
import { makeRopeTable, type RopeSections, type RopeStyle, ropeAxes } from '../../src/device/rope.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import type { MatrixFormat } from '../../src/device/weights.js';
import { standingStep } from '../devices/attention-bench.js';
import { pairAxes } from '../devices/attention-reference.js';
import { devices, grid, narrowSubgroups } from '../devices/devices.js';
import { affine, F16, F32 } from '../devices/kv-cases.js';
import { fromF16Bits, Random, relativeError, roundF16 } from '../devices/numbers.js';
import * as reference from '../devices/reference.js';
import { LIMITS, record, stepOf } from '../devices/run.js';
import { randomMatrix, type TestMatrix, vectorSource } from '../devices/sources.js';
import { casesOf, everyCase } from '../setup/every-case.js';

const here =
  narrowSubgroups.length > 0 ? narrowSubgroups : devices.filter((d) => d.name === 'webgpu default');

const Q4: MatrixFormat = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' };
const EPS = 1e-6;
const BLOCK = 16;
const BLOCKS = 40;
/** Of 40 blocks in a scrambled order, 20 for each of two slots. */
const PER_SLOT = 20;
const block = (slot: number, i: number): number => ((slot * PER_SLOT + i) * 17 + 5) % BLOCKS;

interface Case {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly hidden?: number;
  readonly key: KvFormat;
  readonly value: KvFormat;
  /** Of heads; of the hidden row. */
  readonly headNorm: boolean;
  readonly norm: boolean;
  readonly bias?: boolean | Float32Array;
  readonly rope: RopeStyle | null;
  readonly dims?: number;
  /** The pairs turn by three positions (placesOf). */
  readonly sections?: RopeSections;
  readonly weight?: MatrixFormat;
}

/** Weights of a case, and what float64 makes of them. */
class Reference {
  readonly c: Case;
  readonly hidden: number;
  readonly matrix: TestMatrix;
  readonly gain: Float32Array;
  readonly bias: Float32Array | null;
  readonly gammas: { readonly q: Float32Array; readonly k: Float32Array };
  readonly frequencies: Float64Array;

  constructor(c: Case, random: Random) {
    this.c = c;
    this.hidden = c.hidden ?? 256;
    const n = (c.heads + 2 * c.kvHeads) * c.headDim;
    this.matrix = randomMatrix(random, n, this.hidden, c.weight ?? Q4);
    this.gain = random.normals(this.hidden);
    this.bias = c.bias instanceof Float32Array ? c.bias : c.bias ? random.normals(n) : null;
    this.gammas = { q: random.normals(c.headDim), k: random.normals(c.headDim) };
    const dims = c.dims ?? c.headDim;
    this.frequencies = Float64Array.from({ length: dims / 2 }, (_, i) => 10000 ** ((-2 * i) / dims));
  }

  /** Radians that each pair turns by. */
  #angles(position: number): Float64Array {
    const { sections } = this.c;
    const axes = sections === undefined ? null : pairAxes(sections);
    const places = placesOf(position);
    return this.frequencies.map((frequency, i) => frequency * (axes === null ? position : places[axes[i]!]!));
  }

  /** Heads of q, of k and of v as they are attended with, and stored. */
  heads(x: Float32Array, position: number): Float64Array[] {
    const { heads, kvHeads, headDim, headNorm, norm, rope, key, value } = this.c;
    const rows = heads + 2 * kvHeads;
    const given = norm ? reference.rmsNorm(x, this.gain, 1, this.hidden, EPS) : x;
    const qkv = reference.linear(
      given,
      this.matrix.values,
      1,
      this.hidden,
      rows * headDim,
      this.bias ?? undefined,
    );
    return Array.from({ length: rows }, (_, h) => {
      let head: Float64Array = qkv.slice(h * headDim, (h + 1) * headDim);
      if (h >= heads + kvHeads) return stored(head, value);
      const gamma = h < heads ? this.gammas.q : this.gammas.k;
      if (headNorm) head = reference.rmsNorm(head, gamma, 1, headDim, EPS);
      if (rope !== null) reference.rotate(head, 1, this.#angles(position), rope);
      return h < heads ? head : stored(head, key);
    });
  }
}

/** Time, height and width of the token with this cache index. */
function placesOf(index: number): readonly [number, number, number] {
  return [index, index >> 1, index + 20];
}

function stored(head: Float64Array, format: KvFormat): Float64Array {
  return format.kind === 'float' && format.dtype === 'f16' ? head.map(roundF16) : head;
}

interface Layer {
  readonly program: Program;
  readonly pool: KvPool;
  readonly x: Tensor;
  readonly q: Tensor;
  readonly folded: boolean;
}

/** Where q, k and v are kept as the product leaves them, nothing can be done with them on the way. */
async function open(device: Device, of: Reference, keep: boolean): Promise<Layer> {
  const { c, hidden } = of;
  const weight = await device.loadMatrix([of.matrix.source], {
    use: 'linear',
    ...(of.bias === null ? {} : { bias: [vectorSource(of.bias)] }),
  });
  const gain = await device.loadVector(vectorSource(of.gain));
  const norm = c.headNorm
    ? {
        q: await device.loadVector(vectorSource(of.gammas.q)),
        k: await device.loadVector(vectorSource(of.gammas.k)),
        eps: EPS,
      }
    : null;
  const rope =
    c.rope === null
      ? null
      : makeRopeTable({
          dims: c.dims ?? c.headDim,
          style: c.rope,
          frequencies: of.frequencies,
          attentionFactor: 1,
          maxContext: LIMITS.maxContext,
          axes: c.sections === undefined ? null : ropeAxes(c.sections),
        });
  const pool = device.createKvPool({
    layers: [{ kvHeads: c.kvHeads, headDim: c.headDim, key: c.key, value: c.value, group: 0 }],
    blocks: BLOCKS,
    floatStart: null,
    blockTokens: BLOCK,
    slots: 2,
    maxBlocksPerSlot: PER_SLOT,
  });
  for (const slot of [0, 1])
    pool.setBlocks(
      slot,
      0,
      Uint32Array.from({ length: PER_SLOT }, (_, i) => block(slot, i)),
    );
  const { heads, kvHeads, headDim } = c;
  const { graph, tensors } = record((ops) => {
    const x = ops.input('tokens', hidden);
    const qkv = ops.linear(c.norm ? ops.rmsNorm(x, gain, EPS) : x, weight);
    if (keep) ops.keep(qkv);
    return { x, q: ops.keep(ops.ropeAppend(qkv, { layer: 0, heads, kvHeads, headDim, norm, rope })) };
  });
  const program = await device.compile(graph, { ...LIMITS, maxSequences: 2 }, pool);
  const labels = (program as WebGpuProgram).describe(1, 0);
  const folded = labels.some((label) => label.startsWith('q k v appended'));
  expect(labels.some((label) => label.startsWith('rope-append'))).toBe(!folded);
  return { program, pool, ...tensors, folded };
}

async function close({ program, pool }: Layer): Promise<void> {
  await program.dispose();
  pool.dispose();
}

/** Steps one token, and answers q and what lies at its place in the cache, head by head. */
async function step(layer: Layer, c: Case, x: Float32Array, position: number, slot: number) {
  const { program, pool } = layer;
  program.write(layer.x, x);
  const one = stepOf([1], [position], [slot]);
  await program.submit(c.sections === undefined ? one : standingStep(one, [[placesOf(position)]]));
  const q = await program.read(layer.q, 1);
  const [bytes] = await pool.read(Uint32Array.of(block(slot, Math.floor(position / BLOCK))));
  const heads = Array.from({ length: c.heads }, (_, h) => q.subarray(h * c.headDim, (h + 1) * c.headDim));
  for (const { side, at } of kvPlanes(pool.spec, false)) {
    const format = side === 'key' ? c.key : c.value;
    const wide = format.kind === 'float' && format.dtype === 'f32';
    for (let h = 0; h < c.kvHeads; h++) {
      const from = at + (h * BLOCK + (position % BLOCK)) * c.headDim * (wide ? 4 : 2);
      const raw = bytes!.slice(from, from + c.headDim * (wide ? 4 : 2)).buffer;
      heads.push(wide ? new Float32Array(raw) : Float32Array.from(new Uint16Array(raw), fromF16Bits));
    }
  }
  return heads;
}

const SHAPES = { headDim: [64, 80, 96, 128, 256], group: [1, 2, 4, 8], headNorm: [false, true] } as const;
const PLACES = [
  [0, 0],
  [1, 1],
  [15, 0],
  [16, 1],
  [255, 0],
  [256, 1],
  [319, 1],
] as const;

describe.each(here)('q, k and v appended by their product on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** Both ways beside float64. Answers whether the two agree bit by bit. */
  async function check(c: Case, expectFold = true): Promise<boolean> {
    const random = new Random(c.headDim + c.heads);
    const of = new Reference(c, random);
    const [plain, fold] = [await open(device, of, true), await open(device, of, false)];
    expect([plain.folded, fold.folded], JSON.stringify(c)).toEqual([false, expectFold]);
    let same = true;
    for (const [position, slot] of PLACES) {
      const x = random.normals(of.hidden);
      const wanted = of.heads(x, position);
      const [apart, got] = [await step(plain, c, x, position, slot), await step(fold, c, x, position, slot)];
      got.forEach((head, h) => {
        const half = h >= c.heads && (h < c.heads + c.kvHeads ? c.key : c.value) === F16;
        const bound = half ? 1e-3 : 2e-5;
        const where = `${JSON.stringify(c)} position ${position} head ${h}`;
        expect(relativeError(head, wanted[h]!), where).toBeLessThan(bound);
        expect(relativeError(apart[h]!, wanted[h]!), `${where}, apart`).toBeLessThan(bound);
        same &&= head.every((v, i) => Object.is(v, apart[h]![i]));
      });
    }
    await close(plain);
    await close(fold);
    return same;
  }

  it('agree with float64', async () => {
    // All 2880 combinations take many minutes, on a GPU too: a cover of the pairs, and elsewhere than in
    // software all shapes that sizes are chosen by.
    const cover = grid(
      {
        ...SHAPES,
        formats: [
          [F16, F16],
          [F32, F32],
          [F16, F32],
        ],
        norm: [true, false],
        bias: [false, true],
        rope: ['half', 'interleaved', null] as const,
        partial: [false, true],
      },
      true,
    );
    const shapeText = ({ headDim, group, headNorm }: Pick<(typeof cover)[number], keyof typeof SHAPES>) =>
      [headDim, group, headNorm].join();
    const covered = new Set(cover.map(shapeText));
    const others = casesOf(
      [],
      grid(SHAPES, false).filter((shape) => !covered.has(shapeText(shape))),
    );
    const cases = [...cover, ...others.map((shape, i) => ({ ...cover[i % cover.length]!, ...shape }))];
    if (everyCase) expect(new Set(cases.map(shapeText)).size).toBe(40);
    for (const { headDim, group, formats, headNorm, norm, bias, rope, partial } of cases) {
      const kvHeads = group === 8 ? 1 : 2;
      const dims = partial ? (headDim === 80 ? 32 : headDim / 2) : headDim;
      const [key, value] = [formats[0]!, formats[1]!];
      await check({ heads: kvHeads * group, kvHeads, headDim, key, value, headNorm, norm, bias, rope, dims });
    }
  });

  it('agree of other weights, of long rows, and of a rotation that ends within a run of four', async () => {
    const base = { heads: 4, kvHeads: 2, key: F16, value: F16, norm: true, rope: 'half' } as const;
    for (const weight of [
      { kind: 'affine', bits: 8, groupSize: 32, dtype: 'bf16' },
      { kind: 'affine', bits: 3, groupSize: 64, dtype: 'f16' },
      { kind: 'float', dtype: 'bf16' },
    ] as const)
      for (const headNorm of [false, true]) await check({ ...base, headDim: 64, headNorm, weight });
    for (const headNorm of [false, true]) await check({ ...base, headDim: 80, dims: 20, headNorm });
    // A row that is too long to be staged at once, and normed heads of which one is too much for a workgroup.
    const long = { ...base, heads: 2, kvHeads: 1, headDim: 64 } as const;
    for (const headNorm of [false, true]) await check({ ...long, hidden: 6144, headNorm });
    await check({ ...long, hidden: 8192, headNorm: false });
    await check({ ...long, hidden: 8192, headNorm: true }, false);
  });

  it.each(['half', 'interleaved'] as const)('have the bits of the two launches, pairs %s', async (rope) => {
    // The sizes of the product are those of the product alone: sums are taken in one order.
    const base = { heads: 8, kvHeads: 2, headDim: 256, hidden: 128, key: F16, value: F32 } as const;
    expect(await check({ ...base, headNorm: false, norm: true, rope })).toBe(true);
    expect(await check({ ...base, headNorm: false, norm: false, bias: true, rope, dims: 64 })).toBe(true);
  });

  it('turn pairs by three positions of the token', async () => {
    const base = { heads: 4, kvHeads: 2, headDim: 64, key: F32, value: F16, norm: true } as const;
    const [runs, turns] = [
      { sizes: [8, 12, 12], interleaved: false },
      { sizes: [12, 10, 10], interleaved: true },
    ] as const;
    await check({ ...base, headNorm: false, bias: true, rope: 'half', sections: runs });
    await check({ ...base, headNorm: true, rope: 'half', sections: turns });
    await check({
      ...base,
      headNorm: false,
      rope: 'interleaved',
      dims: 24,
      sections: { ...turns, sizes: [4, 4, 4] },
    });
  });

  it('store what is not finite, or too large, as the two launches do', async () => {
    for (const headNorm of [false, true])
      for (const [key, value] of [
        [F16, F32],
        [F32, F16],
      ] as const) {
        const shape = { heads: 4, kvHeads: 2, headDim: 64, headNorm, key, value };
        const bias = new Random(4).normals(8 * 64);
        const odd = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e5, -7e4, 65519, 65520];
        odd.forEach((v, i) => {
          bias[(i + 1) * 64 + 7 * i] = v;
        });
        // One in a head that is odd already, and one on the other side of a pair.
        bias[4 * 64 + 3] = Number.NaN;
        bias[5 * 64 + 33] = 1e30;
        const c: Case = { ...shape, norm: true, rope: 'half', bias };
        const of = new Reference(c, new Random(5));
        const [plain, fold] = [await open(device, of, true), await open(device, of, false)];
        expect(fold.folded).toBe(true);
        const x = new Random(6).normals(of.hidden);
        const [apart, got] = [await step(plain, c, x, 21, 0), await step(fold, c, x, 21, 0)];
        const flat = (heads: readonly Float32Array[]): number[] => heads.flatMap((head) => [...head]);
        const [a, b] = [flat(apart), flat(got)];
        expect(b.some(Number.isNaN)).toBe(true);
        for (const [i, v] of b.entries()) {
          const w = a[i]!;
          const where = `${headNorm} ${i}: ${v} instead of ${w}`;
          if (Number.isFinite(w))
            expect(Math.abs(v - w), where).toBeLessThanOrEqual(1e-3 * Math.abs(w) + 1e-4);
          else expect(Object.is(v, w), where).toBe(true);
        }
        await close(plain);
        await close(fold);
      }
  });

  it('are not where K or V is quantised, and of several tokens', async () => {
    const c = { heads: 4, kvHeads: 2, headDim: 64, headNorm: false, norm: true, rope: 'half' } as const;
    for (const [key, value] of [
      [affine(8), F16],
      [F16, affine(4)],
    ] as const) {
      const of = new Reference({ ...c, key, value }, new Random(7));
      const layer = await open(device, of, false);
      expect(layer.folded).toBe(false);
      await close(layer);
    }
    const layer = await open(device, new Reference({ ...c, key: F16, value: F16 }, new Random(7)), false);
    const labels = (layer.program as WebGpuProgram).describe(2, 0);
    expect(labels.some((label) => label.startsWith('rope-append'))).toBe(true);
    await close(layer);
  });
});
