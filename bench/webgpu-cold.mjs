// What code that is cold costs a step (docs/lab/2026-11-22-where-a-step-goes.md, "Cold code"): whole steps between two timestamps, in which the
// launches of one label are left out, have a single workgroup, have a single one twice, or have one before them.

const ROUNDS = 5;
const STEPS = 3;
const KINDS = ['skip', 'tiny', 'twice', 'prime'];

/** Stands between a program and its passes while something is measured; `begin` is the plain beginComputePass. */
export class ColdProbe {
  #altered = null;
  #device;
  #queries;
  #resolved;
  #staging;

  constructor(device) {
    const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
    this.#device = device;
    this.#queries = device.createQuerySet({ type: 'timestamp', count: 2 });
    this.#resolved = device.createBuffer({ size: 16, usage: QUERY_RESOLVE | COPY_SRC });
    this.#staging = device.createBuffer({ size: 16, usage: COPY_DST | MAP_READ });
  }

  get active() {
    return this.#altered !== null;
  }

  pass(encoder, begin) {
    const { kind, label: wanted } = this.#altered;
    const [queries, resolved] = [this.#queries, this.#resolved];
    const pass = begin.call(encoder, {
      timestampWrites: { querySet: queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 },
    });
    let label = '';
    return {
      setPipeline: (pipeline) => {
        label = pipeline.label;
        pass.setPipeline(pipeline);
      },
      setBindGroup: (index, group) => pass.setBindGroup(index, group),
      dispatchWorkgroups: (...size) => {
        const changed = label === wanted;
        if (changed && kind !== 'skip') pass.dispatchWorkgroups(1, 1, 1);
        if (changed && kind === 'twice') pass.dispatchWorkgroups(1, 1, 1);
        if (!changed || kind === 'prime') pass.dispatchWorkgroups(...size);
      },
      end: () => {
        pass.end();
        encoder.resolveQuerySet(queries, 0, 2, resolved, 0);
      },
    };
  }

  /** µs that the GPU takes for the last of some steps. */
  async #time(altered, step) {
    this.#altered = altered;
    for (let i = 0; i < STEPS; i++) await step();
    this.#altered = null;
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(this.#resolved, 0, this.#staging, 0, 16);
    this.#device.queue.submit([encoder.finish()]);
    await this.#staging.mapAsync(1);
    const [from, to] = new BigUint64Array(this.#staging.getMappedRange().slice(0));
    this.#staging.unmap();
    return Number(to - from) / 1000;
  }

  /**
   * @param labels of launches, `[label, how many a step has]`
   * @param step runs a step to its end
   * @returns µs of a step, and of each launch of a label: in a step; one workgroup of it there, and once more behind that; what
   * the launch takes behind one
   */
  async measure(labels, step) {
    const cases = [
      { kind: 'none', label: null },
      ...labels.flatMap(([label]) => KINDS.map((kind) => ({ kind, label }))),
    ];
    const times = cases.map(() => []);
    for (let round = 0; round < ROUNDS; round++)
      for (const [i, altered] of cases.entries()) times[i].push(await this.#time(altered, step));
    const [all, ...rest] = times.map((list) => list.sort((a, b) => a - b)[list.length >> 1]);
    return {
      stepUs: all,
      launches: labels.map(([label, count], i) => {
        const [skip, tiny, twice, prime] = rest.slice(KINDS.length * i, KINDS.length * (i + 1));
        const each = (us) => us / count;
        return {
          label,
          count,
          inStep: each(all - skip),
          one: each(tiny - skip),
          again: each(twice - tiny),
          behindOne: each(prime - tiny),
        };
      }),
    };
  }
}
