/**
 * A device whose model is a hash. It keeps the contract of src/device/device.ts to the letter, and what it draws
 * depends on every token of the sequence as read back from the paged cache: a wrong block, slot, position or
 * order gives other tokens. So the engine's book-keeping can be tested against `oracle()` (oracle-model.ts), which hashes the same
 * tokens without any of that, thousands of steps a second.
 *
 * A pool with float-start blocks keeps tokens as they are there, and changed by `quantised` in the others: whether written
 * by a step or by `convert`. What is drawn tells the two apart, so a token that was computed over the wrong kind, or
 * over blocks that were converted too early, too late or not at all, shows.
 *
 * Steps run late and in order, after whatever the host does meanwhile, and block tables are plain shared memory:
 * a block or slot that is reused too early is read as its new content.
 */
import type {
  Device,
  DeviceInfo,
  DeviceStats,
  Matrix,
  Program,
  ProgramLimits,
  Vector,
} from '../../src/device/device.js';
import { INVALID_TOKEN } from '../../src/device/device.js';
import type { FeatureSlab } from '../../src/device/feature-slab.js';
import type { Graph } from '../../src/device/graph.js';
import { type KvCaches, type KvPool, type KvPoolSpec, kvCaches } from '../../src/device/kv.js';
import { FEATURE, RECORD_WORDS } from '../../src/device/sampling.js';
import { NO_SLOT, type StepInputs } from '../../src/device/step.js';
import { StepResult } from '../../src/device/step-result.js';
import type { MatrixSource, VectorSource } from '../../src/device/weights.js';
import { KvantError } from '../../src/errors.js';
import { draw, mix, type OracleOptions, quantised, STATE_AT_0 } from './oracle-model.js';
import { OraclePool } from './oracle-pool.js';
import { OracleRows, oracleLogits } from './oracle-sampler.js';
import { checkHalves, checkInputs, copyInputs, type LoggedStep, type Traced } from './oracle-steps.js';

/** What is known after the forward half. */
interface Computed {
  /** By token: −1 where it can draw nothing. */
  readonly hashes: Float64Array;
  readonly sequenceOf: Uint32Array;
}

export class OracleDevice implements Device {
  #peakBytes = 0;
  readonly info: DeviceInfo = {
    kind: 'cpu',
    name: 'oracle',
    features: [],
    precision: 'reference',
    deterministic: true,
    memoryBytes: undefined,
    attentionSplit: 64,
    adapters: 0,
  };
  readonly lost: Promise<KvantError>;
  readonly pools = new Set<OraclePool>();
  readonly rows = new OracleRows(
    (slot) =>
      this.log.some((step) => !step.settled && step.sequences.some((sequence) => sequence.slot === slot)),
    (slot) => this.log.some((step) => !step.settled && step.draws.includes(slot)),
  );
  /** Every step submitted, oldest first; kept only while `keepLog`. */
  log: LoggedStep[] = [];
  keepLog = true;
  /** Kept with the log. */
  readonly trace: Traced[] = [];
  /** Turns of the event loop that a forward half takes. */
  forwardTurns = 1;
  /** Ids whose promises the host has been given an answer for. */
  submitted = 0;
  settled = 0;
  mostInFlight = 0;
  prepared = 0;
  /** Set to make the next steps fail. */
  failNext: KvantError[] = [];
  failConvert: KvantError[] = [];
  readonly options: OracleOptions;
  #lose!: (error: KvantError) => void;
  #lostWith: KvantError | null = null;
  #tail: Promise<unknown> = Promise.resolve();
  #half: { step: LoggedStep; inputs: StepInputs; computed: Promise<Computed> } | null = null;

  constructor(options: OracleOptions) {
    this.options = options;
    this.lost = new Promise((resolve) => {
      this.#lose = resolve;
    });
  }

  lose(): void {
    this.#lostWith = new KvantError('device-lost', 'The device was lost.', { kind: 'device' });
    this.#lose(this.#lostWith);
  }

  place(): void {}

  /** The oracle has no use for weights: it lets a model load without reading them. */
  async loadMatrix(parts: readonly MatrixSource[]): Promise<Matrix> {
    const rows = parts.reduce((sum, part) => sum + part.rows, 0);
    return { kind: 'matrix', rows, cols: parts[0]!.cols, bytes: 0 };
  }

  async loadVector(source: VectorSource): Promise<Vector> {
    return { kind: 'vector', length: source.length };
  }

  createFeatureSlab(): FeatureSlab {
    throw new Error('the oracle has no features');
  }

  createKvPool(spec: KvPoolSpec): OraclePool {
    if (spec.blocks > (this.options.maxBlocks ?? spec.blocks))
      throw new KvantError('device-out-of-memory', 'No room for the pool.', { kind: 'device' });
    const pool = new OraclePool(spec, this);
    this.pools.add(pool);
    return pool;
  }

