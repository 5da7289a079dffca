/** Prompts with pictures, bit for bit: cut anywhere, in company that comes and goes, computed again. */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { CpuProgram } from '../../src/device/cpu/program.js';
import { Engine } from '../../src/engine/engine.js';
import type { ChatRequest, EngineOptions } from '../../src/engine/types.js';
import { everyCase } from '../setup/every-case.js';
import { cases, MODEL, withImages } from './vision-cases.js';

const load = (options: EngineOptions): Promise<Engine> =>
  Engine.load(MODEL, {
    device: 'cpu',
    worker: false,
    threads: 2,
    maxContext: 256,
    // All is computed every time.
    prefixCache: false,
    ...options,
  });

const png = (at: number) => ({
  type: 'image',
  image: Buffer.from(cases[at]!.images[0]!.png_base64, 'base64'),
});
const pair = (first: number, second: number) => [
  {
    role: 'user',
    content: [png(first), png(second), { type: 'text', text: 'Which image has more shapes?' }],
  },
];

/** A text, a picture of each of five sizes, two pictures of different ones. */
const PROMPTS = [...cases.map(withImages), pair(0, 2), pair(4, 3)];

function request(at: number, maxTokens = 12): ChatRequest {
  const drawn = at % 2 === 1 ? { temperature: 0.9, seed: 100 + at } : { temperature: 0 };
  return {
    messages: PROMPTS[at % PROMPTS.length]!,
    maxTokens,
    ignoreEos: true,
    logprobs: true,
    topLogprobs: 20,
    ...drawn,
  };
}

/** What a request answers, to the last bit. */
async function bits(engine: Engine, asked: ChatRequest): Promise<unknown> {
  const { choices, usage } = await engine.chat(asked).result;
  expect(choices[0]!.error).toBeUndefined();
  expect(usage.completionTokens).toBe(asked.maxTokens);
  return choices[0]!.logprobs;
}

const all = PROMPTS.map((_, at) => at);

/** One after the other. */
async function alone(engine: Engine, maxTokens?: number): Promise<unknown[]> {
  const answers: unknown[] = [];
  for (const at of all) answers.push(await bits(engine, request(at, maxTokens)));
  return answers;
}

const together = (engine: Engine, maxTokens?: number): Promise<unknown[]> =>
  Promise.all(all.map((at) => bits(engine, request(at, maxTokens))));

describe('prompts with pictures', () => {
  let wanted: unknown[];
  let lengths: number[];
  /** Tokens of each sequence in each step. */
  const steps: number[][] = [];
  beforeAll(async () => {
    await using engine = await load({ maxBatchTokens: 256, maxRows: 8 });
    wanted = await alone(engine);
    lengths = await Promise.all(
      all.map(async (at) => (await engine.chat(request(at)).result).usage.promptTokens),
    );
    const { submit } = CpuProgram.prototype;
    vi.spyOn(CpuProgram.prototype, 'submit').mockImplementation(function (this: CpuProgram, inputs, slice) {
      // Those of the tower have slices.
      if (slice === undefined) steps.push([...inputs.seqLength.subarray(0, inputs.sequenceCount)]);
      return submit.call(this, inputs, slice);
    });
  });
  afterEach(() => {
    steps.length = 0;
  });
  afterAll(() => {
    vi.restoreAllMocks();
  });

  const LONGEST = 113;
  // Pictures begin behind 15 tokens. One ends behind 31, one behind 79: a chunk ends before that, there, and behind it.
  const some = [16, 23, 30, 31, 32, 79, 80, LONGEST];
  const sizes = everyCase ? Array.from({ length: LONGEST - 15 }, (_, i) => 16 + i) : some;

  it.each(sizes)('cut into chunks of %i tokens give the same bits', async (maxBatchTokens) => {
    expect(Math.max(...lengths)).toBe(LONGEST);
    await using engine = await load({ maxBatchTokens, maxRows: 4 });
    steps.length = 0;
    const cut = await alone(engine);
    const chunks = steps.filter(([length]) => length! > 1).map(([length]) => length);
    // Of one token or more: the last chunk of a prompt may be one.
    const full = lengths.flatMap((length) => [
      ...Array<number>(Math.floor(length / maxBatchTokens)).fill(maxBatchTokens),
      length % maxBatchTokens,
    ]);
    expect(chunks).toEqual(full.filter((length) => length > 1));
    expect(cut).toEqual(wanted);
    expect(await together(engine)).toEqual(wanted);
  });

  it('give the same bits in eight rows that others join and leave', async () => {
    await using engine = await load({ maxBatchTokens: 64, maxRows: 8 });
    const most = 40;
    const jobs: Promise<unknown>[] = [];
    const asked: number[] = [];
    const join = (at: number): void => {
      asked.push(at);
      jobs.push(bits(engine, request(at, most)));
    };
    for (const at of [0, 1, 2]) join(at);
    // Each of these leaves behind a few tokens, and one comes in its place: text where a picture was, and the other way about.
    const leave = async (at: number, after: number, next: number): Promise<void> => {
      let seen = 0;
      for await (const _ of engine.chat(request(at, 60))) if (++seen === after) break;
      join(next);
    };
    await Promise.all([
      leave(3, 2, 5),
      leave(6, 4, 4),
      leave(4, 7, 7),
      leave(5, 9, 1),
      leave(7, 11, 6),
      leave(0, 1, 3),
    ]);
    const answers = await Promise.all(jobs);
    expect(Math.max(...steps.map((lengthsOf) => lengthsOf.length))).toBe(8);
    expect(new Set(asked)).toEqual(new Set(all));
    await using apart = await load({ maxBatchTokens: 256, maxRows: 1 });
    const own = await alone(apart, most);
    expect(answers).toEqual(asked.map((at) => own[at]));
  });

  it('give the same bits where rows give way and are computed again', async () => {
    const most = 80;
    await using roomy = await load({ maxRows: 8 });
    const roomyBits = await alone(roomy, most);
    // Room for one sequence of the longest, and a little more.
    const kvMemory = roomy.info.kv.bytesPerToken * 288;
    await using tight = await load({ kvMemory, maxRows: 8 });
    const preemptions = async (): Promise<number> => (await tight.stats()).preemptions;
    // The first time pictures may come so slowly that a row has ended before the next begins.
    for (let round = 0; round < 8 && (await preemptions()) === 0; round++)
      expect(await together(tight, most)).toEqual(roomyBits);
    expect(await preemptions()).toBeGreaterThan(0);
  });
});
