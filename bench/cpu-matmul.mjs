// The matrix products of a decoder's step on the CPU, and nothing else: Qwen3-0.6B shapes, random weights.
//
//   npm run build && node bench/cpu-matmul.mjs [--bits 4] [--group 64] [--dtype bf16] [--threads 2] [--rows 1,4,8,512]
//     [--rounds 5] [--layers 28] [--kernels FILE[,FILE]] [--build relaxed[,dot]|simd] [--format q6_k,nvfp4,affine4…]
//
// Prints tokens a second (as if a step were its products), weights read in GB/s, multiply-adds in G/s, beside the
// bandwidth at which the same threads read memory in the same run. Several builds, --kernels files or formats take turns: compare
// those. `--format` names GGUF's types, or affine and the bits. On a busy machine take few --layers: short runs are the ones that nothing interrupts.
// `cpu` is the CPU time of a step over all threads: on a busy machine the better figure with --threads 1.
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { enableRelaxedSimd } from '../dist/device/cpu/relaxed-simd.js';

const { values: options } = parseArgs({
  options: {
    bits: { type: 'string', default: '4' },
    group: { type: 'string', default: '64' },
    dtype: { type: 'string', default: 'bf16' },
    threads: { type: 'string', default: '2' },
    rows: { type: 'string', default: '1,4,8,512' },
    rounds: { type: 'string', default: '5' },
    layers: { type: 'string', default: '28' },
    build: { type: 'string', default: 'relaxed' },
    kernels: { type: 'string' },
    format: { type: 'string' },
  },
});