  /** Runs something after the steps submitted so far and ahead of later ones; rejects if the device is lost by then. */
  inOrder(work: () => void): Promise<void> {
    const failure = this.failConvert.shift();
    const done = this.#tail.then(async () => {
      await new Promise((resolve) => setImmediate(resolve));
      if (this.#lostWith !== null) throw this.#lostWith;
      if (failure !== undefined) throw failure;
      work();
    });
    this.#tail = done.catch(() => {});
    return done;
  }

  stats(): DeviceStats {
    const bytes = [...this.pools].reduce((sum, p) => sum + p.bytes, 0);
    this.#peakBytes = Math.max(this.#peakBytes, bytes);
    return {
      buffers: this.pools.size,
      bytes,
      peakBytes: this.#peakBytes,
      samplerBytes: this.rows.bytes,
      plans: 0,
    };
  }

  async compile(_graph: Graph, limits: ProgramLimits, caches: KvPool | KvCaches | null): Promise<Program> {
    const pools = kvCaches(caches)!.pools as readonly OraclePool[];
    const lastToken = new Int32Array(pools[0]!.spec.slots).fill(-1);
    return {
      sampler: this.rows,
      prepare: async () => {
        this.prepared++;
      },
      submit: (inputs) => {
        if (this.#lostWith !== null) return Promise.reject(this.#lostWith);
        const { step, copy } = this.#begin(inputs, limits, false);
        this.#draws(step, copy, 'submit');
        const computed = this.#later(async () => this.#compute(copy, pools, lastToken));
        return this.#finish(step, copy, computed, pools[0]!, lastToken);
      },
      forward: (inputs) => {
        if (this.#lostWith !== null) throw this.#lostWith;
        const { step, copy } = this.#begin(inputs, limits, true);
        this.#note('forward', step);
        const computed = this.#later(async () => {
          for (let i = 1; i < this.forwardTurns; i++) await new Promise((resolve) => setImmediate(resolve));
          return this.#compute(copy, pools, lastToken);
        });
        this.#half = { step, inputs: copy, computed };
      },
      computed: async () => {
        await this.#half?.computed.catch(() => {});
      },
      sample: (inputs) => {
        const half = this.#half;
        if (half === null) throw new Error('sample without forward');
        this.#half = null;
        if (this.#lostWith !== null) return Promise.reject(this.#lostWith);
        const copy = copyInputs(inputs);
        checkHalves(half.inputs, copy);
        this.#draws(half.step, copy, 'sample');
        return this.#finish(half.step, copy, half.computed, pools[0]!, lastToken);
      },
      write: () => {},
      fill: async () => {},
      clear: () => {},
      store: () => {
        throw new Error('the oracle has no features');
      },
      read: () => Promise.reject(new Error('the oracle keeps no tensors')),
      dispose: async () => {
        await this.#tail;
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tail;
  }

  /** Logs a step: it is under way. */
  #begin(inputs: StepInputs, limits: ProgramLimits, split: boolean): { step: LoggedStep; copy: StepInputs } {
    if (this.#half !== null) throw new Error('a step begins before the one before has been drawn from');
    const copy = copyInputs(inputs);
    checkInputs(copy, limits);
    const step: LoggedStep = {
      tokens: copy.tokenCount,
      outputs: copy.outputCount,
      sequences: Array.from({ length: copy.sequenceCount }, (_, s) => ({
        slot: copy.seqSlot[s]!,
        position: copy.seqPosition[s]!,
        length: copy.seqLength[s]!,
      })),
      split,
      draws: [],
      settled: false,
    };
    if (!this.keepLog) this.log = this.log.filter((logged) => !logged.settled);
    this.log.push(step);
    this.submitted++;
    this.mostInFlight = Math.max(this.mostInFlight, this.submitted - this.settled);
    if (this.submitted - this.settled > limits.inFlight) throw new Error('too many steps under way');
    return { step, copy };
  }

  #draws(step: LoggedStep, inputs: StepInputs, what: 'submit' | 'sample'): void {
    step.draws = [...inputs.outputSlot.subarray(0, inputs.outputCount)].filter((slot) => slot !== NO_SLOT);
    this.#note(what, step);
  }

  #note(what: Traced['what'], step: LoggedStep): void {
    if (this.keepLog) this.trace.push({ what, step: this.log.indexOf(step) });
  }

  /** Runs something behind all that was asked for before. */
  #later<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#tail.then(work);
    this.#tail = done.catch(() => {});
    return done;
  }

  #finish(
    step: LoggedStep,
    inputs: StepInputs,
    computed: Promise<Computed>,
    pool: OraclePool,
    lastToken: Int32Array,
  ): Promise<StepResult> {
    const failure = this.failNext.shift();
    return this.#later(async () => {
      await new Promise((resolve) => setImmediate(resolve));
      step.settled = true;
      this.settled++;
      if (this.#lostWith !== null) throw this.#lostWith;
      if (failure !== undefined) throw failure;
      const result = this.#draw(inputs, await computed, pool, lastToken);
      this.#note('ids', step);
      return result;
    });
  }

  #compute(inputs: StepInputs, pools: readonly OraclePool[], lastToken: Int32Array): Computed {
    const { poison, slides = [], recurrent = false } = this.options;
    const tokenPools = recurrent ? pools.slice(0, -1) : pools;
    const pool = pools[0]!;
    const hashes = new Float64Array(inputs.tokenCount);
    const sequenceOf = new Uint32Array(inputs.tokenCount);
    for (let s = 0; s < inputs.sequenceCount; s++) {
      const slot = inputs.seqSlot[s]!;
      const start = inputs.seqStart[s]!;
      const position = inputs.seqPosition[s]!;
      for (let i = 0; i < inputs.seqLength[s]!; i++) {
        const token = inputs.tokens[start + i]!;
        sequenceOf[start + i] = s;
        for (const each of tokenPools)
          each.put(slot, position + i, token < 0 ? lastToken[-token - 1]! : token);
      }
      const { window } = this.options;
      let hash = 1;
      let poisoned = false;
      const blocks = pool.blocksOf(slot, position + inputs.seqLength[s]!);
      if (window !== undefined) {
        for (let i = 0; i < inputs.seqLength[s]!; i++) {
          let own = 1;
          for (let p = Math.max(0, position + i - window + 1); p <= position + i; p++)
            own = mix(own, pool.store[pool.at(slot, p)]!);
          hashes[start + i] = own;
        }
        continue;
      }
      if (blocks.some((block) => pool.isFloatStart(block) !== pool.isFloatStart(blocks[0]!)))
        throw new Error('a sequence has blocks of both kinds');
      for (let p = 0; p < position + inputs.seqLength[s]!; p++) {
        const token = pool.store[pool.at(slot, p)]!;
        hash = mix(hash, token);
        poisoned ||= poison !== undefined && (token === poison || token === quantised(poison));
        if (p >= position) hashes[start + p - position] = poisoned ? -1 : hash;
      }
      slides.forEach((width, i) => {
        const sliding = pools[i + 1]!;
        for (let at = 0; at < inputs.seqLength[s]!; at++) {
          let own = 1;
          for (let p = Math.max(0, position + at - width + 1); p <= position + at; p++)
            own = mix(own, sliding.store[sliding.at(slot, p)]!);
          if (hashes[start + at]! >= 0) hashes[start + at] = mix(hashes[start + at]!, own);
        }
      });
      if (!recurrent) continue;
      const states = pools.at(-1)!;
      const home = states.at(slot, 0);
      let state = position === 0 ? STATE_AT_0 : states.store[home]!;
      for (let at = 0; at < inputs.seqLength[s]!; at++) {
        const token = inputs.tokens[start + at]!;
        state = mix(state, token < 0 ? lastToken[-token - 1]! : token);
        if (hashes[start + at]! >= 0) hashes[start + at] = mix(hashes[start + at]!, state);
      }
      states.store[home] = state;
    }
    return { hashes, sequenceOf };
  }

  #draw(
    inputs: StepInputs,
    { hashes, sequenceOf }: Computed,
    pool: OraclePool,
    lastToken: Int32Array,
  ): StepResult {
    const { vocab } = this.options;
    const features = inputs.sampling.features.subarray(0, inputs.outputCount);
    const recorded = features.some((bits) => bits & (FEATURE.LOGPROBS | FEATURE.MIROSTAT));
    const ids = new Uint32Array(inputs.outputCount * (recorded ? 1 + RECORD_WORDS : 1));
    const { temperature, seedLow, seedHigh, choice, position } = inputs.sampling;
    for (let row = 0; row < inputs.outputCount; row++) {
      if (inputs.outputSlot[row] === NO_SLOT) continue;
      const hash = hashes[inputs.outputs[row]!]!;
      const key = {
        greedy: temperature[row] === 0,
        seedLow: seedLow[row]!,
        seedHigh: seedHigh[row]!,
        choice: choice[row]!,
        position: position[row]!,
      };
      if (features[row] !== 0 && hash >= 0) {
        const slot = inputs.outputSlot[row]!;
        const s = sequenceOf[inputs.outputs[row]!]!;
        const length = inputs.seqPosition[s]! + inputs.seqLength[s]!;
        const tokens = Array.from({ length }, (_, p) => pool.store[pool.at(slot, p)]!);
        const wants = features[row]! & (FEATURE.LOGPROBS | FEATURE.MIROSTAT);
        const at = inputs.outputCount + row * RECORD_WORDS;
        const record = wants ? ids.subarray(at, at + RECORD_WORDS) : null;
        const logits = oracleLogits(hash, vocab);
        ids[row] = this.rows.draw(inputs.sampling, row, slot, logits, tokens, record);
      } else ids[row] = hash < 0 ? INVALID_TOKEN : draw(hash, key, vocab);
      lastToken[inputs.outputSlot[row]!] = ids[row]!;
    }
    return new StepResult(ids, inputs.outputCount);
  }
}
