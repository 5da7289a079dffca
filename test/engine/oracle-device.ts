/**
 * A device whose model is a hash. It keeps the contract of src/device/device.ts to the letter, and what it draws
 * depends on every token of the sequence as read back from the paged cache: a wrong block, slot, position or
 * order gives other tokens. So the engine's book-keeping can be tested against `oracle()`, which hashes the same
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
import { randomWord } from '../../src/device/random.js';
import { FEATURE, RECORD_WORDS } from '../../src/device/sampling.js';
import { NO_SLOT, type StepInputs } from '../../src/device/step.js';
import { StepResult } from '../../src/device/step-result.js';
import type { MatrixSource, VectorSource } from '../../src/device/weights.js';
import { KvantError } from '../../src/errors.js';
import type { SamplingParams } from '../../src/sampling/options.js';
import { seedWords } from '../../src/sampling/seed.js';
import { OracleRows, oracleLogits } from './oracle-sampler.js';

export interface OracleOptions {
  readonly vocab: number;
  /** Sequences that contain this token draw nothing (as with NaN logits). */
  readonly poison?: number;
  /** Tokens that a token sees, itself included: what lies before is not read. */
  readonly window?: number;
  /** Of the cache groups behind the first one: tokens that a token sees of them. What it sees decides what is drawn too. */
  readonly slides?: readonly number[];
  /**
   * The last cache group is recurrent: a slot of state takes in every token once, from nothing at position 0. What it holds
   * decides what is drawn too.
   */
  readonly recurrent?: boolean;
  /** Blocks there is memory for. */
  readonly maxBlocks?: number;
}

/** One submitted step, as the log keeps it. */
export interface LoggedStep {
  readonly tokens: number;
  readonly sequences: readonly { slot: number; position: number; length: number }[];
  readonly outputs: number;
  /** It was run in two halves. */
  readonly split: boolean;
  /** Slots that it draws for: none before the draw has been asked for. */
  draws: readonly number[];
  settled: boolean;
}

/** What was asked of a program and what it gave back, in order. `step` is an index into the log. */
export interface Traced {
  readonly what: 'submit' | 'forward' | 'sample' | 'ids';
  readonly step: number;
}

/** What is known after the forward half. */
interface Computed {
  /** By token: −1 where it can draw nothing. */
  readonly hashes: Float64Array;
  readonly sequenceOf: Uint32Array;
}

/** What a quantised cache gives back for a token. */
function quantised(token: number): number {
  return token + 0x10000;
}

function mix(hash: number, token: number): number {
  let h = Math.imul(hash ^ token, 0x9e3779b1) >>> 0;
  h = Math.imul(h ^ (h >>> 15), 0x85ebca6b) >>> 0;
  return (h ^ (h >>> 13)) >>> 0;
}

/** The state of the recurrent layer before the first token. */
const STATE_AT_0 = 7;

interface DrawKey {
  readonly greedy: boolean;
  readonly seedLow: number;
  readonly seedHigh: number;
  readonly choice: number;
  readonly position: number;
}

function draw(hash: number, key: DrawKey, vocab: number): number {
  if (key.greedy) return hash % vocab;
  return randomWord(key.seedLow, key.seedHigh, key.choice, key.position, hash) % vocab;
}

/**
 * What the model says to a prompt: up to `draws` ids, an EOS id last if one comes. With `floatStartTokens` a position before
 * that reads all tokens as they are, a later one all of them quantised.
 */
