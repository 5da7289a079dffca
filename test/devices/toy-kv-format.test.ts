/**
 * The walk "add a KV format" of docs/extending.md: an object in the list of kinds, one in the list of each device, and a
 * file of AssemblyScript. The CPU's kernels are built again with it.
 */
import { execFileSync } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { f32Word } from '../../src/device/cpu/command.js';
import { CpuDevice } from '../../src/device/cpu/device.js';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import type { CpuKvCodec } from '../../src/device/cpu/kv-formats/codec.js';
import { CPU_KV_CODECS, packingNumber } from '../../src/device/cpu/kv-formats/list.js';
import {
  SIDE_BITS,
  SIDE_CENTRE,
  SIDE_FORMAT,
  SIDE_GROUP,
  SIDE_MOST,
  SIDE_UNIT,
} from '../../src/device/cpu/kv-layout.js';
import type { Device } from '../../src/device/device.js';
import { type KvFormat, kvTokenBytes } from '../../src/device/kv.js';
import { notPacked, packedBytes } from '../../src/device/kv-formats/affine.js';
import type { KvFormatKind } from '../../src/device/kv-formats/kind.js';
import { KV_FORMATS } from '../../src/device/kv-formats/list.js';
import {
  codesRoom,
  streamCodesText,
  streamWordText,
} from '../../src/device/webgpu/kernels/kv-formats/code-stream.js';
import type { KvCodec } from '../../src/device/webgpu/kernels/kv-formats/codec.js';
import { WEBGPU_KV_CODECS } from '../../src/device/webgpu/kernels/kv-formats/list.js';
import { readerHead, vectorText } from '../../src/device/webgpu/kernels/kv-formats/side.js';
import { kvFormatNames, parseKvChoice } from '../../src/kv/formats.js';
import { readKvOptions } from '../../src/kv/options.js';
import { planKvLayers } from '../../src/kv/policy.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import { type DeviceSpec, devices } from './devices.js';
import { checkKv } from './kv-check.js';
import { ADDED_RULES } from './kv-codec.js';

/** `x ≈ (code − 8) · scale`, scale the f32 `max |x| / 7` of a vector: symmetric, of one scale and no bias. */
interface ToyKv {
  readonly kind: 'toy';
}

const TOY = { kind: 'toy' } as unknown as KvFormat;

const kind: KvFormatKind<ToyKv> = {
  kind: 'toy',
  float: false,
  names: ['toy4'],
  parse: (name) => (name === 'toy4' ? { kind: 'toy' } : undefined),
  name: () => 'toy4',
  codeBytes: (_, headDim) => packedBytes(4, headDim),
  metaBytes: (_format, _headDim, kvHeads) => 4 * kvHeads,
  unusable: (_, headDim) => notPacked(headDim),
};

const cpuCodec: CpuKvCodec<ToyKv> = {
  kind: 'toy',
  takes: (_, headDim) => headDim % 16 === 0,
  packings: {},
  assembly: { file: 'kv-toy', code: 'codeToy', meta: 'metaToy' },
  groups: () => 1,
  describe(_format, _side, headDim, put) {
    put(SIDE_BITS, 4);
    put(SIDE_GROUP, headDim);
    put(SIDE_FORMAT, packingNumber('A4'));
    put(SIDE_CENTRE, 8);
    put(SIDE_UNIT, f32Word(1));
    put(SIDE_MOST, f32Word(32767));
  },
};

const ASSEMBLY = `import { SIDE_META } from '../kv-layout';
import { POSITION_UNKNOWN } from './kv-append';
import { storeBytes } from './kv-words';
import { maxLanes } from './math';

export function codeToy(
  side: usize, isKey: bool, x: usize, block: u32, head: u32, kvHeads: u32, token: u32, dim: u32, blockTokens: u32,
  position: u32, codes: usize, spare: usize,
): void {
  // It is told where in its sequence a vector is.
  if (position != POSITION_UNKNOWN && position % blockTokens != token) unreachable();
  let most = f32x4.splat(0);
  for (let d: u32 = 0; d < dim; d += 4) most = f32x4.max(most, f32x4.abs(v128.load(x + d * 4)));
  const scale: f32 = maxLanes(most) / 7;
  store<f32>(load<u32>(side, SIDE_META) + ((block * kvHeads + head) * blockTokens + token) * 4, scale);
  const by = f32x4.splat(scale > 0 ? scale : 1);
  for (let d: u32 = 0; d < dim; d += 4) {
    const steps = f32x4.nearest(f32x4.div(v128.load(x + d * 4), by));
    storeBytes(codes + d, i32x4.add(i32x4.trunc_sat_f32x4_s(steps), i32x4.splat(8)));
  }
}

export function metaToy(
  side: usize, block: u32, h: u32, kvHeads: u32, g: u32, groups: u32, all: u32, token: u32, count: u32, blockShift: u32,
  scales: usize, biases: usize, step: usize,
): void {
  const at: usize = load<u32>(side, SIDE_META) + ((((block * kvHeads + h) << blockShift) + token) << 2);
  memory.copy(scales, at, count * 4);
  memory.fill(biases, 0, count * 4);
}
`;

