import { RotaryInputs } from './rotary-inputs.js';
import { SamplingInputs } from './sampling-inputs.js';

/** In `outputSlot`: nothing is drawn for this output, and its entry in the result means nothing. */
export const NO_SLOT = 0xffff_ffff;

export interface StepInputsOptions {
  /** Sequences may have rotary positions of their own. Default: they have not. */
  readonly rotary?: boolean;
  /** Tokens may see later ones. Default: they do not. */
  readonly ahead?: boolean;
  /** Hidden rows are those of tokens. Default: those of outputs. */
  readonly hiddenTokens?: boolean;
}

/**
 * What the host says to a step: plain arrays, allocated once and refilled.
 *
 * The tokens of a step are laid out sequence after sequence: sequence s owns tokens
 * `[seqStart[s], seqStart[s] + seqLength[s])`, at consecutive positions from `seqPosition[s]`. A decoding row is a
 * sequence of length 1, a prompt chunk one of any length. No padding anywhere.
 */
export class StepInputs {
  tokenCount = 0;
  sequenceCount = 0;
  outputCount = 0;

  /**
   * `[maxTokens]` the id of a token, or `-(slot + 1)`: the token that state slot sampled last, or `FEATURE_TOKEN + r`: row r of the
   * feature slab.
   */
  readonly tokens: Int32Array;

  /** `[maxSequences]` state slot: row of the block table, owner of `lastToken`. */
  readonly seqSlot: Uint32Array;
  /** `[maxSequences]` index of its first token in this step. */
  readonly seqStart: Uint32Array;
  /** `[maxSequences]` its tokens in this step. */
  readonly seqLength: Uint32Array;
  /** `[maxSequences]` absolute position of its first token in this step = tokens already in its cache. */
  readonly seqPosition: Uint32Array;
  /**
   * `[maxSequences]` the adapter its tokens go through: 0 for none, else 1 + its index among those the device holds (DeviceInfo.adapters).
   * `clear` sets none for all.
   */
  readonly seqAdapter: Uint32Array;
  /** Rotary positions where they are not those; null for models that turn by cache indexes alone. */
  readonly rotary: RotaryInputs | null;
  /**
   * `[maxTokens]` cache index behind the last token that a token sees, where layers look ahead (Node `attend`): the end of the picture
   * that it is in. 0: it sees itself and what is before it. Ends rise along a sequence, at most to its last token in this step.
   * Null for models that only look back.
   */
  readonly visibleEnd: Uint32Array | null;

  /** `[maxOutputs]` index of the token whose logits are wanted, ascending. */
  readonly outputs: Uint32Array;
  /**
   * `[maxOutputs]` state slot that receives the sampled token, or NO_SLOT. A slot may draw at several of its tokens, one output behind
   * the other, if its row has no sampler state (checkDrawOrder): a draft is checked so.
   */
  readonly outputSlot: Uint32Array;
  /** How many of `hiddenRows` are asked for. */
  hiddenCount = 0;
  /**
   * Rows of the graph's hidden tensor that the result is to bring (Ops.hidden): `[maxOutputs]` outputs by index or, of a graph whose hidden
   * rows are those of tokens, `[maxTokens]` tokens.
   */
  readonly hiddenRows: Uint32Array;
  /** They are those of tokens. */
  readonly hiddenTokens: boolean;
  /** Sampling parameters, one row for each output. */
  readonly sampling: SamplingInputs;

  constructor(
    maxTokens: number,
    maxSequences: number,
    maxOutputs: number,
    { rotary = false, ahead = false, hiddenTokens = false }: StepInputsOptions = {},
  ) {
    this.tokens = new Int32Array(maxTokens);
    this.seqSlot = new Uint32Array(maxSequences);
    this.seqStart = new Uint32Array(maxSequences);
    this.seqLength = new Uint32Array(maxSequences);
    this.seqPosition = new Uint32Array(maxSequences);
    this.seqAdapter = new Uint32Array(maxSequences);
    this.rotary = rotary ? new RotaryInputs(maxTokens, maxSequences) : null;
    this.visibleEnd = ahead ? new Uint32Array(maxTokens) : null;
    this.outputs = new Uint32Array(maxOutputs);
    this.outputSlot = new Uint32Array(maxOutputs);
    this.hiddenTokens = hiddenTokens;
    this.hiddenRows = new Uint32Array(hiddenTokens ? maxTokens : maxOutputs);
    this.sampling = new SamplingInputs(maxOutputs);
  }

  clear(): void {
    this.seqAdapter.fill(0, 0, this.sequenceCount);
    this.tokenCount = 0;
    this.sequenceCount = 0;
    this.outputCount = 0;
    this.hiddenCount = 0;
    this.rotary?.clear();
    this.visibleEnd?.fill(0);
  }
}
