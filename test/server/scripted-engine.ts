/** An engine that says what it is told to: routes and formats can be tried without a model. */
import { GenerationStream } from '../../src/engine/generation.js';
import type {
  ChatRequest,
  EngineInfo,
  EngineStats,
  FinishReason,
  GenerateRequest,
} from '../../src/engine/types.js';
import type { KvantError } from '../../src/errors.js';
import type { EnginePort } from '../../src/server/index.js';
import { type AnswerParser, answerParsers } from '../../src/text/answer-parser.js';
import { HERMES } from '../../src/text/formats/hermes.js';

export interface Script {
  /** The pieces in which each choice says its text. */
  readonly choices: readonly (readonly string[])[];
  readonly finish?: FinishReason;
  /** The end of the prompt, as text. */
  readonly prompt?: string;
  /** Never ends by itself. */
  readonly endless?: boolean;
  /** What ends an answer is a stop string, and not the model. */
  readonly stopString?: boolean;
}

export class ScriptedEngine implements EnginePort {
  script: Script = { choices: [['Hello.']] };
  fault: KvantError | null = null;
  readonly requests: (ChatRequest | GenerateRequest)[] = [];
  readonly open = new Set<GenerationStream>();

  info = {
    name: 'org/scripted',
    model: { architecture: 'Scripted', weightBytes: 0, modalities: ['text'] },
    device: { name: 'none' },
    kv: { bytesPerToken: 0, blocks: 0, blockTokens: 0, layers: [], groups: [] },
    limits: { maxContext: 100, maxRows: 1, maxBatchTokens: 1, maxQueue: 1, targetItlMs: 0 },
    samplingDefaults: {},
    memory: { deviceBytes: null, weights: 0, caches: [0], floatStart: 0, activations: 0, total: 0 },
  } as unknown as EngineInfo;

  async stats(): Promise<EngineStats> {
    if (this.fault !== null) throw this.fault;
    return {
      queued: 1,
      prefilling: 2,
      decoding: 3,
      maxRows: 8,
      slotsUsed: 0,
      blocksUsed: 4,
      floatStartBlocksUsed: 0,
      floatStartBlocksTotal: 0,
      conversions: 0,
      cacheGroups: [],
      blocksTotal: 5,
      steps: 6,
      stepsInFlight: 0,
      oldestQueuedMs: 0,
      queueTimeouts: 0,
      promptTokens: 7,
      completionTokens: 8,
      requests: 9,
      finished: { stop: 10, length: 11, cancelled: 12, error: 13 },
      refused: 14,
      preemptions: 17,
      device: { buffers: 16, bytes: 15, peakBytes: 17, samplerBytes: 0, plans: 0 },
    };
  }

  clearPrefixCache(): Promise<EngineStats> {
    return this.stats();
  }

  tokenBytes(id: number): Uint8Array {
    return new TextEncoder().encode(`<${id}>`);
  }

  chat(request: ChatRequest): GenerationStream {
    const prompt = this.script.prompt ?? '<|assistant|>\n';
    return this.#say(request, answerParsers(request, prompt, HERMES));
  }

  generate(request: GenerateRequest): GenerationStream {
    return this.#say(request);
  }

  #say(request: ChatRequest | GenerateRequest, makeParser?: () => AnswerParser): GenerationStream {
    this.requests.push(request);
    const { choices, finish = 'stop', endless = false, stopString = false } = this.script;
    // Ids of pieces count from 0, and any may be the last one.
    const ends = stopString ? [] : Array.from({ length: 1000 }, (_, id) => id);
    Object.assign(this.info.model, { eosTokenIds: ends });
    const stream: GenerationStream = new GenerationStream({
      requestId: request.requestId ?? '',
      promptTokenIds: [1, 2, 3],
      seed: 1,
      choices: choices.length,
      ...(makeParser === undefined ? {} : { makeParser }),
      receivedAt: 0,
      signal: request.signal,
      onCancel: () => {
        stream.end('cancelled', null);
        this.open.delete(stream);
      },
    });
    this.open.add(stream);
    stream.accept();
    void this.#run(stream, choices, endless ? null : finish);
    return stream;
  }

  async #run(
    stream: GenerationStream,
    choices: readonly (readonly string[])[],
    finish: FinishReason | null,
  ): Promise<void> {
    const longest = Math.max(...choices.map((c) => c.length));
    for (let i = 0; i < longest; i++) {
      for (const [choice, pieces] of choices.entries()) {
        if (i >= pieces.length) continue;
        const event = {
          request: 0,
          choice,
          ids: [i],
          text: pieces[i]!,
          logprobs: null,
          error: null,
          times: null,
          cached: null,
        };
        stream.receive({ ...event, finish: i === pieces.length - 1 ? finish : null });
        stream.tell();
        // The reader gets every piece by itself.
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
    if (finish !== null) this.open.delete(stream);
  }
}