const webgpuCodec: KvCodec<ToyKv> = {
  kind: 'toy',
  takes: (_, headDim) => headDim % 16 === 0,
  element: () => 'u32',
  meta: (_format, _headDim, kvHeads) => ({ groups: 1, metaHeads: kvHeads }),
  tables: () => new Float32Array(0),
  rotation: () => null,
  codes: null,
  bounded: false,
  readerBytes: () => 0,
  reader: ({ name, layout }, n) => ({
    declarations: `${readerHead(name, n)}
  let first = vector * ${layout.words}u;
  var codes: vec4<u32>;
  ${streamCodesText(name, 4)}
  return (vec4<f32>(codes) - vec4<f32>(8.0)) * bitcast<f32>(${name}[${n.metaAt} + vector]);
}`,
    prepare: () => '',
  }),
  pairsHeads: false,
  sidesAlike: true,
  storeNeeds: () => ({ codes: true, range: true }),
  store({ name, layout }, n, { plan, put, position }) {
    const { lanes, own, heads } = plan;
    const here = heads === 1 ? '' : 'here && ';
    return {
      declarations: streamWordText(name, 4, own, codesRoom(lanes)),
      fetch: '',
      store: `{
      let x = finite_(v);
      let all = abs(x);
      highs_${own}[lid] = max(max(all.x, all.y), max(all.z, all.w));
      for (var half = ${lanes / 2}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lid < half) { highs_${own}[lid] = max(highs_${own}[lid], highs_${own}[lid + half]); }
      }
      workgroupBarrier();
      // It is told where in its sequence a vector is, unless that is converted.
      let expected = ${position === null ? 'true' : `${position} % ${n.blockTokens} == token_at`};
      let scale = select(0.0, highs_${own}[0] / 7.0, expected);
      let codes = vec4<u32>(vec4<i32>(round(x / select(1.0, scale, scale > 0.0))) + vec4<i32>(8));
      for (var e = 0u; e < 4u; e++) { codes_${own}[lid * 4u + e] = codes[e]; }
      if (${here}lid == 0u) { ${put(`${n.metaAt} + ${vectorText(n)}`, 'bitcast<u32>(scale)')} }
      workgroupBarrier();
      for (var j = lid; ${here}j < ${layout.words}u; j += ${lanes}u) {
        ${put(`${vectorText(n)} * ${layout.words}u + j`, `${name}_word(j, groups)`)}
      }
    }`,
    };
  },
};

/** The rule in float64, its scale rounded as it is stored. */
function rule(x: Float64Array) {
  const scale = Math.fround(Math.max(...x.map(Math.abs)) / 7);
  const at = x.map((value) => (scale === 0 ? 0 : value / scale));
  const codes = Uint8Array.from(at, (value) => Math.round(value) + 8);
  return {
    decoded: Float64Array.from(codes, (code) => (code - 8) * scale),
    codes,
    scales: Float64Array.of(scale),
    biases: new Float64Array(1),
    norm: 0,
    margin: Math.min(...at.map((value) => Math.abs(value - Math.floor(value) - 0.5))),
  };
}

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
let folder = '';

/** The kernels with the toy among them, as the walk builds them: one build, little optimised. */
async function buildKernels(): Promise<WebAssembly.Module> {
  folder = await mkdtemp(join(tmpdir(), 'kvant-toy-'));
  await cp(join(ROOT, 'src/device/cpu'), join(folder, 'cpu'), { recursive: true });
  await writeFile(join(folder, 'cpu/assembly/kv-toy.ts'), ASSEMBLY);
  const list = pathToFileURL(join(ROOT, 'dist/device/cpu/kv-formats/list.js'));
  const formats = join(folder, 'formats.mjs');
  const { assembly } = cpuCodec;
  await writeFile(
    formats,
    `import { CPU_KV_CODECS as own } from ${JSON.stringify(list)};
export const CPU_KV_CODECS = [...own, ${JSON.stringify({ kind: 'toy', packings: {}, assembly })}];`,
  );
  const paths = [
    '--source',
    join(folder, 'cpu/assembly'),
    '--out',
    join(folder, 'wasm'),
    '--formats',
    formats,
  ];
  const script = join(ROOT, 'scripts/build-wasm.mjs');
  execFileSync(process.execPath, [script, ...paths, '--only', 'kernels-simd', '--quick'], {
    stdio: 'inherit',
  });
  return WebAssembly.compile(await readFile(join(folder, 'wasm/kernels-simd.wasm')));
}

