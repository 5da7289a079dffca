/** From a request to the sequences that wait for a row: one for each choice, or the error that says why not. */

import { requireFeatures } from '../device/sampling.js';
import { RowSampling } from '../sampling/row-sampling.js';
import { StopMatcher } from '../text/stop-matcher.js';
import type { Constrain } from './constraint.js';
import { admissionError, queueError } from './core-errors.js';
import type { CoreOptions } from './core-options.js';
import type { PreparedRows } from './prepared-rows.js';
import type { RowMemory } from './row-memory.js';
import type { Pacing } from './scheduling/pacing.js';
import { ORDINARY_PLACE } from './scheduling/queue-place.js';
import { type CoreRequest, Sequence } from './sequence.js';
import { SequenceOutput } from './sequence-output.js';
import { PromptPictures } from './vision/pictures.js';
import { picturesError, videoTooLong } from './vision/pictures-error.js';

type EnrolmentOptions = Pick<
  CoreOptions,
  'whole' | 'vision' | 'device' | 'eosIds' | 'limits' | 'contextRaise' | 'tokenTable' | 'vocabSize'
>;

export class Intake {
  readonly #options: EnrolmentOptions;
  readonly #eosIds: ReadonlySet<number>;
  readonly #rows: PreparedRows;
  readonly #memory: RowMemory;
  readonly #pacing: Pacing;

  constructor(options: EnrolmentOptions, rows: PreparedRows, memory: RowMemory, pacing: Pacing) {
    this.#options = options;
    this.#eosIds = new Set(options.eosIds);
    this.#rows = rows;
    this.#memory = memory;
    this.#pacing = pacing;
  }

  /**
   * The sequences of a request. `waiting`: how many wait already; `rows`: how many need not wait.
   * Errors: `prompt-empty`, `context-length-exceeded`, `prompt-token-unknown`, `invalid-stop` (400), `overloaded` (429),
   * `sampling-unsupported`.
   */
  accept(
    request: CoreRequest,
    constrain: Constrain | null,
    waiting: number,
    rows: number,
    arrival: number,
  ): Sequence[] {
    const { prompt, sampling, place = ORDINARY_PLACE, continuation } = request;
    const spelled = new Set(request.spelled);
    const { limits, contextRaise = [], vocabSize, device, tokenTable: table } = this.#options;
    const refused =
      admissionError(request, limits, vocabSize, contextRaise) ??
      queueError(place, sampling.bestOf, waiting, rows, limits, this.#pacing);
    if (refused !== null) throw refused;
    const tooLarge = picturesError(request, this.#options.vision ?? null);
    if (tooLarge !== null) throw tooLarge;
    const pictures = this.#pictures(request);
    // Positions are no more than the context has, and a video may go through them faster than through tokens.
    const ahead = Math.max(0, pictures?.rotary?.shift ?? 0);
    const left = limits.maxContext - prompt.length - ahead;
    if (ahead > 0 && left < 1) throw videoTooLong(limits.maxContext);
    const draws = request.hidden === undefined ? Math.min(sampling.maxTokens ?? limits.maxContext, left) : 1;
    const stop = sampling.stop.length === 0 ? null : new StopMatcher(sampling.stop);
    const endIds = new Set([...(sampling.ignoreEos ? [] : this.#eosIds), ...sampling.stopTokenIds]);
    const row = new RowSampling(sampling, request.rules, endIds, constrain !== null);
    requireFeatures(row.features, this.#rows.features, device.info.kind);
    const constraints = Array.from({ length: sampling.bestOf }, (_, choice) => constrain?.(choice) ?? null);
    const { minTokens } = sampling;
    const share = this.#pacing.join(place, sampling.bestOf);
    const { startsFloatStart: floatStart, groups, stateGroup } = this.#memory;
    const { whole = false } = this.#options;
    const entry = { arrival, share, floatStart, groups, stateGroup, pictures, whole };
    const choices = constraints.map((constraint, choice) => {
      const output = new SequenceOutput({ table, endIds, stop, minTokens, continuation, spelled });
      return new Sequence(request, choice, draws, output, row, constraint, entry);
    });
    this.#memory.prefixes?.open(choices);
    return choices;
  }

  #pictures({ pictures = [] }: CoreRequest): PromptPictures | null {
    const { vision = null } = this.#options;
    if (pictures.length === 0 || vision === null) return null;
    return new PromptPictures(pictures, vision.mergeSize, vision.ahead !== null);
  }
}
