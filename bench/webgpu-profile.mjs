// What each launch of a step takes on a GPU: launches go into passes of their own between two timestamps.

const dawn = await import('webgpu');
Object.assign(globalThis, dawn.globals);

/** While set, launches leave (label, start, end) here. */
let profile = null;
let gpuDevice = null;
let passOf = null;

const requestDevice = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (...rest) {
  gpuDevice = await requestDevice.apply(this, rest);
  return gpuDevice;
};
const encoders = globalThis.GPUCommandEncoder?.prototype;
const begin = encoders?.beginComputePass;
if (encoders !== undefined)
  encoders.beginComputePass = function (...rest) {
    const made = passOf?.(this, begin);
    if (made) return made;
    if (profile === null) return begin.apply(this, rest);
    const { queries, labels } = profile;
    let pipeline;
    let group;
    return {
      setPipeline: (p) => {
        pipeline = p;
      },
      setBindGroup: (_, g) => {
        group = g;
      },
      dispatchWorkgroups: (x, y, z) => {
        const at = labels.length * 2;
        labels.push(pipeline.label);
        const pass = begin.call(this, {
          timestampWrites: {
            querySet: queries,
            beginningOfPassWriteIndex: at,
            endOfPassWriteIndex: at + 1,
          },
        });
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(x, y, z);
        pass.end();
      },
      end: () => this.resolveQuerySet(queries, 0, labels.length * 2, profile.resolved, 0),
    };
  };

/** Dawn as kvant opens it, but for timestamps, which Dawn otherwise rounds to 100 µs. */
export function openDawn(toggles = []) {
  const features = [
    'allow_unsafe_apis',
    'vulkan_enable_f16_on_nvidia',
    'disable_workgroup_init',
    'disable_robustness',
  ];
  return dawn.create([
    `enable-dawn-features=${[...features, ...toggles].join(',')}`,
    'disable-dawn-features=timestamp_quantization',
  ]);
}

/** The GPUDevice that kvant opened last: buffers of a profile are made on it. */
export const openedDevice = () => gpuDevice;

/** Whether launches can be timed. */
export const canProfile = () => begin !== undefined && gpuDevice?.features.has('timestamp-query') === true;

/** Lets somebody else make passes: `make(encoder, begin)` gives one, or nothing. */
export function makePasses(make) {
  passOf = make;
}

/**
 * Runs one step with every launch between timestamps: the launches of each label, and their mean, each the least of the times it was
 * run. `late`: `run` submits behind its first turn, and nothing else does meanwhile.
 */
export async function profiled(run, warm, times = 3, late = false) {
  const queries = gpuDevice.createQuerySet({ type: 'timestamp', count: 4096 });
  const size = 4096 * 8;
  const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const resolved = gpuDevice.createBuffer({ size, usage: QUERY_RESOLVE | COPY_SRC });
  const staging = gpuDevice.createBuffer({ size, usage: COPY_DST | MAP_READ });
  let best = null;
  for (let i = 0; i < times; i++) {
    await warm();
    profile = { queries, resolved, labels: [] };
    const done = run();
    const { labels } = profile;
    if (late) await done;
    profile = null;
    await done;
    const encoder = gpuDevice.createCommandEncoder();
    encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
    gpuDevice.queue.submit([encoder.finish()]);
    await staging.mapAsync(1);
    const times = new BigUint64Array(staging.getMappedRange().slice(0));
    staging.unmap();
    const us = labels.map((_, l) => Number(times[2 * l + 1] - times[2 * l]) / 1000);
    best = best === null ? us : us.map((v, l) => Math.min(v, best[l]));
    best.labels = labels;
  }
  const sums = new Map();
  best.labels.forEach((label, i) => {
    const sum = sums.get(label) ?? { label, count: 0, us: 0 };
    sum.count++;
    sum.us += best[i];
    sums.set(label, sum);
  });
  for (const b of [resolved, staging]) b.destroy();
  return [...sums.values()]
    .map((v) => ({ ...v, us: v.us / v.count }))
    .sort((a, b) => b.us * b.count - a.us * a.count);
}

/** The longest launches, as lines. */
export function profileLines(profile, most = 18) {
  return profile
    .slice(0, most)
    .map(
      (p) =>
        `    ${p.label.padEnd(52)} ${String(p.count).padStart(4)} × ${p.us.toFixed(2).padStart(8)} µs = ${(p.count * p.us).toFixed(0).padStart(7)} µs`,
    )
    .join('\n');
}
