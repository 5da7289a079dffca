// What the kernel benchmarks stand on: a device, arenas of random words that the host can recompute word by word,
// dispatch of a kernel text, and timing by timestamp queries.

import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/** Opens Dawn's device with every feature the fast kernels can use. `KVANT_DAWN` names another dawn.node. */
export async function openDevice() {
  const dawn = require(process.env.KVANT_DAWN ?? `webgpu/dist/linux-${process.arch}/dawn.node`);
  Object.assign(globalThis, dawn.globals);
  const backend = process.env.KVANT_BACKEND ?? 'vulkan';
  const gpu = dawn.create([
    `backend=${backend}`,
    'enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia,disable_workgroup_init,disable_robustness',
    'disable-dawn-features=timestamp_quantization',
  ]);
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (adapter === null) throw new Error('no adapter: is a Vulkan driver installed?');
  const wanted = [
    'shader-f16',
    'subgroups',
    'chromium-experimental-subgroup-matrix',
    'timestamp-query',
    'subgroup-size-control',
  ];
  const requiredFeatures = wanted.filter((name) => adapter.features.has(name));
  const limits = {};
  for (const name of [
    'maxStorageBufferBindingSize',
    'maxBufferSize',
    'maxComputeWorkgroupStorageSize',
    'maxComputeInvocationsPerWorkgroup',
    'maxComputeWorkgroupSizeX',
    'maxStorageBuffersPerShaderStage',
  ])
    limits[name] = adapter.limits[name];
  const device = await adapter.requestDevice({ requiredFeatures, requiredLimits: limits });
  device.onuncapturederror = (event) => {
    console.error(`uncaptured: ${event.error.message.slice(0, 2000)}`);
  };
  device.lost.then((info) => {
    if (info.reason !== 'destroyed') {
      console.error(`device lost: ${info.message}`);
      process.exit(3);
    }
  });
  const info = adapter.info;
  const matrices = (info.subgroupMatrixConfigs ?? []).map((c) => ({
    M: c.M,
    N: c.N,
    K: c.K,
    component: c.componentType,
    result: c.resultComponentType,
  }));
  const features = {
    f16: device.features.has('shader-f16'),
    subgroups: device.features.has('subgroups'),
    subgroupSize: info.subgroupMinSize === info.subgroupMaxSize ? info.subgroupMaxSize : 0,
    matrices: device.features.has('chromium-experimental-subgroup-matrix') ? matrices : [],
    timestamps: device.features.has('timestamp-query'),
    workgroupBytes: device.limits.maxComputeWorkgroupStorageSize,
    maxBinding: device.limits.maxStorageBufferBindingSize,
  };
  return {
    gpu,
    adapter,
    device,
    info: {
      vendor: info.vendor,
      architecture: info.architecture,
      device: info.device,
      description: info.description,
    },
    features,
  };
}

/** What the rules choose by, of a device that openDevice opened. */
export function capabilitiesOf({ device, features }) {
  return {
    precision: 'default',
    deterministic: false,
    f16: features.f16,
    subgroups: features.subgroups,
    subgroupMinSize: features.subgroupSize,
    subgroupMaxSize: features.subgroupSize,
    packedDots: true,
    minLanes: 4,
    matrices: features.matrices.map(({ M, N, K, component, result }) => ({
      m: M,
      n: N,
      k: K,
      component,
      result,
    })),
    workgroupBytes: features.workgroupBytes,
    workgroupThreads: device.limits.maxComputeInvocationsPerWorkgroup,
    bindingBytes: features.maxBinding,
    storageBuffers: device.limits.maxStorageBuffersPerShaderStage,
  };
}

/** The word at an index of an arena: a hash (lowbias32 of Wellons), so that the host needs no copy. */
export function arenaWord(index, seed) {
  let h = (index ^ seed) >>> 0;
  h = Math.imul(h ^ (h >>> 16), 0x7feb352d);
  h = Math.imul(h ^ (h >>> 15), 0x846ca68b);
  return (h ^ (h >>> 16)) >>> 0;
}

/** Fills `words` words of a buffer on the device, each its `arenaWord`, from word `from` on also `& and | or`. */
export function fillHashed(bench, buffer, words, { seed, and, or, from = 0 }) {
  const across = Math.min(32768, Math.ceil(words / 256));
  const code = `@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.y * ${across * 256}u + id.x;
  if (i >= ${words}u) { return; }
  var h = i ^ ${seed >>> 0}u;
  h = (h ^ (h >> 16u)) * 0x7feb352du;
  h = (h ^ (h >> 15u)) * 0x846ca68bu;
  h = h ^ (h >> 16u);
  if (i >= ${from}u) { h = (h & ${and >>> 0}u) | ${or >>> 0}u; }
  data[i] = h;
}`;
  bench.once(code, [buffer], [across, Math.ceil(words / 256 / across), 1]);
}