/** By the names of GGUF's types. */
const FORMATS = {
  ...Object.fromEntries(
    [2, 3, 4, 5, 6].map((bits) => [`q${bits}_k`, { kind: 'k-quant', bits, dtype: 'f16' }]),
  ),
  ...Object.fromEntries(
    [4, 5, 8].map((bits) => [`q${bits}_0`, { kind: 'symmetric', bits, groupSize: 32, dtype: 'f16' }]),
  ),
  mxfp4: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'e8m0', dtype: 'f16' },
  nvfp4: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'f32-e4m3', dtype: 'f32' },
  iq4_nl: { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16', dtype: 'f16' },
  iq4_xs: { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16-i8', dtype: 'f16' },
};

if (isMainThread) await main();
else await work();

async function main() {
  const { packMatrix, stackedBytes } = await import('../dist/device/cpu/pack.js');
  const { linearCommands, scratchBytes } = await import('../dist/device/cpu/linear-commands.js');
  const { commandWords, writeCommands } = await import('../dist/device/cpu/command.js');
  const { HEAP, CONTROL, SPIN_TURNS } = await import('../dist/device/cpu/opcodes.js');
  const { rowBytes } = await import('../dist/device/weights.js');
  const builds = options.build.split(',');
  // The layout: that of the build with 32-bit sums is the same.
  const build = builds.includes('simd') ? 'simd' : 'relaxed';
  if (build === 'simd' && builds.length > 1) throw new Error('The layout of simd is its own.');
  if (build === 'relaxed' && !enableRelaxedSimd()) throw new Error('This engine has no relaxed SIMD.');
  const threads = Number(options.threads);
  const layers = Number(options.layers);
  const counts = options.rows.split(',').map(Number);
  const most = Math.max(...counts);
  const formatOf = (name) => {
    const bits = Number(/^(?:affine)?(\d+)$/.exec(name)?.[1]);
    if (bits > 8) return { kind: 'float', dtype: options.dtype };
    const format = bits
      ? { kind: 'affine', bits, groupSize: Number(options.group), dtype: options.dtype }
      : FORMATS[name];
    if (format === undefined)
      throw new Error(`No format ${name}: affineBITS, ${Object.keys(FORMATS).join(', ')}.`);
    return format;
  };
  const names = options.format?.split(',') ?? [options.bits];
  const files =
    options.kernels?.split(',') ??
    builds.map((b) => fileURLToPath(new URL(`../dist/device/cpu/wasm/kernels-${b}.wasm`, import.meta.url)));

  const source = (rows, cols, format) => {
    const bytes = rowBytes(cols, format);
    const data = new Uint8Array(rows * bytes.data);
    // 16-bit floats of about 0.01, whatever the dtype; bytes of codes are any.
    for (let i = 0, state = rows; i < data.length; i++) {
      state = (Math.imul(state, 1664525) + 1013904223) | 0;
      data[i] = format.kind === 'float' ? [state >>> 27, 0x3c][i & 1] : state >>> 24;
    }
    const meta = (start, end, one) =>
      one ? { [one]: new Uint8Array((end - start) * bytes[one]).fill(0x3c) } : {};
    const metas = ['scales', 'biases', 'subscales'].filter((name) => bytes[name] > 0);
    return {
      name: 'random',
      rows,
      cols,
      format,
      readRows: async (start, end) => ({
        data: data.subarray(start * bytes.data, end * bytes.data),
        ...Object.assign({}, ...metas.map((name) => meta(start, end, name))),
      }),
    };
  };
  const stacks = names.map((name) => {
    const format = formatOf(name);
    const of = (rows, cols) => source(rows, cols, format);
    const layer = [of(4096, 1024), of(1024, 2048), of(6144, 1024), of(1024, 3072)];
    const head = of(32000, 1024);
    const bytes = layers * layer.reduce((n, m) => n + stackedBytes([m]), 0) + stackedBytes([head]);
    return { name, layer, head, bytes };
  });
  const { layer, head } = stacks[0];
  const weights = layers * layer.reduce((n, m) => n + m.rows * m.cols, 0);
  const headWeights = head.rows * head.cols;

  const weightBytes = stacks.reduce((n, { bytes }) => n + bytes, 0);
  const room = HEAP + weightBytes + most * (32000 / 8 + 6144 + 3072 * 3) * 4 + (16 << 20) + 32000 * 32;
  const memory = new WebAssembly.Memory({ initial: Math.ceil(room / 65536), maximum: 65536, shared: true });
  let next = HEAP;
  const allocate = (bytes) => {
    const at = next;
    next = Math.ceil((at + bytes) / 64) * 64;
    if (next > memory.buffer.byteLength) throw new Error('out of memory');
    return at;
  };
  new Uint32Array(memory.buffer, CONTROL + SPIN_TURNS, 1)[0] = 2000;
  const started = performance.now();
  const packing = allocate(1 << 20);
  for (const stack of stacks) {
    const scratch = () => packing;
    const pack = async (m) => packMatrix(memory, allocate(stackedBytes([m])), [m], { build, scratch });
    stack.matrices = [];
    for (let l = 0; l < layers; l++) for (const m of stack.layer) stack.matrices.push(await pack(m));
    stack.matrices.push(await pack(stack.head));
  }
  const packSeconds = (performance.now() - started) / 1e3;

  const x = allocate(most * 3072 * 4);
  new Float32Array(memory.buffer, x, most * 3072).forEach((_, i, a) => {
    // Normal, as activations are about.
    a[i] = Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  });
  const out = allocate(Math.max(most * 6144, 32000 * Math.min(most, 16)) * 4);
  const rowCountAt = allocate(8);
  const headRowsAt = rowCountAt + 4;
  const all = stacks.flatMap(({ matrices }) => matrices);
  const scratch = allocate(Math.max(...all.map((m) => scratchBytes(m, most, 'default', threads))));
  for (const stack of stacks) {
    const commands = [];
    for (const matrix of stack.matrices) {
      const isHead = matrix === stack.matrices.at(-1);
      const place = { x, out, residual: 0, scratch, rowCountAt: isHead ? headRowsAt : rowCountAt };
      commands.push(...linearCommands(matrix, place, 'default', most));
    }
    stack.at = allocate(commandWords(commands) * 4);
    stack.count = commands.length;
    writeCommands(new Uint32Array(memory.buffer, stack.at, commandWords(commands)), commands);
  }

  const modules = await Promise.all(files.map(async (f) => WebAssembly.compile(await readFile(f))));
  const reader = await readerModule();
  const control = new Int32Array(new SharedArrayBuffer(64));
  const workers = Array.from({ length: threads }, (_, thread) => {
    return new Worker(new URL(import.meta.url), {
      argv: process.argv.slice(2),
      workerData: { memory, modules, reader, control, thread, threads, build },
    });
  });
  const tell = (message) =>
    Promise.all(
      workers.map(
        (w) =>
          new Promise((resolve, reject) => {
            w.once('message', resolve);
            w.removeAllListeners('error').once('error', reject);
            w.postMessage(message);
          }),
      ),
    );
  const timed = async (message) => {
    const cpu = process.cpuUsage();
    const times = await tell(message);
    return { wall: Math.max(...times), cpu: process.cpuUsage(cpu).user / 1e3 };
  };
  const best = (list, key) => Math.min(...list.map((t) => t[key]));

  await timed({ read: [HEAP, Math.min(64 << 20, weightBytes)] });
  const reads = [];
  for (let i = 0; i < 3; i++) reads.push(await timed({ read: [HEAP, weightBytes] }));
  const gb = (bytes, ms) => (bytes / ms / 1e6).toFixed(1);
  console.log(
    `${options.format ?? `${options.bits} bits`}, group ${options.group}, ${options.dtype}, ${build}, ${threads} threads; ` +
      `${(weightBytes / 1e6).toFixed(0)} MB packed in ${packSeconds.toFixed(1)} s; ` +
      `memory reads at ${gb(weightBytes, best(reads, 'wall'))} GB/s (by CPU time ${gb(weightBytes * threads, best(reads, 'cpu'))})`,
  );
  const turns = counts.flatMap((rows) =>
    stacks.flatMap((stack) => [...modules.keys()].map((module) => ({ rows, stack, module, times: [] }))),
  );
  for (let round = 0; round <= Number(options.rounds); round++) {
    for (const { rows, stack, module, times } of turns) {
      new Uint32Array(memory.buffer, rowCountAt, 2).set([rows, rows > 16 ? 1 : rows]);
      const time = await timed({ module, at: stack.at, count: stack.count });
      // The first round warms up.
      if (round > 0) times.push(time);
    }
  }
  for (const { rows, stack, module, times } of turns) {
    const wall = best(times, 'wall');
    const cpu = best(times, 'cpu');
    const macs = rows * weights + (rows > 16 ? 1 : rows) * headWeights;
    const median = times.map((t) => t.wall).sort((a, b) => a - b)[times.length >> 1];
    console.log(
      `${modules.length > 1 ? `[${module}] ` : ''}${stacks.length > 1 ? `${stack.name.padEnd(8)} ` : ''}` +
        `${String(rows).padStart(4)} rows: ` +
        `${((rows * 1e3) / wall).toFixed(1)} tok/s best, ${((rows * 1e3) / median).toFixed(1)} median; ` +
        `${wall.toFixed(1)} ms, cpu ${cpu.toFixed(1)} ms; ` +
        `${gb(stack.bytes, wall)} GB/s (by CPU time ${gb(stack.bytes * threads, cpu)}), ` +
        `${gb(macs, wall)} GMAC/s (by CPU time ${gb(macs * threads, cpu)})`,
    );
  }
  for (const w of workers) w.postMessage(null);
}

async function work() {
  const { memory, modules, reader, control, thread, threads } = workerData;
  const imports = { env: { memory, abort: () => {} } };
  let kernels;
  let current;
  const { read } = new WebAssembly.Instance(reader, imports).exports;
  let epoch = 0;
  parentPort.on('message', (message) => {
    if (message === null) {
      parentPort.close();
      return;
    }
    // Made anew where another took turns, for the constants of all lie in the one memory; compiled code is the module's.
    if (message.module !== undefined && message.module !== current) {
      current = message.module;
      kernels = new WebAssembly.Instance(modules[current], imports).exports;
    }
    // All start together.
    epoch++;
    if (Atomics.add(control, 0, 1) === epoch * threads - 1) {
      Atomics.store(control, 1, epoch);
      Atomics.notify(control, 1);
    } else while (Atomics.load(control, 1) < epoch) Atomics.wait(control, 1, epoch - 1);
    const start = performance.now();
    if (message.read) {
      const [from, bytes] = message.read;
      const share = Math.floor(bytes / threads / 256) * 256;
      read(from + thread * share, share);
    } else if (!kernels.run(message.at, message.count, thread, threads)) throw new Error('a thread died');
    parentPort.postMessage(performance.now() - start);
  });
}

/** Reads memory as fast as loads can. */
async function readerModule() {
  const asc = await import('assemblyscript/asc');
  const lanes = Array.from({ length: 8 }, (_, i) => `a${i} = v128.xor(a${i}, v128.load(p, ${16 * i}));`);
  const text = `export function read(from: usize, bytes: usize): i32 {
    let ${Array.from({ length: 8 }, (_, i) => `a${i} = i32x4.splat(0)`).join(', ')};
    for (let p = from; p < from + bytes; p += 128) { ${lanes.join('\n')} }
    let a = a0;
    ${Array.from({ length: 7 }, (_, i) => `a = v128.xor(a, a${i + 1});`).join('\n')}
    return i32x4.extract_lane(a, 0);
  }`;
  let binary;
  const { error, stderr } = await asc.main(
    [
      'reader.ts',
      '--outFile',
      'reader.wasm',
      ...'-O3 --noAssert --runtime stub --importMemory --sharedMemory --maximumMemory 65536'.split(' '),
      ...'--enable simd --enable threads'.split(' '),
    ],
    {
      readFile: (name) => (name === 'reader.ts' ? text : null),
      writeFile: (_name, data) => {
        binary = data;
      },
      listFiles: () => [],
    },
  );
  if (error) throw new Error(stderr.toString());
  return WebAssembly.compile(binary);
}
