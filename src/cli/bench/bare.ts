/** A model's program without an engine: rows that decode in a bare loop of `submit`, from the same positions as an engine's. */
import type { Program, ProgramLimits } from '../../device/device.js';
import { StepInputs } from '../../device/step.js';
import type { OfflineRunner } from '../../engine/offline-runner.js';
import type { EngineLimits } from '../../engine/types.js';
import type { KvOptions } from '../../kv/options.js';
import { everyRow, IN_FLIGHT, oneSequence, timeSteps } from './steps.js';

export class BareLoop implements AsyncDisposable {
  readonly #program: Program;
  readonly #limits: ProgramLimits;
  readonly #vocab: number;

  private constructor(program: Program, limits: ProgramLimits, vocab: number) {
    this.#program = program;
    this.#limits = limits;
    this.#vocab = vocab;
  }

  /** `limits`: those of the engine it is measured beside, so that the plans are the same. */
  static async open(bench: OfflineRunner, kv: KvOptions, limits: EngineLimits): Promise<BareLoop> {
    const { maxRows, maxContext, maxBatchTokens } = limits;
    const { caches } = bench.variant({ kv, rows: maxRows, context: maxContext });
    const all = {
      maxTokens: maxBatchTokens,
      maxOutputs: maxRows,
      maxSequences: maxRows,
      maxContext,
      inFlight: IN_FLIGHT,
    };
    const program = await bench.device.compile(bench.model.buildGraph().graph, all, caches);
    return new BareLoop(program, all, bench.model.facts.vocabSize);
  }

  /** Computes a prompt of so many tokens in each of the first `rows`. */
  async prefill(rows: number, tokens: number): Promise<void> {
    const { maxTokens } = this.#limits;
    const step = new StepInputs(maxTokens, 1, 1);
    for (let row = 0; row < rows; row++)
      for (let at = 0; at < tokens; at += maxTokens) {
        oneSequence(step, row, at, Math.min(maxTokens, tokens - at));
        for (let i = 0; i < step.tokenCount; i++)
          step.tokens[i] = (row * 131 + (at + i) * 7919 + 17) % this.#vocab;
        await this.#program.submit(step);
      }
  }

  /** Decodes `warmUp + steps` tokens in each of the first `rows`, the first at `position`. @returns seconds a step */
  async decode(rows: number, position: number, steps: number, warmUp: number): Promise<number> {
    await this.#program.prepare(rows, rows);
    return timeSteps(this.#program, new StepInputs(rows, rows, rows), steps, warmUp, (step, n) => {
      // The first tokens are any; each later one is what its row drew.
      everyRow(step, rows, position + n, n === 0 ? (row) => row + 1 : (row) => -(row + 1));
      step.outputCount = rows;
      for (let row = 0; row < rows; row++) {
        step.outputs[row] = row;
        step.outputSlot[row] = row;
        step.sampling.temperature[row] = 0;
        step.sampling.position[row] = position + n + 1;
      }
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#program.dispose();
  }
}