/** A buffer of hashed words, each `& and | or`, filled on the device. */
export class Arena {
  constructor(bench, bytes, { seed, and = 0xffffffff, or = 0 }) {
    this.seed = seed;
    this.and = and;
    this.or = or;
    this.bytes = bytes;
    this.buffer = bench.device.createBuffer({
      size: bytes,
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
    });
    fillHashed(bench, this.buffer, bytes / 4, { seed, and, or });
  }
  word(index) {
    return ((arenaWord(index, this.seed) & this.and) | this.or) >>> 0;
  }
}

const f16Table = new Float32Array(65536);
for (let h = 0; h < 65536; h++) {
  const sign = h & 0x8000 ? -1 : 1;
  const e = (h >> 10) & 31;
  const m = h & 1023;
  f16Table[h] =
    e === 0
      ? sign * m * 2 ** -24
      : e === 31
        ? m
          ? Number.NaN
          : sign * Infinity
        : sign * (1 + m / 1024) * 2 ** (e - 15);
}
export const f16 = (bits) => f16Table[bits & 0xffff];

function floatsOf(bits) {
  const out = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) out[i] = f16Table[bits[i]];
  return out;
}

/** f32 → f16 bits, to nearest even. */
const scratch = new Float32Array(1);
const scratchBits = new Uint32Array(scratch.buffer);
export function toF16(value) {
  scratch[0] = value;
  const x = scratchBits[0];
  const sign = (x >>> 16) & 0x8000;
  const e = ((x >>> 23) & 255) - 127;
  if (e > 15) return sign | 0x7bff;
  if (e < -24) return sign;
  const m = (x & 0x7fffff) | 0x800000;
  const drop = e < -14 ? 13 + (-14 - e) : 13;
  let half = m >>> drop;
  const rest = m & ((1 << drop) - 1);
  const tie = 1 << (drop - 1);
  if (rest > tie || (rest === tie && half & 1)) half++;
  return e < -14 ? sign | half : sign | (half + ((e + 14) << 10));
}

export function normals(count, seed) {
  const out = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    const u = (arenaWord(2 * i, seed) + 0.5) / 2 ** 32;
    const v = (arenaWord(2 * i + 1, seed) + 0.5) / 2 ** 32;
    out[i] = Math.sqrt(-2 * Math.log(u)) * Math.cos(2 * Math.PI * v);
  }
  return out;
}

/** Large inputs are used many times over: their f16 form is kept as long as they are. */
const halves = new WeakMap();

export class Bench {
  constructor(opened) {
    Object.assign(this, opened);
    this.seconds = 0;
    if (this.features.timestamps) {
      this.queries = this.device.createQuerySet({ type: 'timestamp', count: 2 });
      this.resolved = this.device.createBuffer({
        size: 16,
        usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC,
      });
    }
  }

  buffer(bytes, usage = 0) {
    return this.device.createBuffer({
      size: Math.max(16, Math.ceil(bytes / 16) * 16),
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST | usage,
    });
  }

  upload(data) {
    const buffer = this.buffer(data.byteLength);
    this.device.queue.writeBuffer(buffer, 0, data);
    return buffer;
  }

  /** Activations as f32 or f16; answers with the values the device sees. */
  uploadFloats(values, dtype) {
    if (dtype === 'f32') return { buffer: this.upload(values), values };
    let half = halves.get(values);
    if (half === undefined) {
      const bits = new Uint16Array(values.length);
      for (let i = 0; i < values.length; i++) bits[i] = toF16(values[i]);
      half = { bits, values: floatsOf(bits) };
      halves.set(values, half);
    }
    return { buffer: this.upload(half.bits), values: half.values };
  }

