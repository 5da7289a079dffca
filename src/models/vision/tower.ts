/**
 * What sees in a model: a tower, which makes rows of the decoder's width of a picture's patches. It is a graph of its own, run apart
 * from the decoder's steps. Its `tokens` are rows that hold patches of one or several pictures, its `outputs` the rows that they become.
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { ImageGrid, TowerInput } from '../../media/processor.js';
import type { ProcessorJson } from '../../media/processor-fields.js';
import type { VideoProcessorName } from '../../media/read-processor.js';
import type { LookingAhead, MatrixSpec, VectorSpec, Weights } from '../layout.js';

export type PatchGrid = ImageGrid;

/** Tiles of a picture. */
export function tileCount({ tiles }: PatchGrid): number {
  return tiles === undefined ? 1 : tiles.rows * tiles.cols + (tiles.whole ? 1 : 0);
}

/** The tensors that the host fills before a launch and reads behind it. All but `features` have a row for each patch. */
export interface TowerTensors {
  /** `[rows, n]`: normalised pixels, with zeros behind those of a patch. Of two frames of a video their mean. */
  readonly pixels: Tensor;
  /** As `pixels`: half of what the first frame has more than the second; zeros for pictures. Absent: the tower sees no videos. */
  readonly motion?: Tensor;
  /** `[rows, n]` each: what a row is told of its place. Angles for Node `rotate`, taps for Node `add-gathered`. */
  readonly places: readonly Tensor[];
  /** `[rows, 2]` each: what a row sees (Node `attend-segments`). */
  readonly bounds: readonly Tensor[];
  /** `[outputs, width]` each: the rows that stand for the picture in the decoder, and those added behind its first layers. */
  readonly features: readonly Tensor[];
  /** `[n, width]`: rows that are no patches', of the checkpoint itself. Default: none. */
  readonly constants?: Float32Array;
}

/** A row that holds no patch: its pixels are zeros. */
export const NO_PATCH = 0xffff_ffff;

/** One picture in a launch: what its rows are filled with. */
export interface PlacedImage {
  /** `[rows]` which patch, in the processor's order, each row holds; or {@link NO_PATCH}. */
  readonly order: Uint32Array;
  /** As TowerTensors.places. */
  readonly places: readonly Float32Array[];
  /** As TowerTensors.bounds, counted from the picture's first row. */
  readonly bounds: readonly Float32Array[];
  /** `[tokens]` of each row of features, in the order of the picture's tokens, which group of `merged` rows it is made of. */
  readonly outputs: Uint32Array;
  /** What the picture's tokens are made of the rows of `outputs`. Default: they are these rows. */
  readonly tokens?: TokenRows;
}

/** Tokens as weighed sums of rows, added in the order of the taps. */
export interface TokenRows {
  /** Of a token. */
  readonly taps: number;
  /** `[tokens, taps]`: a row of `outputs`, or behind them one of TowerTensors.constants. */
  readonly rows: Uint32Array;
  /** `[tokens, taps]`; null where each is 1. */
  readonly weights: Float32Array | null;
}

/** A tower as config.json describes it, with no weights yet. */
export interface TowerDefinition {
  /** Numbers of a patch. */
  readonly patchValues: number;
  /** Side of a patch in pixels. */
  readonly patchSize: number;
  /** Side in pixels of the tiles that it takes; null where it takes pictures of any size. */
  readonly tileSize: number | null;
  /** Rows that an output is made of. A picture has a multiple of so many. */
  readonly merged: number;
  /** Of a row of features: the decoder's. */
  readonly width: number;
  /** Layers of the decoder that rows of a picture are added behind, from the first on. */
  readonly addedLevels: number;
  readonly matrices: readonly MatrixSpec[];
  readonly vectors: readonly VectorSpec[];
  /** A tensor that shows whether a checkpoint holds the tower. */
  readonly probe: string;
  record(ops: Ops, weights: Weights): TowerTensors;
  /** Where the patches of a picture go, and what they are told. Depends on the grid alone. */
  place(grid: PatchGrid): PlacedImage;
  /** The same in pieces of about a row of tokens, where pictures may be large. */
  placing?(grid: PatchGrid): Generator<void, PlacedImage>;
}

export interface LookAhead {
  readonly layers: LookingAhead;
  /** Tokens of a picture that stand together, at most. */
  readonly most: number;
}

/** How a model sees videos: each two frames as a picture that moves. */
export interface VideoDefinition {
  /** The token that stands where a video's rows go, once for each; where `rowToken` is another, for the video alone. */
  readonly token: number;
  /** The token that stands for each row. Default: `token`. */
  readonly rowToken?: number;
  /** The reference's class of its processor, and others that it may have. */
  readonly processors: readonly [VideoProcessorName, ...VideoProcessorName[]];
  /** The time of two frames that the prompt is told: that between them, or the first one's. */
  readonly tells: 'middle' | 'first';
  /** Tokens that the chat template writes around a video, and that `pieces` have where they belong; null: what it writes stays. */
  readonly marks: readonly [begin: number, end: number] | null;
  /**
   * Positions on the axis of time, from where the video begins, of the rows of each two frames, which are one behind the other in the prompt.
   * `seconds`: from two frames to the next two. Null: each two have the positions of a picture, by where they stand.
   */
  readonly time: ((pair: number, seconds: number) => number) | null;
  /**
   * What stands for a video in a prompt, with one number for each two frames.
   *
   * @param seconds of each two frames
   * @param processor which of `processors` it is
   */
  pieces(grid: PatchGrid, seconds: readonly number[], processor: VideoProcessorName): readonly PromptPiece[];
}

/** How a model sees. */
export interface VisionDefinition {
  readonly tower: TowerDefinition;
  /** The token that stands where a picture's rows go, once for each: its id, or its text where config.json does not say the id. */
  readonly imageToken: number | string;
  /** Patches a side that become one token. */
  readonly mergeSize: number;
  /** Tokens of pictures turn by time, row and column (positions.ts); else all tokens turn by their index. */
  readonly axes: boolean;
  /** Tokens of a picture see each other, whichever comes first; absent or null: each sees what is before it. */
  readonly ahead?: LookAhead | null;
  /** What the chat template writes for a picture. Null: the image token. */
  readonly placeholder: string | null;
  /** Chat templates are given texts alone: this text for a picture. Default: they are given parts that are pictures. */
  readonly asText?: string;
  /** How pictures are made, whatever preprocessor_config.json says. Default: as the file says. */
  readonly processor?: ProcessorJson;
  /** What preprocessor_config.json becomes where a conversation has so many pictures. Default: itself. */
  readonly processorFor?: (config: ProcessorJson, pictures: number) => ProcessorJson;
  /** Absent or null: the model reads no videos. */
  readonly video?: VideoDefinition | null;
  /** What stands for a picture in a prompt. */
  pieces(grid: PatchGrid): readonly PromptPiece[];
}

/** What an image processor is told of the model. */
export function towerInput({ tower, mergeSize }: VisionDefinition): TowerInput {
  return { patchSize: tower.patchSize, mergeSize, tileSize: tower.tileSize };
}

/** Text, a special token by its id, or a number of image tokens in a row. */
export type PromptPiece = string | number | { readonly token: number };

/** Image tokens of a picture. */
export function pictureTokens(pieces: readonly PromptPiece[]): number {
  return pieces.reduce<number>((sum, piece) => sum + (typeof piece === 'number' ? piece : 0), 0);
}
