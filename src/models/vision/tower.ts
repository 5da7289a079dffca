/**
 * What sees in a model: a tower, which makes rows of the decoder's width of a picture's patches. It is a graph of its own, run apart
 * from the decoder's steps. Its `tokens` are the patches of one or several pictures, its `outputs` the rows that they become.
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { MatrixSpec, VectorSpec, Weights } from '../layout.js';

/** Patches of one picture, in rows and columns. */
export interface PatchGrid {
  readonly rows: number;
  readonly cols: number;
}

/** The tensors that the host fills before a launch and reads behind it. All but `features` have a row for each patch. */
export interface TowerTensors {
  /** `[patches, patchValues]`: normalised pixels. */
  readonly pixels: Tensor;
  /** `[patches, headDim]`: cosines and sines of each patch's place (Node `rotate`). */
  readonly angles: Tensor;
  /** `[patches, 2]` each: what a patch sees (Node `attend-segments`). */
  readonly bounds: readonly Tensor[];
  /** `[outputs, width]` each: the rows that stand for the picture in the decoder, and those added behind its first layers. */
  readonly features: readonly Tensor[];
}

/** One picture in a launch: what its rows are filled with. */
export interface PlacedImage {
  /** `[patches]` which patch, in the processor's order, each row holds. */
  readonly order: Uint32Array;
  /** `[patches, headDim]`. */
  readonly angles: Float32Array;
  /** As TowerTensors.bounds, counted from the picture's first row. */
  readonly bounds: readonly Float32Array[];
  /** `[tokens]` of each row of features, in reading order, which group of merged patches it is made of. */
  readonly outputs: Uint32Array;
}

/** A tower as config.json describes it, with no weights yet. */
export interface TowerDefinition {
  /** Numbers of a patch. */
  readonly patchValues: number;
  /** Side of a patch in pixels. */
  readonly patchSize: number;
  /** Patches a side that become one token. */
  readonly mergeSize: number;
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
}

/** How a model sees. */
export interface VisionDefinition {
  readonly tower: TowerDefinition;
  /** The token that stands where a picture's rows go, once for each. */
  readonly imageToken: number;
}