export function oracle(
  prompt: readonly number[],
  draws: number,
  options: OracleOptions,
  sampling: Pick<SamplingParams, 'temperature' | 'seed'> = { temperature: 0, seed: 0 },
  choice = 0,
  eos: readonly number[] = [],
  floatStartTokens = 0,
): number[] {
  const { low: seedLow, high: seedHigh } = seedWords(sampling.seed);
  const ids: number[] = [];
  let hash = prompt.reduce(mix, 1);
  let late = prompt.reduce((sum, token) => mix(sum, quantised(token)), 1);
  while (ids.length < draws) {
    const position = prompt.length + ids.length;
    const key = { greedy: sampling.temperature === 0, seedLow, seedHigh, choice, position };
    if (options.window !== undefined) hash = [...prompt, ...ids].slice(-options.window).reduce(mix, 1);
    let seen = floatStartTokens > 0 && position > floatStartTokens ? late : hash;
    for (const width of options.slides ?? [])
      seen = mix(seen, [...prompt, ...ids].slice(-width).reduce(mix, 1));
    if (options.recurrent) seen = mix(seen, [...prompt, ...ids].reduce(mix, STATE_AT_0));
    const id = draw(seen, key, options.vocab);
    ids.push(id);
    if (eos.includes(id)) break;
    hash = mix(hash, id);
    late = mix(late, quantised(id));
  }
  return ids;
}

class OraclePool implements KvPool {
  readonly storage = 'oracle';
  readonly spec: KvPoolSpec;
  readonly bytes: number;
  readonly tables: Uint32Array;
  /** `[blocks · blockTokens]` the token stored at each position. */
  readonly store: Int32Array;
  readonly #device: OracleDevice;

  constructor(spec: KvPoolSpec, device: OracleDevice) {
    this.spec = spec;
    this.tables = new Uint32Array(spec.slots * spec.maxBlocksPerSlot);
    const blocks = spec.blocks + (spec.floatStart?.blocks ?? 0);
    this.store = new Int32Array(blocks * spec.blockTokens).fill(-1);
    this.bytes = this.store.byteLength;
    this.#device = device;
  }

  convert(from: Uint32Array, to: Uint32Array): Promise<void> {
    const { spec } = this;
    if (from.length !== to.length) throw new Error('convert: from and to differ in length');
    if (from.some((block) => !this.isFloatStart(block) || block >= spec.blocks + spec.floatStart!.blocks))
      throw new Error('convert: not a float-start block');
    if (to.some((block) => this.isFloatStart(block))) throw new Error('convert: to a float-start block');
    const [sources, targets] = [from.slice(), to.slice()];
    return this.#device.inOrder(() => {
      for (let i = 0; i < sources.length; i++)
        for (let t = 0; t < spec.blockTokens; t++)
          this.store[targets[i]! * spec.blockTokens + t] = quantised(
            this.store[sources[i]! * spec.blockTokens + t]!,
          );
    });
  }

  copy(from: Uint32Array, to: Uint32Array): Promise<void> {
    if (from.length !== to.length) throw new Error('copy: from and to differ in length');
    if (from.some((block, i) => this.isFloatStart(block) !== this.isFloatStart(to[i]!)))
      throw new Error('copy: between float-start blocks and others');
    const [sources, targets] = [from.slice(), to.slice()];
    const { blockTokens } = this.spec;
    return this.#device.inOrder(() => {
      sources.forEach((block, i) => {
        this.store.copyWithin(targets[i]! * blockTokens, block * blockTokens, (block + 1) * blockTokens);
      });
    });
  }

  /** A block is its tokens, four bytes each. */
  async read(blocks: Uint32Array): Promise<Uint8Array[]> {
    const ids = blocks.slice();
    const { blockTokens } = this.spec;
    let out: Uint8Array[] = [];
    await this.#device.inOrder(() => {
      out = Array.from(
        ids,
        (id) => new Uint8Array(this.store.slice(id * blockTokens, (id + 1) * blockTokens).buffer),
      );
    });
    return out;
  }

  write(blocks: Uint32Array, bytes: readonly Uint8Array[]): Promise<void> {
    const ids = blocks.slice();
    const { blockTokens } = this.spec;
    return this.#device.inOrder(() => {
      ids.forEach((id, i) => {
        this.store.set(new Int32Array(bytes[i]!.slice().buffer), id * blockTokens);
      });
    });
  }

  async prepare(): Promise<void> {}

  isFloatStart(block: number): boolean {
    return block >= this.spec.blocks;
  }

  /** Stores a token as the kind of its block wants it. */
  put(slot: number, position: number, token: number): void {
    const at = this.at(slot, position);
    const floatStart = this.spec.floatStart && this.isFloatStart(Math.floor(at / this.spec.blockTokens));
    this.store[at] = this.spec.floatStart && !floatStart ? quantised(token) : token;
  }

  setBlocks(slot: number, first: number, blocks: Uint32Array): void {
    const { maxBlocksPerSlot, blockTokens, slots } = this.spec;
    if (slot >= slots || first + blocks.length > maxBlocksPerSlot) throw new Error('setBlocks out of range');
    for (const step of this.#device.log) {
      if (step.settled) continue;
      for (const sequence of step.sequences) {
        const reads = Math.ceil((sequence.position + sequence.length) / blockTokens);
        if (sequence.slot === slot && reads > first)
          throw new Error(`entry ${first} of slot ${slot} is written while a step reads ${reads}`);
      }
    }
    this.tables.set(blocks, slot * maxBlocksPerSlot + first);
  }

  at(slot: number, position: number): number {
    const { maxBlocksPerSlot, blockTokens } = this.spec;
    const block = this.tables[slot * maxBlocksPerSlot + Math.floor(position / blockTokens)]!;
    return block * blockTokens + (position % blockTokens);
  }

  blocksOf(slot: number, tokens: number): number[] {
    const { maxBlocksPerSlot, blockTokens } = this.spec;
    const first = slot * maxBlocksPerSlot;
    return [...this.tables.subarray(first, first + Math.ceil(tokens / blockTokens))];
  }

  dispose(): void {
    this.#device.pools.delete(this);
  }
}