  once(code, buffers, workgroups) {
    const pipeline = this.device.createComputePipeline({
      layout: 'auto',
      compute: { module: this.device.createShaderModule({ code }), entryPoint: 'main' },
    });
    const group = this.device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
    });
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(...workgroups);
    pass.end();
    this.device.queue.submit([encoder.finish()]);
  }

  /** Compiles a kernel text with the layout it states. Throws with the compiler's messages. */
  async compile(kernel) {
    const module = this.device.createShaderModule({ code: kernel.wgsl });
    const layout = this.device.createBindGroupLayout({
      entries: kernel.bindings.map((name, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: {
          type:
            name === 'params' ? 'uniform' : kernel.writes.includes(name) ? 'storage' : 'read-only-storage',
        },
      })),
    });
    try {
      const pipeline = await this.device.createComputePipelineAsync({
        layout: this.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module, entryPoint: 'main' },
      });
      return { kernel, pipeline, layout };
    } catch (error) {
      const { messages } = await module.getCompilationInfo();
      const texts = messages.map((m) => `${m.lineNum}: ${m.message}`);
      throw new Error(`${kernel.label}: ${[...texts, error.message].join('; ').slice(0, 600)}`);
    }
  }

  /** `resources`: by binding name, a buffer or {buffer, offset, size}. */
  launch(compiled, resources) {
    const { kernel, pipeline, layout } = compiled;
    if (kernel.params !== undefined && compiled.params === undefined) {
      compiled.params = this.buffer(kernel.params.byteLength, GPUBufferUsage.UNIFORM);
      this.device.queue.writeBuffer(compiled.params, 0, kernel.params);
    }
    const group = this.device.createBindGroup({
      layout,
      entries: kernel.bindings.map((name, binding) => {
        const r = name === 'params' ? compiled.params : resources[name];
        if (r === undefined) throw new Error(`${kernel.label}: nothing bound to ${name}`);
        return { binding, resource: r instanceof GPUBuffer ? { buffer: r } : r };
      }),
    });
    return { pipeline, group, workgroups: kernel.workgroups };
  }

  run(launches) {
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { pipeline, group, workgroups } of launches) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(...workgroups);
    }
    pass.end();
    this.device.queue.submit([encoder.finish()]);
  }

  async read(buffer, bytes) {
    const to = this.device.createBuffer({
      size: Math.ceil(bytes / 16) * 16,
      usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    });
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, to, 0, Math.ceil(bytes / 4) * 4);
    this.device.queue.submit([encoder.finish()]);
    await to.mapAsync(GPUMapMode.READ);
    const out = to.getMappedRange().slice(0, bytes);
    to.destroy();
    return out;
  }

  async readFloats(buffer, count, dtype) {
    if (dtype === 'f32') return new Float32Array(await this.read(buffer, count * 4));
    return floatsOf(new Uint16Array(await this.read(buffer, count * 2)));
  }

  /** Microseconds of one pass that holds `launches`, by timestamps if the device has them. */
  async #pass(launches) {
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass(
      this.queries
        ? {
            timestampWrites: { querySet: this.queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 },
          }
        : {},
    );
    for (const { pipeline, group, workgroups } of launches) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(...workgroups);
    }
    pass.end();
    if (this.queries) encoder.resolveQuerySet(this.queries, 0, 2, this.resolved, 0);
    const start = performance.now();
    this.device.queue.submit([encoder.finish()]);
    if (!this.queries) {
      await this.device.queue.onSubmittedWorkDone();
      return (performance.now() - start) * 1000;
    }
    const [begin, end] = new BigUint64Array(await this.read(this.resolved, 16));
    return Number(end - begin) / 1000;
  }

  /**
   * Median microseconds of one round of `launches` (a list; several rounds go into a pass so that it lasts about
   * `targetUs`), and the spread between the first and third quartile over the median. A GPU that idled is slow at first:
   * `warmMs` of the same work go before.
   */
  async time(launches, { targetUs = 1500, samples = 9, warmMs = 0 } = {}) {
    const once = await this.#pass(launches);
    const warm = await this.#pass(launches);
    const rounds = Math.max(1, Math.min(400, Math.ceil(targetUs / Math.max(0.5, Math.min(once, warm)))));
    const many = [];
    for (let i = 0; i < rounds; i++) many.push(...launches);
    const times = [];
    const until = performance.now() + warmMs;
    while (performance.now() < until) await this.#pass(many);
    await this.#pass(many);
    for (let i = 0; i < samples; i++) times.push((await this.#pass(many)) / rounds);
    times.sort((a, b) => a - b);
    const median = times[samples >> 1];
    return {
      us: median / launches.length,
      spread: (times[(samples * 3) >> 2] - times[samples >> 2]) / median,
    };
  }
}

/** ‖out − ref‖ / ‖ref‖, and NaN if any output is not finite. */
export function relativeError(out, ref) {
  let diff = 0;
  let norm = 0;
  for (let i = 0; i < ref.length; i++) {
    const d = out[i] - ref[i];
    diff += d * d;
    norm += ref[i] * ref[i];
  }
  return Math.sqrt(diff / norm);
}

/** Fills a step of `rows` sequences of `length` tokens from `position`; tokens of decoding rows are what their slot drew last. */
export function rowsOfStep(step, { rows, length, position, vocab, outputs = rows }) {
  for (let r = 0; r < rows; r++) {
    step.seqSlot[r] = r;
    step.seqStart[r] = r * length;
    step.seqLength[r] = length;
    step.seqPosition[r] = position;
    for (let i = 0; i < length; i++)
      step.tokens[r * length + i] = length === 1 && position > 0 ? -(r + 1) : (r * 131 + i * 7919) % vocab;
    if (r < outputs) {
      step.outputs[r] = (r + 1) * length - 1;
      step.outputSlot[r] = r;
    }
  }
  step.tokenCount = rows * length;
  step.sequenceCount = rows;
  step.outputCount = outputs;
  return step;
}