const CASE: AttentionCase = { heads: 4, kvHeads: 2, headDim: 32, key: TOY, value: TOY };
const STEPS: readonly (readonly [slots: number[], lengths: number[]])[] = [
  [[0], [5]],
  [
    [1, 0],
    [37, 1],
  ],
  [
    [1, 0],
    [1, 1],
  ],
];

const add = (): void => {
  KV_FORMATS.push(kind);
  CPU_KV_CODECS.push(cpuCodec);
  WEBGPU_KV_CODECS.push(webgpuCodec);
  ADDED_RULES.set('toy', rule);
};

describe('a KV format of an object in each list', () => {
  afterAll(() => (folder === '' ? undefined : rm(folder, { recursive: true, force: true })));

  it('is not known before it is in the lists, and is neither a float nor TurboQuant', async () => {
    expect(() => parseKvChoice('toy4')).toThrow(/There is no KV format "toy4"/);
    expect(() => kvTokenBytes(TOY, 32, 2)).toThrow(/no kind "toy"/);
    KV_FORMATS.push(kind);
    for (const spec of pick()) {
      await using device = spec.kind === 'cpu' ? await createCpuDevice({ threads: 1 }) : await spec.create();
      await expect(Bench.open(device, CASE, 1), spec.name).rejects.toThrow(
        expect.objectContaining({ code: 'kv-format-unsupported', message: expect.stringContaining('toy4') }),
      );
    }
    KV_FORMATS.pop();
  });

  describe('in the lists', () => {
    beforeAll(add);

    it('has a name, sizes and limits', () => {
      expect(kvFormatNames()).toContain('toy4');
      expect(parseKvChoice('toy4/f16')).toEqual({ key: TOY, value: { kind: 'float', dtype: 'f16' } });
      expect(kvTokenBytes(TOY, 32, 2)).toBe(2 * (16 + 4));
      const shape = { kvHeads: 2, window: null, group: 0 };
      const layers = [
        { ...shape, headDim: 32 },
        { ...shape, headDim: 36 },
        ...Array(2).fill({ ...shape, headDim: 32 }),
      ];
      const { info } = planKvLayers(layers, readKvOptions({ kvFormat: 'toy4' }), {
        kind: 'float',
        dtype: 'f16',
      });
      expect(info.map(({ key }) => key)).toEqual(['toy4', 'f16', 'toy4', 'f16']);
    });

    for (const spec of pick()) {
      it(`is stored and read on ${spec.name}, alone, beside others and converted`, async () => {
        await using device = await open(spec);
        await checkKv(device, spec, CASE, STEPS);
        await checkKv(device, spec, { ...CASE, value: { kind: 'turboquant', bits: 3 } }, STEPS.slice(0, 2));
        const floatStart: AttentionCase = { ...CASE, floatStart: { dtype: 'f32', slots: [1] } };
        const bench = await Bench.open(device, floatStart, 7);
        await bench.step([1], [20]);
        await bench.convert(1);
        const { out, expected } = await bench.step([1], [1]);
        await bench.close();
        const worst = Math.max(...expected.map((value, i) => Math.abs(value - out[i]!)));
        expect(worst).toBeLessThan(5e-3);
      });
    }
  });
});

/** One device of each kind: on a GPU the one by default. */
function pick(): DeviceSpec[] {
  const of = (want: DeviceSpec['kind']): DeviceSpec[] =>
    devices.filter(({ kind: k }) => k === want).slice(0, 1);
  return [...of('cpu'), ...of('webgpu')];
}

async function open(spec: DeviceSpec): Promise<Device> {
  if (spec.kind === 'webgpu') return spec.create();
  const kernels = { module: await buildKernels(), file: 'simd128', relaxed: false } as const;
  return new CpuDevice({
    kernels,
    threads: 2,
    cores: 2,
    precision: spec.precision,
    memoryLimitBytes: 2 ** 32,
    besideGpu: false,
  });
}