/** A copy of the inputs: the contract lets the caller reuse them at once. */
function copyInputs(inputs: StepInputs): StepInputs {
  return structuredClone(inputs) as StepInputs;
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

/** The halves of a step differ in what is drawn, and in nothing else. */
function checkHalves(forward: StepInputs, sample: StepInputs): void {
  for (const [name, value] of Object.entries(forward)) {
    if (name === 'outputSlot' || name === 'sampling') continue;
    if (JSON.stringify(value) !== JSON.stringify(sample[name as keyof StepInputs]))
      throw new Error(`the halves of a step differ in ${name}`);
  }
}

function checkInputs(inputs: StepInputs, limits: ProgramLimits): void {
  const fail = (why: string): never => {
    throw new Error(`bad step: ${why}`);
  };
  if (inputs.tokenCount < 1 || inputs.tokenCount > limits.maxTokens) fail(`${inputs.tokenCount} tokens`);
  if (inputs.sequenceCount > limits.maxSequences) fail('too many sequences');
  if (inputs.outputCount > limits.maxOutputs) fail('too many outputs');
  const slots = new Set<number>();
  let at = 0;
  for (let s = 0; s < inputs.sequenceCount; s++) {
    if (inputs.seqStart[s] !== at) fail('sequences are not laid out one after another');
    if (inputs.seqLength[s]! < 1) fail('an empty sequence');
    if (inputs.seqAdapter[s] !== 0) fail(`adapter ${inputs.seqAdapter[s]}`);
    if (inputs.seqPosition[s]! + inputs.seqLength[s]! > limits.maxContext) fail('beyond the context');
    at += inputs.seqLength[s]!;
    slots.add(inputs.seqSlot[s]!);
  }
  if (at !== inputs.tokenCount) fail('tokens and sequences disagree');
  if (slots.size !== inputs.sequenceCount) fail('a slot twice');
  for (let row = 1; row < inputs.outputCount; row++)
    if (inputs.outputs[row]! <= inputs.outputs[row - 1]!) fail('outputs are not ascending');
}
